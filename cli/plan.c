/* plan.c -- foci plan: how a spec would be computed on a problem, and at what cost. */
#include <stdlib.h>
#include <string.h>

#include "cli/run.h"

static json_t *json_params(const foci_plan *plan)
{
    static const char *const keeps[] = {
        [FOCI_FROZEN] = "frozen",
        [FOCI_TRAINED] = "trained",
        [FOCI_MOVED] = "moved",
    };
    json_t *list = json_array();

    for (int i = 0; i < foci_plan_n_params(plan); i++) {
        foci_param p = { FOCI_SIZED(foci_param) };
        if (foci_plan_param(plan, i, &p)) continue;
        json_t *shape = json_array();
        for (int d = 0; d < p.n_dims; d++)
            json_array_append_new(shape, json_integer(p.shape[d]));
        json_array_append_new(list, json_pack("{s:s, s:o, s:s}", "name", p.name,
                                              "shape", shape, "keep", keeps[p.keep]));
    }
    return list;
}

static json_t *json_plan(const foci_plan *plan, const char *problem, const char *dtype)
{
    foci_cost c = { FOCI_SIZED(foci_cost) };
    char     *spec = plan_text(foci_plan_spec, plan);
    char     *lines = plan_text(foci_plan_describe, plan);

    foci_plan_cost(plan, &c);
    json_t *o = json_pack("{s:s, s:s, s:s, s:o, s:o, s:I, s:I}", "spec", spec,
                          "problem", problem, "dtype", dtype, "stages",
                          json_lines(lines), "parameters", json_params(plan),
                          "work_bytes", (json_int_t)foci_plan_work_bytes(plan),
                          "saved_bytes", (json_int_t)foci_plan_saved_bytes(plan));
    json_t *cost = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I}", "forward_flops", c.forward_flops,
        "backward_flops", c.backward_flops, "forward_bytes", c.forward_bytes,
        "backward_bytes", c.backward_bytes, "pairs", c.pairs, "tiles_full",
        (json_int_t)c.tiles_full, "tiles_part", (json_int_t)c.tiles_part,
        "tiles_skipped", (json_int_t)c.tiles_skipped);
    json_object_set_new(o, "cost", cost);
    free(spec);
    free(lines);
    return o;
}

static int make(struct run *r)
{
    const struct args *a = r->a;
    foci_problem      *p = &r->p;
    foci_status        status = foci_problem_parse(r->ctx, a->words[1], p);

    if (status) return library_error(a, r->ctx, status, NULL);
    assume_x(p);
    p->dtype = (foci_dtype)opt_word(a, "dtype", FOCI_F32);
    p->seed = (uint64_t)opt_int(a, "seed", 0);
    if (opt_flag(a, "train")) p->flags |= FOCI_TRAIN;
    if (opt_word(a, "precision", 0)) p->flags |= FOCI_FAST;
    const int code = run_check_lists(r);
    if (code) return code;
    status = foci_plan_create(r->ctx, r->spec, p, &r->plan);
    return status ? library_error(a, r->ctx, status, r->spec) : EXIT_OK;
}

static int show(const struct run *r)
{
    static const char *const dtypes[] = { "f32", "bf16", "f16" };

    if (r->a->json) {
        char problem[128];
        foci_problem_print(&r->p, problem, sizeof problem);
        return print_json(r->a, json_plan(r->plan, problem, dtypes[r->p.dtype]));
    }
    char *text = plan_text(foci_plan_describe, r->plan);
    fputs(text, stdout);
    free(text);
    return EXIT_OK;
}

static int run(const struct args *a)
{
    struct run r = { .a = a,
                     .spec = a->words[0],
                     .p = { FOCI_SIZED(foci_problem), .batch = 1, .heads = 1 } };

    r.ctx = open_ctx(a, (int)opt_int(a, "threads", 0));
    if (!r.ctx) return EXIT_FAILED;
    int code = run_lists_only(&r);
    if (!code) code = make(&r);
    if (!code) code = show(&r);
    run_lists_free(&r);
    foci_plan_free(r.plan);
    foci_ctx_free(r.ctx);
    return code;
}

static const struct option options[] = {
    { .name = "dtype",
      .arg = "TYPE",
      .help = "type of the tensors: f32 (default), bf16 or f16",
      .kind = KIND_WORD,
      .words = "f32|bf16|f16" },
    { .name = "train", .help = "plan for the backward pass as well" },
    { .name = "seed",
      .arg = "N",
      .help = "draw random blocks from this seed (default 0)",
      .kind = KIND_WHOLE,
      .max = 9007199254740992 },
    { .name = "param",
      .arg = "NAME=FILE",
      .help = "a list that planning asks for, such as the layout of blocks",
      .kind = KIND_TEXT,
      .many = true },
    OPTION_PRECISION,
    OPTION_THREADS,
    { 0 },
};

static const char *const examples[] = {
    "foci plan softmax b2h8n4096d64c",
    "foci plan '4*softmax logn + 4*relu2' h8n4096d64 --train",
    "foci plan 'pooled(block=16, levels=3)' h8n65536d64c",
    "foci plan softmax h8k2n512m4096d128 --dtype bf16 --json",
    NULL,
};

const struct verb verb_plan = {
    .name = "plan",
    .run = run,
    .summary = "the plan of a spec on a problem: stages, kernels, cost",
    .usage = "SPEC PROBLEM",
    .min_words = 2,
    .max_words = 2,
    .options = options,
    .examples = examples,
    .notes =
        "PROBLEM is b2h8k2n4096m4096d64v64c: batch, heads, key/value heads, "
        "queries, keys,\n"
        "width of queries and keys, width of values, causal.  What is left out "
        "takes the\n"
        "value before it (b and h: 1).  Hidden states, where they are read, are as "
        "wide as\n"
        "all heads together.",
};
