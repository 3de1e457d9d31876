/* plan.c -- foci plan: how a spec would be computed on a problem, by itself or, with a
 * width, inside a layer, and at what cost. */
#include <stdlib.h>
#include <string.h>

#include "cli/layer.h"
#include "cli/run.h"

static json_t *json_params(const struct run_verb *r)
{
    static const char *const keeps[] = {
        [FOCI_KEEP_FROZEN] = "frozen",
        [FOCI_KEEP_TRAINED] = "trained",
        [FOCI_KEEP_MOVED] = "moved",
    };
    json_t *list = json_array();

    for (int i = 0; i < run_n_params(r); i++) {
        foci_param p = { FOCI_SIZED(foci_param) };
        if (run_param(r, i, &p)) continue;
        json_t *shape = json_array();
        for (int d = 0; d < p.n_dims; d++)
            json_array_append_new(shape, json_integer(p.shape[d]));
        json_array_append_new(list, json_pack("{s:s, s:o, s:s}", "name", p.name,
                                              "shape", shape, "keep", keeps[p.keep]));
    }
    return list;
}

static json_t *json_cost(const struct run_verb *r)
{
    foci_cost c = { FOCI_SIZED(foci_cost) };

    if (r->layer)
        foci_layer_cost(r->layer, &c);
    else
        foci_plan_cost(r->plan, &c);
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I}", "forward_flops",
                     c.forward_flops, "backward_flops", c.backward_flops,
                     "forward_bytes", c.forward_bytes, "backward_bytes",
                     c.backward_bytes, "pairs", c.pairs, "tiles_full",
                     (json_int_t)c.tiles_full, "tiles_part", (json_int_t)c.tiles_part,
                     "tiles_skipped", (json_int_t)c.tiles_skipped);
}

static json_t *json_plan(const struct run_verb *r, const char *problem,
                         const char *lines)
{
    static const char *const dtypes[] = { "f32", "bf16", "f16" };
    const size_t             work =
        r->layer ? foci_layer_work_bytes(r->layer) : foci_plan_work_bytes(r->plan);
    const size_t saved =
        r->layer ? foci_layer_saved_bytes(r->layer) : foci_plan_saved_bytes(r->plan);
    char *spec = plan_text(foci_plan_spec, run_heads(r));

    json_t *o =
        json_pack("{s:s, s:s, s:s, s:o, s:o, s:I, s:I, s:o}", "spec", spec, "problem",
                  problem, "dtype", dtypes[r->p.dtype], "stages", json_lines(lines),
                  "parameters", json_params(r), "work_bytes", (json_int_t)work,
                  "saved_bytes", (json_int_t)saved, "cost", json_cost(r));
    run_json_kind(r, o);
    free(spec);
    return o;
}

/* PROBLEM, with --width as its w; to be freed. */
static char *with_width(const struct args *a)
{
    enum { MOST_DIGITS = 24 };
    const char  *text = a->words[1], *width = opt_text(a, "width");
    const size_t n = strlen(text), causal = n && text[n - 1] == 'c';
    const size_t cap = n + MOST_DIGITS;
    char        *out = need(cap, 1);

    if (width)
        snprintf(out, cap, "%.*sw%lld%s", (int)(n - causal), text,
                 (long long)opt_int(a, "width", 0), causal ? "c" : "");
    else
        memcpy(out, text, n);
    return out;
}

static void take_options(const struct args *a, foci_problem *p)
{
    p->dtype = (foci_dtype)opt_word(a, "dtype", FOCI_F32);
    p->seed = (uint64_t)opt_int(a, "seed", 0);
    if (opt_flag(a, "train")) p->flags |= FOCI_FLAG_TRAIN;
    if (opt_word(a, "precision", 0)) p->flags |= FOCI_FLAG_FAST;
}

static int make_layer(struct run_verb *r, const char *text)
{
    const struct args *a = r->a;
    foci_layer_problem l = { FOCI_SIZED(foci_layer_problem),
                             .kind = (foci_layer_kind)opt_word(a, "layer", 0),
                             .biases = opt_flag(a, "biases"), .lists = r->p.lists,
                             .n_lists = r->p.n_lists };

    int code = layer_parse(a, r->ctx, text, &r->p, &l);
    if (code) return code;
    take_options(a, &r->p);
    l.dtype = r->p.dtype;
    l.flags = r->p.flags;
    l.seed = r->p.seed;
    code = run_check_layer_lists(r);
    if (code) return code;
    const foci_status status = foci_layer_create(r->ctx, r->spec, &l, &r->layer);
    return status ? library_error(a, r->ctx, status, r->spec) : EXIT_OK;
}

static int make_plan(struct run_verb *r)
{
    const struct args *a = r->a;
    foci_problem      *p = &r->p;
    foci_status        status = foci_problem_parse(r->ctx, a->words[1], p);

    if (status) return library_error(a, r->ctx, status, NULL);
    assume_x(p);
    take_options(a, p);
    const int code = run_check_lists(r);
    if (code) return code;
    status = foci_plan_create(r->ctx, r->spec, p, &r->plan);
    return status ? library_error(a, r->ctx, status, r->spec) : EXIT_OK;
}

static int make(struct run_verb *r)
{
    const struct args *a = r->a;
    const bool         inside = layer_has_width(a->words[1]);

    if (inside && opt_flag(a, "width"))
        return usage_error(a,
                           "the problem \"%s\" has a width of its own: leave out "
                           "--width",
                           a->words[1]);
    if (inside || opt_flag(a, "width")) {
        char     *text = with_width(a);
        const int code = make_layer(r, text);
        free(text);
        return code;
    }
    if (opt_flag(a, "layer") || opt_flag(a, "biases"))
        return usage_error(a, "--%s needs --width W, which makes it a layer",
                           opt_flag(a, "layer") ? "layer" : "biases");
    return make_plan(r);
}

static int show(const struct run_verb *r)
{
    char *lines = run_text(r);
    int   code = EXIT_OK;

    if (r->a->json) {
        char *problem = run_problem_text(r);
        code = print_json(r->a, json_plan(r, problem, lines));
        free(problem);
    } else {
        fputs(lines, stdout);
    }
    free(lines);
    return code;
}

static int run(const struct args *a)
{
    struct run_verb r = { .a = a,
                          .spec = a->words[0],
                          .p = { FOCI_SIZED(foci_problem), .batch = 1, .heads = 1 } };

    r.ctx = open_device_ctx(a, (int)opt_int(a, "threads", 0));
    if (!r.ctx) return EXIT_FAILED;
    int code = run_lists_only(&r);
    if (!code) code = make(&r);
    if (!code) code = show(&r);
    run_lists_free(&r);
    foci_plan_free(r.plan);
    foci_layer_free(r.layer);
    foci_ctx_free(r.ctx);
    return code;
}

static const struct option options[] = {
    { .name = "dtype",
      .arg = "TYPE",
      .help = "type of the tensors: f32 (default), bf16 or f16",
      .kind = KIND_WORD,
      .words = "f32|bf16|f16" },
    { .name = "width",
      .arg = "W",
      .help = "a layer on hidden states so wide, with its projections",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = LAYER_WIDEST },
    { .name = "layer",
      .arg = "KIND",
      .help = "with --width: attention (default), gau or conv",
      .kind = KIND_WORD,
      .words = LAYER_KINDS },
    { .name = "biases", .help = "with --width: every projection adds one" },
    { .name = "train", .help = "plan for the backward pass as well" },
    { .name = "seed",
      .arg = "N",
      .help = "draw random blocks from this seed (default 0)",
      .kind = KIND_WHOLE,
      .max = MOST_WHOLE },
    { .name = "param",
      .arg = "NAME=FILE",
      .help = "a list that planning asks for, such as the layout of blocks",
      .kind = KIND_TEXT,
      .many = true },
    OPTION_PRECISION,
    OPTION_THREADS,
    OPTION_DEVICE,
    { 0 },
};

static const char *const examples[] = {
    "foci plan softmax b2h8n4096d64c",
    "foci plan '4*softmax logn + 4*relu2' h8n4096d64 --train",
    "foci plan 'pooled(block=16, levels=3)' h8n65536d64c",
    "foci plan softmax h8k2n512m4096d128 --dtype bf16 --json",
    "foci plan '7*fixed + 1*softmax' b4h8n1024 --width 512 --train",
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
        "all heads together.\n\n"
        "With --width, or w and a width before the c, it is that of a layer: d, if "
        "left "
        "out,\n"
        "is the width by heads, and m the rows of a source that gives keys and values.",
};
