/* specs.c -- which specs the property tests walk, and mechanisms of their own. */
#include <math.h>
#include <stdio.h>

#include "support/trial.h"
#ifdef FOCI_TILES_EMULATED
#include "emulated/tiles.h"
#endif

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
    FOCI_SIZED(foci_mech_def),
    .name = "test_window",
    .summary = "a window of neighbours, and tokens that all share",
    .args = window_args,
    .n_args = sizeof window_args / sizeof *window_args,
    .engine = FOCI_ENGINE_EXACT,
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
        FOCI_SIZED(foci_mech_def),                                                     \
            .name = the_name, .summary = "pairs by chance", .args = chance_args,       \
            .n_args = sizeof chance_args / sizeof *chance_args,                        \
            .engine = FOCI_ENGINE_EXACT,                                               \
            .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V, .weigh = kind,           \
            .stochastic = (kind) == FOCI_WEIGH_SOFTMAX, .mask = chance_mask,           \
    }

static const foci_mech_def chances[] = {
    CHANCE("test_chance", FOCI_WEIGH_SOFTMAX),
    CHANCE("test_chance_l2norm", FOCI_WEIGH_L2NORM),
    CHANCE("test_chance_relu2", FOCI_WEIGH_RELU2),
};

void specs_register(foci_ctx *ctx)
{
    assert_int_equal(foci_mechanism_register(ctx, &window), FOCI_OK);
    for (size_t t = 0; t < sizeof chances / sizeof *chances; t++)
        assert_int_equal(foci_mechanism_register(ctx, &chances[t]), FOCI_OK);
}

/*
 * Plans
 */

enum { MAX_LISTS = 8 };

/* What lists without a count hold, as far as it may be in them. */
static const int64_t some[] = { 70, 3, 129, 3 };

/* A list as the mechanism wants it; freed by the caller.  That of a shorter sequence has
 * the entries that speak of no more than it: of a layout, the upper left corner. */

static foci_list draw_list(const foci_mech *m, const char *prefix, char *name)
{
    const foci_list_def *def = m->def->list;
    const int64_t        want = def->count(m), most = def->most(m);
    const int64_t room = want >= 0 ? want : (int64_t)(sizeof some / sizeof *some);
    const int64_t side = (int64_t)lround(sqrt((double)room));
    int64_t      *data = test_alloc((size_t)room, sizeof *data), n = 0;

    for (int64_t i = 0; i < room; i++) {
        const uint64_t at = (uint64_t)(i / side) << 32 | (uint64_t)(i % side);
        if (want >= 0)
            data[n++] =
                most == 1 ? mix(at) % 5 < 2 : (int64_t)(mix(at) % (uint64_t)(most + 1));
        else if (some[i] <= most)
            data[n++] = some[i];
    }
    snprintf(name, 64, "%s%s", prefix, def->name);
    return (foci_list){ name, data, n };
}

foci_plan *trial_plan(foci_ctx *ctx, const char *spec, const foci_problem *problem)
{
    foci_problem p = *problem, trying;
    struct spec  parsed;
    foci_list    lists[MAX_LISTS];
    char         names[MAX_LISTS][64];
    foci_plan   *plan = NULL;

    assert_int_equal(spec_parse(ctx, spec, &parsed), FOCI_OK);
    p.lists = lists;
    trying = p; /* without lists: they depend on what this fills in */
    trying.n_lists = 0;
    trying.kv_heads = 0;
    (void)spec_assign(ctx, &parsed, &trying);
    for (int g = 0; g < parsed.n_groups; g++) {
        const foci_mech *m = &parsed.groups[g].mech;
        char             prefix[32] = "";

        if (parsed.n_groups > 1) snprintf(prefix, sizeof prefix, "%d.", g);
        if (p.kv_heads) p.kv_heads *= mech_routes(m);
        if (mech_reads(m) & FOCI_READ_X && !p.dim_x) p.dim_x = 6;
        if (m->def->memformer && (!p.v.row || p.v.row >= p.dim_qk)) p.dim_v = p.dim_qk;
        for (; m; m = m->inner) {
            if (m->def->list)
                lists[p.n_lists] = draw_list(m, prefix, names[p.n_lists]), p.n_lists++;
            strncat(prefix, "inner.", sizeof prefix - strlen(prefix) - 1);
        }
    }
    spec_free(ctx, &parsed);
    const foci_status status = foci_plan_create(ctx, spec, &p, &plan);
    for (int64_t i = 0; i < p.n_lists; i++)
        free((void *)lists[i].data);
    if (status != FOCI_OK && status != FOCI_ERR_UNSUP) {
        char text[128];
        foci_problem_print(&p, text, sizeof text);
        fail_msg("%s on %s: %s", spec, text, foci_errmsg(ctx));
    }
    return plan;
}

/*
 * Texts
 */

static int count_words(const char *words)
{
    int n = 1;
    for (; *words; words++)
        n += *words == '|';
    return n;
}

static void put_arg(char *text, const char *sep, const foci_arg_def *a, double value)
{
    const size_t used = strlen(text);

    if (!a->choices) {
        snprintf(text + used, SPEC_CAP - used, "%s%s=%.3g", sep, a->name, value);
        return;
    }
    const char *word = a->choices;
    for (int i = 0; i < (int)value; i++)
        word = strchr(word, '|') + 1;
    snprintf(text + used, SPEC_CAP - used, "%s%s=%.*s", sep, a->name,
             (int)strcspn(word, "|"), word);
}

/* Add "(a=1, b=2)" to the text: required arguments and, if `draw`, all others; of
 * argument `which`, if not -1, value number `word`. */
static void put_args(char *text, const foci_arg_def *args, size_t n, bool draw,
                     int which, int word, struct rng *r)
{
    const char *sep = "(";

    for (size_t t = 0; t < n; t++) {
        const foci_arg_def *a = &args[t];
        const bool          required = isnan(a->preset);
        double              value =
            a->min + (double)rng_below(r, (int64_t)fmin(a->max - a->min, 40) + 1);

        if (a->mech || (!draw && !required && (int)t != which)) continue;
        if (a->real) value = fmin(fmax(0.3 + 2 * rng_uniform(r), a->min), a->max);
        if (a->choices) value = (double)rng_below(r, count_words(a->choices));
        if ((int)t == which) value = word;
        put_arg(text, sep, a, value);
        sep = ", ";
    }
    if (*sep == ',') strncat(text, ")", SPEC_CAP - strlen(text) - 1);
}

/* Products of very many elements are as many terms for the judge. */
static bool is_small(const foci_plan *plan)
{
    const struct stage *s = &plan->stages[0];
    return s->linear.feature != FOCI_FEATURE_PRODUCTS || s->features <= 100;
}

/* Whether it can be planned at all, causal or not, at one of two widths: features that
 * are counted by binomials are even in number at the second. */
static bool planned(foci_ctx *ctx, const char *spec)
{
    foci_problem p = { FOCI_SIZED(foci_problem),
                       .batch = 1,
                       .heads = 2,
                       .len_q = 40,
                       .len_k = 40,
                       .dim_qk = 4 };

    for (int i = 0; i < 4; i++) {
        struct spec parsed;
        if (spec_parse(ctx, spec, &parsed) != FOCI_OK) return false;
        spec_free(ctx, &parsed);
        p.flags = i % 2 ? FOCI_FLAG_CAUSAL : 0;
        p.dim_qk = i < 2 ? 4 : 6;
        foci_plan *plan = trial_plan(ctx, spec, &p);
        const bool ok = plan && is_small(plan);
        foci_plan_free(plan);
        if (ok) return true;
    }
    return false;
}

/* Append a modifier, and take it away again if that is refused. */
static bool put_mod(foci_ctx *ctx, char *spec, const foci_mod_def *mod, bool draw,
                    struct rng *r)
{
    const size_t used = strlen(spec);
    snprintf(spec + used, SPEC_CAP - used, " %s", mod->name);
    put_args(spec, mod->args, mod->n_args, draw, -1, 0, r);
    if (planned(ctx, spec)) return true;
    spec[used] = 0;
    return false;
}

/* Variant i of the mechanism alone: as it stands, with every word of its arguments,
 * with all arguments drawn a few times.  false beyond the last; an empty text where
 * the arguments contradict one another. */
static bool alone(foci_ctx *ctx, const foci_mech_def *mech, int i, char *spec,
                  struct rng *r)
{
    enum { DRAWN = 4, TRIES = 8 };

    snprintf(spec, SPEC_CAP, "%s", mech->name);
    if (i-- == 0) {
        put_args(spec, mech->args, mech->n_args, false, -1, 0, r);
        return true;
    }
    for (size_t t = 0; t < mech->n_args; t++) {
        const foci_arg_def *a = &mech->args[t];
        const int           n = a->choices && !a->mech ? count_words(a->choices) : 0;
        for (int word = 0; word < n; word++) {
            if (word == (int)a->preset || i-- > 0) continue;
            put_args(spec, mech->args, mech->n_args, false, (int)t, word, r);
            if (!planned(ctx, spec)) *spec = 0;
            return true;
        }
    }
    if (i >= (mech->n_args ? DRAWN : 0)) return false;
    for (int tries = 0; tries < TRIES; tries++) {
        snprintf(spec, SPEC_CAP, "%s", mech->name);
        put_args(spec, mech->args, mech->n_args, true, -1, 0, r);
        if (planned(ctx, spec)) return true;
    }
    *spec = 0;
    return true;
}

static int count_mods(const foci_ctx *ctx)
{
    int n = 0;
    while (foci_modifier(ctx, n))
        n++;
    return n;
}

/* Variants to follow with modifiers: of the linear engine those of every word, which are
 * kernels of their own. */
static int n_bases(const foci_mech_def *mech)
{
    int n = 1;

    for (size_t t = 0; mech->engine == FOCI_ENGINE_LINEAR && t < mech->n_args; t++)
        if (mech->args[t].choices) n += count_words(mech->args[t].choices) - 1;
    return n;
}

/* Spec number i of variant `base` followed by modifiers: two for each, then two with all
 * that go together, begun at either end of the list. */
static bool modified(foci_ctx *ctx, const foci_mech_def *mech, int base, int i,
                     char *spec)
{
    const bool draw = i % 2;
    const int  n_mods = count_mods(ctx);
    struct rng r;

    rng_seed(&r, 7, (uint64_t)i);
    if (!alone(ctx, mech, base, spec, &r)) return false;
    if (!*spec) return true;
    if (i < 2 * n_mods) {
        const foci_mod_def *mod = foci_modifier(ctx, i / 2);
        if ((draw && !mod->n_args) || !put_mod(ctx, spec, mod, draw, &r)) *spec = 0;
        return true;
    }
    for (int t = 0; t < n_mods; t++)
        put_mod(ctx, spec, foci_modifier(ctx, draw ? n_mods - 1 - t : t), draw, &r);
    return true;
}

/* The specs of one mechanism: alone, then with modifiers.  An empty text where the
 * modifier is refused. */
static bool spec_of(foci_ctx *ctx, const foci_mech_def *mech, int i, char *spec)
{
    struct rng r;

    rng_seed(&r, 7, (uint64_t)i);
    for (int t = 0; t <= i; t++) {
        if (!alone(ctx, mech, t, spec, &r)) {
            i -= t;
            break;
        }
        if (t == i) return true;
    }
    const int per = 2 * count_mods(ctx) + 2;
    return i / per < n_bases(mech) && modified(ctx, mech, i / per, i % per, spec);
}

/* What no draw is sure to meet: arguments that count only together. */
static const char *const more[] = {
    "linear(normalise=0)",
    "linear(eps=0.5)",
    "linear(relu, eps=0.01)",
    "linear(poly, power=3, const=0.5)",
    "linear(poly, power=1, const=0)",
    "linear(taylor, order=3)",
    "linear(taylor, order=3) scale(-0.3)",
    "linear(powers, order=3) scale(-0.3)",
    "linear(poly, normalise=0)",
    "cosformer(length=1200)",
    "cosformer(length=5000) rope",
    "identity(norm=n) scale(-0.5)",
    "retention(decay=0.9)",
    "retention(decay=1)",
    "retention(learn=1)",
    "retention(decay=0.7, learn=1, norm=sum)",
    "retention(decay=0.7, learn=1, norm=retnet) rope",
    "retention(content=0)",
    "retention(content=0, norm=sum, decay=0.8, learn=1)",
    "retention(content=0, norm=retnet, decay=0.8, learn=1)",
    "performer(favor++, a=-0.2)",
    "performer(features=50, ortho=0)",
    "performer(favor++, kernel=gaussian)",
    "performer(aderf, kernel=gaussian)",
    "performer(trig, kernel=gaussian)",
    "performer(hyp, kernel=gaussian) rope",
    "routed(linear(relu) rope, routes=2)",
    "routed(performer(sderf), routes=2)",
    "fixed(current, words=1)",
    "fixed(previous, words=1)",
    "fixed(next, words=1)",
    "fixed(left, words=1)",
    "fixed(right, words=1)",
    "fixed(end, words=1)",
    "fixed(start, words=1)",
    "fixed(previous, empty=self)",
    "fixed(next, empty=self)",
    "fixed(left, empty=self)",
    "fixed(right, empty=self)",
    "fixed(left, words=1, empty=self)",
    "fixed(right, words=1, empty=self)",
    "fixed(words=1)",
    "lightconv(width=1)",
    "lightconv(width=4)",
    "lightconv(width=9, heads=2)",
    "lightconv(width=70, heads=4)",
    "dynconv(width=4)",
    "dynconv(width=9, heads=2)",
    "dynconv(width=70, heads=4)",
    "synthesizer(random, max=340)",
    "synthesizer(fixed_random, max=340)",
    "synthesizer(dense, max=340, hidden=5)",
    "synthesizer(fdense, max=340, hidden=5)",
    "synthesizer(fdense, max=340, split=7)",
    "synthesizer(frandom, max=340, rank=3)",
    "synthesizer(random+dense, max=340)",
    "synthesizer(random+vanilla, max=340)",
    "synthesizer(dense+vanilla, max=340)",
    "synthesizer(random, max=340) sink cap(2) alibi",
    "synthesizer(dense, max=340, hidden=20) bias(clip=3) t5",
    "synthesizer(random+vanilla, max=340) rope temper logn shaw(clip=2)",
    "synthesizer(dense+vanilla, max=340) txl qknorm sink cap(3)",
    "linformer(rank=3)",
    "linformer(rank=7, share=0) cap(2) sink",
    "linformer(rank=4, block=16)",
    "linformer(rank=4, block=16, share=0) rope qknorm",
    "linformer(rank=70, block=80)",
    "linformer(rank=1, block=1, share=0) temper",
    "lowrank(rank=1)",
    "lowrank(rank=4)",
    "lowrank(rank=4) rope alibi sink",
    "lowrank(rank=2) qknorm",
    "lowrank(rank=2) scale(0.4)",
    "nystrom(landmarks=4)",
    "nystrom(landmarks=6, iters=0)",
    "nystrom(landmarks=6, iters=3, conv=5)",
    "nystrom(landmarks=5, conv=34) scale(0.3)",
    "memformer(slots=3, segment=5)",
    "memformer(slots=1, segment=1)",
    "memformer(slots=20, segment=64, tau=1)",
    "memformer(slots=4, segment=70) scale(0.2)",
};

/* Made once: every context of a test knows the same mechanisms. */
static char (*all_specs)[SPEC_CAP];
static int n_specs;

bool specs_wanted(const char *spec)
{
    const char *only = getenv("FOCI_TEST_SPECS");
    return !only || strncmp(spec, only, strlen(only)) == 0;
}

static void list_one(const char *spec)
{
    static int cap;

    if (!specs_wanted(spec)) return;

    if (n_specs == cap) {
        cap = cap ? 2 * cap : 64;
        all_specs = realloc(all_specs, (size_t)cap * sizeof *all_specs);
        assert_non_null(all_specs);
    }
    snprintf(all_specs[n_specs++], SPEC_CAP, "%s", spec);
}

/* With FOCI_TEST_SHORT about thirty with modifiers, however many mechanisms there are. */
static void list_specs(foci_ctx *ctx)
{
    const bool           brief = getenv("FOCI_TEST_SHORT") != NULL;
    const foci_mech_def *mech;
    char                 spec[SPEC_CAP];
    int                  n_mechs = 0;

    while (foci_mechanism(ctx, n_mechs))
        n_mechs++;

    for (int t = 0; (mech = foci_mechanism(ctx, t)); t++)
        for (int u = 0; spec_of(ctx, mech, u, spec); u++) {
            if (!*spec) continue;
            if (brief && strchr(spec, ' ') && (t + u) % (n_mechs / 2 + 1)) continue;
            list_one(spec);
        }
    for (size_t t = 0; t < sizeof more / sizeof *more; t++)
        if (!brief || t % 5 == 0) list_one(more[t]);
}

bool specs_next(foci_ctx *ctx, int i, char spec[SPEC_CAP])
{
    if (!n_specs) list_specs(ctx);
    if (i >= n_specs) return false;
    memcpy(spec, all_specs[i], SPEC_CAP);
    return true;
}

struct levels levels_make(int threads)
{
    struct levels l = { .n = 0 };
    foci_ctx     *any = test_ctx(NULL, 1);
    const char   *name, *state;

    if (any->device) { /* it is the only level then */
        foci_ctx_free(any);
        l.ctx[l.n] = test_ctx(NULL, threads);
        specs_register(l.ctx[l.n++]);
        return l;
    }

    for (int t = 0; (name = foci_cpu_level(any, t, &state)); t++) {
        if (strcmp(state, "chosen") != 0 && strcmp(state, "available") != 0) continue;
        l.ctx[l.n] = test_ctx(name, threads);
        specs_register(l.ctx[l.n++]);
    }
#ifdef FOCI_TILES_EMULATED
    /* Beside the CPU's own tiles, where there are any. */
    if (any->levels >> LEVEL_AMX & 1 && !tiles_emulated()) {
        tile_emulation.always = true;
        l.ctx[l.n] = test_ctx(NULL, threads);
        tile_emulation.always = false;
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
