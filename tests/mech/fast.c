/* fast.c -- the errors that FOCI_FLAG_FAST documents (include/foci/foci.h), over all mechanisms
 * and the layers around them, on standard normal inputs: relative RMS errors of outputs and
 * of gradients, against the judge.  `FOCI_TEST_FAST=1 mech_fast` prints them. */
#include <math.h>
#include <stdio.h>

#include "support/layers.h"

#define OUTPUTS   8e-3
#define GRADIENTS 3e-2

/* What is looked at: `where` says which spec, problem and level. */
struct look {
    char   where[SPEC_CAP + 64];
    double worst[2]; /* of outputs, of gradients */
};

static void see(struct look *l, const char *part, bool gradient, const double *got,
                const double *want, int64_t n)
{
    double error = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    if (size == 0) return; /* what does not depend on an input */
    const double relative = sqrt(error / size), most = gradient ? GRADIENTS : OUTPUTS;
    l->worst[gradient] = fmax(l->worst[gradient], relative);
    if (getenv("FOCI_TEST_FAST")) printf("%s: %s %.2e\n", l->where, part, relative);
    if (!(relative <= most))
        fail_msg("%s: %s is off by %.2e of itself; documented are %.0e", l->where, part,
                 relative, most);
}

static void see_plan(struct look *l, foci_ctx *ctx, const char *level, const char *spec,
                     const foci_problem *p)
{
    foci_plan *plan = trial_plan(ctx, spec, p);
    if (!plan) return;
    struct trial  t = trial_make(plan, spec, 7, 0);
    struct result want = trial_judge(plan, &t, false), got = trial_run(plan, &t);

    snprintf(l->where, sizeof l->where, "%s/n%dd%d%s, %s", spec, (int)p->len_q,
             (int)p->dim_qk, p->flags & FOCI_FLAG_CAUSAL ? "c" : "", level);
    for (int part = 0; part < N_PARTS; part++)
        if (want.n[part] && part != PART_LSE)
            see(l, part_names[part], part != PART_O, got.x[part], want.x[part],
                want.n[part]);
    result_free(&want);
    result_free(&got);
    trial_free(&t);
    foci_plan_free(plan);
}

/* Rounded rows may choose other labels than exact ones: those layers are left out. */
static void see_layer(struct look *l, foci_ctx *ctx, const char *level,
                      const char *spec, const foci_layer_problem *p)
{
    foci_layer *layer = layers_fit(spec, p) ? layers_make(ctx, spec, p) : NULL;
    if (!layer) return;
    struct layer_case c = layers_draw(layer, spec, 7, 0);

    snprintf(l->where, sizeof l->where, "layer %s/n%dw%d%s, %s", spec, (int)p->len,
             (int)p->width, p->flags & FOCI_FLAG_CAUSAL ? "c" : "", level);
    if (!layers_choose(layer, &c)) {
        struct layer_result want = layers_judge(layer, &c, false);
        struct layer_result got = layers_run(layer, &c);

        for (int part = 0; part < LAYER_PARTS; part++)
            if (want.n[part])
                see(l, layer_part_names[part], part != LAYER_Y, got.x[part],
                    want.x[part], want.n[part]);
        layer_result_free(&want);
        layer_result_free(&got);
    }
    layer_case_free(&c);
    foci_layer_free(layer);
}

static const struct {
    int64_t  n, d;
    uint32_t flags;
} shapes[] = {
    { 96, 64, 0 }, { 130, 32, FOCI_FLAG_CAUSAL }, { 200, 64, 0 }, { 96, 128, 0 }
};

enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void see_spec(struct look *l, foci_ctx *ctx, const char *spec)
{
    const char *level = level_names[0], *state;

    for (int i = 0; foci_cpu_level(ctx, i, &state); i++)
        if (strcmp(state, "chosen") == 0) level = foci_cpu_level(ctx, i, &state);
    for (int s = 0; s < (layers_brief() ? 2 : N_SHAPES); s++) {
        const uint32_t     flags = FOCI_FLAG_TRAIN | FOCI_FLAG_FAST | shapes[s].flags;
        const foci_problem p = {
            FOCI_SIZED(foci_problem), .batch = 1,           .heads = 2,
            .len_q = shapes[s].n,     .len_k = shapes[s].n, .dim_qk = shapes[s].d,
            .dim_v = shapes[s].d,     .flags = flags
        };
        const foci_layer_problem q = { FOCI_SIZED(foci_layer_problem),
                                       .batch = 1,
                                       .len = shapes[s].n,
                                       .width = 2 * shapes[s].d,
                                       .heads = 2,
                                       .biases = 1,
                                       .flags = flags };
        see_plan(l, ctx, level, spec, &p);
        see_layer(l, ctx, level, spec, &q);
    }
}

/* Mechanisms by themselves, with their presets, at every level with products in bf16. */
static void documented(void **state)
{
    struct levels l = levels_make(1);
    struct look   look = { .worst = { 0, 0 } };
    char          spec[SPEC_CAP], last[SPEC_CAP] = "";
    int           levels = 0;

    (void)state;
    for (int at = 0; at < l.n; at++) {
        if (!l.ctx[at]->kernels.has_bf16) continue;
        levels++;
        for (int i = 0; specs_next(l.ctx[0], i, spec); i++) {
            if (strpbrk(spec, " (") || strcmp(spec, last) == 0) continue;
            memcpy(last, spec, sizeof last);
            see_spec(&look, l.ctx[at], spec);
        }
        *last = '\0';
    }
    if (levels)
        print_message("worst: %.2e of outputs, %.2e of gradients\n", look.worst[0],
                      look.worst[1]);
    levels_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(documented) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
