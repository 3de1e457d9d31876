/* specs.c -- which specs the property tests walk, and mechanisms of their own. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"

/*
 * A window of neighbours and some tokens that all share, with tiles.
 */

enum { WINDOW, FIRST };

static const foci_arg_def window_args[] = {
    [WINDOW] = { .name = "window",
                 .preset = 20,
                 .max = INT32_MAX,
                 .help = "keys on each side" },
    [FIRST] = { .name = "first", .max = INT32_MAX, .help = "tokens all share" },
};

static const foci_range everything = { 0, INT64_MAX }, nothing = { 0, 0 };

static uint64_t window_mask(const foci_mech *m, int64_t i, int64_t j0)
{
    const int64_t    w = foci_arg_int(m, WINDOW);
    const foci_range near = { i - w, i + w + 1 };
    const foci_range shared = { 0, foci_arg_int(m, FIRST) };

    if (i < shared.end) return foci_bits_in(everything, j0);
    return foci_bits_in(near, j0) | foci_bits_in(shared, j0);
}

static void window_tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    const int64_t    w = foci_arg_int(m, WINDOW);
    const foci_range shared = { 0, foci_arg_int(m, FIRST) };

    if (rows.begin < shared.end) {
        foci_tiles_cover(out, everything, rows.end <= shared.end ? everything : nothing);
        return;
    }
    const foci_range hull = { rows.begin - w, rows.end + w };
    const foci_range core = { rows.end - 1 - w, rows.begin + w + 1 };
    foci_tiles_cover(out, shared, shared);
    foci_tiles_cover(out, hull, core);
}

static const foci_mech_def window = {
    .name = "test_window",
    .summary = "a window of neighbours, and tokens that all share",
    .args = window_args,
    .n_args = sizeof window_args / sizeof *window_args,
    .engine = FOCI_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .stochastic = true,
    .mask = window_mask,
    .tiles = window_tiles,
};

/*
 * Pairs by chance, some queries with none at all, without tiles.
 */

enum { PERCENT };

static const foci_arg_def chance_args[] = {
    [PERCENT] = { .name = "percent",
                  .preset = 30,
                  .max = 100,
                  .help = "of the pairs that are visible" },
};

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint64_t chance_mask(const foci_mech *m, int64_t i, int64_t j0)
{
    const uint64_t percent = (uint64_t)foci_arg_int(m, PERCENT);
    uint64_t       seen = 0;

    if (i % 11 == 5) return 0;
    for (uint64_t t = 0; t < FOCI_TILE; t++)
        if (mix((uint64_t)i << 32 ^ ((uint64_t)j0 + t)) % 100 < percent)
            seen |= UINT64_C(1) << t;
    return seen;
}

#define CHANCE(the_name, kind)                                                         \
    {                                                                                  \
        .name = the_name, .summary = "pairs by chance", .args = chance_args,           \
        .n_args = sizeof chance_args / sizeof *chance_args, .engine = FOCI_EXACT,      \
        .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V, .weigh = kind,               \
        .stochastic = (kind) == FOCI_SOFTMAX, .mask = chance_mask,                     \
    }

static const foci_mech_def chances[] = {
    CHANCE("test_chance", FOCI_SOFTMAX),
    CHANCE("test_chance_l2norm", FOCI_L2NORM),
    CHANCE("test_chance_relu2", FOCI_RELU2),
};

void specs_register(foci_ctx *ctx)
{
    assert_int_equal(foci_mechanism_register(ctx, &window), FOCI_OK);
    for (size_t t = 0; t < sizeof chances / sizeof *chances; t++)
        assert_int_equal(foci_mechanism_register(ctx, &chances[t]), FOCI_OK);
}

/*
 * Texts
 */

/* Add "(a=1, b=2)" to the text: required arguments and, if `draw`, all others. */
static void put_args(char *text, const foci_arg_def *args, size_t n, bool draw,
                     struct rng *r)
{
    const char *sep = "(";

    for (size_t t = 0; t < n; t++) {
        const foci_arg_def *a = &args[t];
        const bool          required = isnan(a->preset);
        if (a->mech || (!draw && !required)) continue;
        double value =
            a->min + (double)rng_below(r, (int64_t)fmin(a->max - a->min, 40) + 1);
        if (a->real) value = fmin(fmax(0.3 + 2 * rng_uniform(r), a->min), a->max);
        const size_t used = strlen(text);
        if (a->words) /* a word's number is its place between the bars */
            continue;
        snprintf(text + used, SPEC_CAP - used, "%s%s=%.3g", sep, a->name, value);
        sep = ", ";
    }
    if (*sep == ',') strncat(text, ")", SPEC_CAP - strlen(text) - 1);
}

static bool planned(foci_ctx *ctx, const char *spec)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 2,
                             .len_q = 3,
                             .len_k = 3,
                             .dim_qk = 4 };
    foci_plan         *plan;
    const bool         ok = foci_plan_create(ctx, spec, &p, &plan) == FOCI_OK;
    foci_plan_free(plan);
    return ok;
}

/* Append a modifier, and take it away again if that is refused. */
static bool put_mod(foci_ctx *ctx, char *spec, const foci_mod_def *mod, bool draw,
                    struct rng *r)
{
    const size_t used = strlen(spec);
    snprintf(spec + used, SPEC_CAP - used, " %s", mod->name);
    put_args(spec, mod->args, mod->n_args, draw, r);
    if (planned(ctx, spec)) return true;
    spec[used] = 0;
    return false;
}

/* The specs of one mechanism: 0 and 1 plain, then two for each modifier, then two
 * with all modifiers that go together, begun at either end of the list.  An empty
 * text where the modifier is refused. */
static bool spec_of(foci_ctx *ctx, const foci_mech_def *mech, int i, char *spec)
{
    const bool draw = i % 2;
    int        n_mods = 0;
    struct rng r;

    while (foci_modifier(ctx, n_mods))
        n_mods++;
    rng_seed(&r, 7, (uint64_t)i);
    *spec = 0;
    if (i >= 2 * n_mods + 4) return false;
    snprintf(spec, SPEC_CAP, "%s", mech->name);
    put_args(spec, mech->args, mech->n_args, draw, &r);
    if (i < 2) {
        if (draw && strcmp(spec, mech->name) == 0) *spec = 0; /* as number 0 */
        return true;
    }
    if (i < 2 * n_mods + 2) {
        const foci_mod_def *mod = foci_modifier(ctx, i / 2 - 1);
        const bool          same = draw && mod->n_args == 0 && mech->n_args == 0;
        if (same || !put_mod(ctx, spec, mod, draw, &r)) *spec = 0;
        return true;
    }
    for (int t = 0; t < n_mods; t++)
        put_mod(ctx, spec, foci_modifier(ctx, draw ? n_mods - 1 - t : t), draw, &r);
    return true;
}

bool specs_next(foci_ctx *ctx, int i, char spec[SPEC_CAP])
{
    const foci_mech_def *mech;

    for (int t = 0; (mech = foci_mechanism(ctx, t)); t++)
        for (int u = 0; spec_of(ctx, mech, u, spec); u++)
            if (*spec && i-- == 0) return true;
    return false;
}

struct levels levels_make(int threads)
{
    struct levels l = { .n = 0 };
    foci_ctx     *any = test_ctx(NULL, 1);
    const char   *name, *state;

    for (int t = 0; (name = foci_cpu_level(any, t, &state)); t++) {
        if (strcmp(state, "chosen") != 0 && strcmp(state, "available") != 0) continue;
        l.ctx[l.n] = test_ctx(name, threads);
        specs_register(l.ctx[l.n++]);
    }
#ifdef FOCI_AMX_EMULATED
    /* Tiles written out where the CPU has none. */
    if (any->levels & 1u << LEVEL_BF16 && !(any->levels & 1u << LEVEL_AMX)) {
        l.ctx[l.n] = test_ctx(NULL, threads);
        kernels_amx_emulated(&l.ctx[l.n]->kernels);
        specs_register(l.ctx[l.n++]);
    }
#endif
    foci_ctx_free(any);
    assert_true(l.n > 0);
    return l;
}

void levels_free(struct levels *l)
{
    for (int t = 0; t < l->n; t++)
        foci_ctx_free(l->ctx[t]);
}
