/* kern.c -- every kernel of every CPU level against the reference, and its speed.
 *
 * Levels are climbed upward; a slot whose pointer is new at a level is checked
 * against ref.c by the checker of its name.  The list of checkers is made from
 * kernels.def, so that a kernel without one does not compile.  `kern --bench [NAME]`
 * runs the same checkers with a clock in place of the comparison.
 */
#include "kern/attend.h"
#include "kern/chunk.h"
#include "kern/decode.h"
#include "kern/epilogue.h"
#include "kern/features.h"
#include "kern/hadamard.h"
#include "kern/labels.h"
#include "kern/linear.h"
#include "kern/means.h"
#include "kern/panels.h"
#include "kern/peak.h"
#include "kern/places.h"
#include "kern/products.h"
#include "kern/recur.h"
#include "kern/rows.h"
#include "kern/run.h"
#include "kern/scores.h"
#include "kern/tiles.h"
#include "kern/training.h"

#ifdef FOCI_TILES_EMULATED
#include "emulated/tiles.h"
#endif

static void (*const checkers[N_KERNELS])(struct run *) = {
#define KERNEL(name, result, args) [K_##name] = check_##name,
#include "kernels/kernels.def"
#undef KERNEL
};

/*
 * Against arithmetic in double, the reference too
 */

/* 2^t over all t that the lazy reference admits, into the denormals. */
static void test_exp2(void **state)
{
    const struct run *const r = *state;
    _Alignas(64) float      s[LANES], m[LANES], l[LANES], shrink[LANES];
    _Alignas(64) uint32_t   p[LANES];

    for (int step = 0; step < 20000; step++) {
        float t[LANES];
        for (int i = 0; i < LANES; i++) {
            s[i] = t[i] = (float)(8.0 - (step * LANES + i) * (158.0 / 20000 / LANES));
            m[i] = l[i] = 0.0f;
        }
        r->now->weigh_bf16(s, p, 1, 1, NULL, m, l, shrink, FOCI_WEIGH_SOFTMAX);
        r->now->weigh_f32(s, 1, NULL, m, l, shrink, FOCI_WEIGH_SOFTMAX);
        for (int i = 0; i < LANES; i++) {
            const double want = exp2((double)t[i]);
            const double fast = (double)of_bf16((uint16_t)p[i]);
            const double half = ldexp(1.0, ilogb(want) - 8); /* of bf16's last place */

            if (fabs((double)s[i] - want) > EXP * want + (double)FLT_MIN ||
                fabs(fast - want) > half + EXP_FAST * want + (double)FLT_MIN)
                fail_msg("%s: 2^%.9g = %.9g and %.9g, want %.9g", r->level,
                         (double)t[i], (double)s[i], fast, want);
        }
    }
}

/* tanh within 4e-7 of its value, from 2^-20 to 2^5. */
static void test_tanh(void **state)
{
    const struct run *const r = *state;
    _Alignas(64) float      s[LANES], f[LANES];

    for (int step = 0; step < 4000; step++) {
        float x[LANES];
        for (int i = 0; i < LANES; i++) {
            x[i] = (float)exp2(-20.0 + (step * LANES + i) * (25.0 / 4000 / LANES));
            s[i] = x[i] *= i % 2 ? 1.0f : -1.0f;
            f[i] = 1.0f;
        }
        r->now->modify(s, 1, f, 1.0f, 1.0f, NULL, 0, NULL);
        for (int i = 0; i < LANES; i++) {
            const double want = tanh((double)x[i]);
            if (fabs((double)s[i] - want) > 4e-7 * fabs(want))
                fail_msg("%s: tanh %.9g = %.9g, want %.9g", r->level, (double)x[i],
                         (double)s[i], want);
        }
    }
}

/* Cosine and sine within 2e-7, far into what has to be taken apart. */
static void test_waves(void **state)
{
    const struct run *const r = *state;
    _Alignas(64) float      x[LANES], c[LANES], s[LANES], ones[LANES];

    for (int step = 0; step < 4000; step++) {
        for (int i = 0; i < LANES; i++) {
            x[i] = (float)exp2(-10.0 + (step * LANES + i) * (28.0 / 4000 / LANES));
            x[i] *= i % 2 ? 1.0f : -1.0f;
            ones[i] = s[i] = 1.0f;
        }
        r->now->feature(c, x, 1, FOCI_FEATURE_COS, ones);
        r->now->feature_back(s, x, 1, FOCI_FEATURE_COS);
        for (int i = 0; i < LANES; i++)
            if (fabs((double)c[i] - cos((double)x[i])) > WAVES ||
                fabs((double)-s[i] - sin((double)x[i])) > WAVES)
                fail_msg("%s: of %.9g: %.9g and %.9g", r->level, (double)x[i],
                         (double)c[i], (double)-s[i]);
    }
}

/* Every number of 16 bits comes back from its float. */
static void test_round_trip(void **state)
{
    const struct run *const r = *state;

    for (int dtype = FOCI_BF16; dtype <= FOCI_F16; dtype++)
        for (int first = 0; first < 65536; first += LANES) {
            uint16_t           in[LANES], out[LANES];
            _Alignas(64) float x[LANES];

            for (int i = 0; i < LANES; i++)
                in[i] = (uint16_t)(first + i);
            r->now->load_rows(x, LANES, in, LANES, dtype, 1, LANES);
            r->now->store_rows(out, LANES, dtype, x, LANES, 1.0f, 1, LANES);
            for (int i = 0; i < LANES; i++) {
                const int top = dtype == FOCI_BF16 ? 0x7f80 : 0x7c00;
                if ((in[i] & 0x7fff) > top ? (out[i] & 0x7fff) <= top : in[i] != out[i])
                    fail_msg("%s: dtype %d, %04x became %04x", r->level, dtype, in[i],
                             out[i]);
            }
        }
}

/*
 * Levels
 */

enum { MAX_TABLES = N_LEVELS + 1, MAX_TESTS = MAX_TABLES * (N_KERNELS + 4) };

static struct kernels tables[MAX_TABLES];
static const char    *table_names[MAX_TABLES];

static int climb_to(enum level level, unsigned levels, const char *name, int n)
{
    kernels_init(&tables[n], levels & ((2u << level) - 1));
    table_names[n] = name;
    return n + 1;
}

/* Tiles in software, beside those of the CPU if it has any; not to be timed. */
static int climb_emulated(unsigned levels, bool timed, int n)
{
#ifdef FOCI_TILES_EMULATED
    if (timed) return tiles_emulated() ? n - 1 : n;
    if (tiles_emulated()) {
        table_names[n - 1] = "amx emulated";
        return n;
    }
    tile_emulation.always = true;
    n = climb_to(LEVEL_AMX, levels, "amx emulated", n);
    tile_emulation.always = false;
#else
    (void)levels, (void)timed;
#endif
    return n;
}

/* The tables of this machine, the reference first; the result is their number. */
static int climb(bool timed)
{
    const char    *why[N_LEVELS];
    const unsigned levels = kernels_detect(N_LEVELS - 1, why);
    int            n = 0;

    for (int i = 0; i < N_LEVELS; i++) {
        if (why[i])
            printf("# no %s: %s\n", level_names[i], why[i]);
        else
            n = climb_to((enum level)i, levels, level_names[i], n);
    }
    return levels >> LEVEL_AMX & 1 ? climb_emulated(levels, timed, n) : n;
}

static void test_kernel(void **state)
{
    struct run *const r = *state;
    checkers[r->id](r);
}

static struct run        runs[MAX_TESTS];
static struct CMUnitTest tests[MAX_TESTS];
static char              test_names[MAX_TESTS][48];
static size_t            n_tests;

static void add(const char *name, void (*test)(void **), int table, int id)
{
    struct run *const r = &runs[n_tests];

    *r = (struct run){ .level = table_names[table],
                       .id = id,
                       .ref = &tables[0],
                       .now = &tables[table],
                       .seed = (uint64_t)id + 1 };
    snprintf(test_names[n_tests], sizeof test_names[0], "%s/%s", r->level, name);
    tests[n_tests] = (struct CMUnitTest){ test_names[n_tests], test, NULL, NULL, r };
    n_tests++;
}

/* What table t has that none below it had. */
static bool is_new(int t, int id)
{
    for (int i = 0; i < t; i++)
        if (kernels_slot(&tables[t], id) == kernels_slot(&tables[i], id)) return false;
    return true;
}

static void bench(int n_tables, const char *only)
{
    for (int id = 0; id < N_KERNELS; id++)
        for (int t = 0; t < n_tables; t++) {
            struct run r = { .level = table_names[t],
                             .id = id,
                             .ref = &tables[0],
                             .now = &tables[t],
                             .seed = 1,
                             .bench = true };
            if (is_new(t, id) && (!only || strcmp(only, kernel_names[id]) == 0))
                checkers[id](&r);
        }
}

int main(int argc, char **argv)
{
    const bool timed = argc > 1 && strcmp(argv[1], "--bench") == 0;
    const int  n_tables = climb(timed);

    if (timed) {
        bench(n_tables, argc > 2 ? argv[2] : NULL);
        return 0;
    }
    for (int t = 0; t < n_tables; t++) {
        for (int id = 0; id < N_KERNELS && t > 0; id++)
            if (is_new(t, id)) add(kernel_names[id], test_kernel, t, id);
        add("exp2", test_exp2, t, K_weigh_f32);
        add("tanh", test_tanh, t, K_modify);
        add("waves", test_waves, t, K_feature);
        add("round trip", test_round_trip, t, K_store_rows);
    }
    return _cmocka_run_group_tests("kernels", tests, n_tests, NULL, NULL);
}
