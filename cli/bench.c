/* bench.c -- `foci bench [CASE...]`: cases are read, planned and measured.
 *
 * The peak is measured before and after each case, in the same threads; the better of the
 * two is the ceiling that shares refer to.  The peak of bytes is measured after the case, on
 * a working set as large as the case's, so that both are served by the same cache.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const char *const dtypes[] = { "f32", "f32fast", "bf16" };
static const char *const passes[] = { "fwd", "bwd", "both", "step" };

static int find(const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0) return i;
    return -1;
}

/* Cut the text at its last slash; NULL if there is none. */
static char *cut(char *text)
{
    char *slash = strrchr(text, '/');
    if (!slash) return NULL;
    *slash = '\0';
    return slash + 1;
}

/* One with a width is a layer's. */
static int parse_problem(const struct args *a, foci_ctx *ctx, const char *problem,
                         struct bench_case *c)
{
    c->is_layer = layer_has_width(problem);
    if (c->is_layer) {
        bench_layer_kind(c);
        return layer_parse(a, ctx, problem, &c->problem, &c->layer);
    }
    const foci_status status = foci_problem_parse(ctx, problem, &c->problem);
    if (status) return library_error(a, ctx, status, c->text);
    bench_layer_kind(c);
    if (c->layer.kind != FOCI_LAYER_ATTENTION)
        return usage_error(a,
                           "case \"%s\": %s is a kind of layers, whose problem has a "
                           "width, for instance b4n1024w512",
                           c->text, layer_kind_name(c->layer.kind));
    assume_x(&c->problem);
    return EXIT_OK;
}

static int parse(const struct args *a, foci_ctx *ctx, const char *text,
                 struct bench_case *c)
{
    const size_t n = strlen(text) + 1;
    *c = (struct bench_case){ .text = text,
                              .spec = need(n, 1),
                              .problem = { FOCI_SIZED(foci_problem) },
                              .layer = { FOCI_SIZED(foci_layer_problem) } };
    memcpy(c->spec, text, n);
    const char *pass = cut(c->spec);
    const char *dtype = pass ? cut(c->spec) : NULL;
    const char *problem = dtype ? cut(c->spec) : NULL;
    if (!problem)
        return usage_error(a,
                           "case \"%s\": a case is SPEC/PROBLEM/DTYPE/PASS, for "
                           "instance softmax/h8n2048d64c/bf16/fwd",
                           text);
    const int p = find(pass, passes, 4), d = find(dtype, dtypes, 3);
    if (p < 0)
        return usage_error(
            a, "case \"%s\": pass \"%s\" is none of fwd, bwd, both, step", text, pass);
    if (d < 0)
        return usage_error(a, "case \"%s\": dtype \"%s\" is none of f32, f32fast, bf16",
                           text, dtype);

    c->pass = (enum pass)p;
    const int code = parse_problem(a, ctx, problem, c);
    if (code) return code;
    c->problem.dtype = d == 2 ? FOCI_BF16 : FOCI_F32;
    if (d == 1) c->problem.flags |= FOCI_FLAG_FAST;
    if (c->pass == PASS_BWD || c->pass == PASS_BOTH)
        c->problem.flags |= FOCI_FLAG_TRAIN;
    if (c->pass == PASS_STEP) c->problem.flags |= FOCI_FLAG_CAUSAL;
    if (c->pass == PASS_STEP && c->problem.len_q > c->problem.len_k)
        return usage_error(a,
                           "case \"%s\": m is %lld; after a step of %lld tokens there "
                           "are at least as many keys",
                           text, (long long)c->problem.len_k,
                           (long long)c->problem.len_q);
    return EXIT_OK;
}

/* A case that cannot be planned, or finds no memory, is refused before time is spent on
 * others. */
static int try_plan(const struct args *a, foci_ctx *ctx, const struct bench_case *c)
{
    foci_plan  *plan = NULL;
    foci_layer *layer = NULL;
    double      bytes = 0;
    foci_status status =
        c->is_layer ? bench_layer_create(ctx, c, &layer) : bench_plan(ctx, c, &plan);

    if (status == FOCI_OK)
        status = layer ? bench_layer_bytes(layer, c, &bytes)
                       : bench_plan_bytes(plan, c, on_device(ctx), NULL, &bytes);
    foci_plan_free(plan);
    foci_layer_free(layer);
    return status == FOCI_OK ? bench_refuse_memory(a, c, bytes)
                             : library_error(a, ctx, status, c->text);
}

static int prepare_product(const struct args *a, foci_ctx *ctx, const char *text,
                           struct bench_case *c)
{
    const int code = bench_product_parse(a, text, c);
    return code ? code : bench_refuse_memory(a, c, bench_product_bytes(ctx, c));
}

/* Without cases: softmax in all types and directions, other weights, then supports that
 * leave out most pairs, where sequences are long enough for that to matter, and layers. */
static const char *const default_cases[] = {
    "softmax/h8n2048d64/bf16/fwd",
    "softmax/h8n2048d64c/bf16/fwd",
    "softmax/h8n2048d128/bf16/fwd",
    "softmax/h8n2048d64/bf16/bwd",
    "softmax/h8n2048d64/f32fast/fwd",
    "softmax/h8n2048d64/f32/fwd",
    "softmax/h8n2048d64/f32/bwd",
    "softmax rope/h8n2048d64/bf16/fwd",
    "l2norm/h8n2048d64/bf16/fwd",
    "relu2/h8n2048d64/bf16/fwd",
    "local/h8n8192d64/bf16/fwd",
    "strided(stride=128)/h8n8192d64/bf16/fwd",
    "block/h8n8192d64/bf16/fwd",
    "lsh(buckets=256, rounds=4)/h8n8192d64/bf16/fwd",
    "segmented(length=64, back=1)/h8n8192d64/bf16/fwd",
    "pooled(block=64)/h8n8192d64/bf16/fwd",
    "softmax/b4h8n1024w512/bf16/both",
    "7*fixed + 1*softmax/b4h8n1024w512/bf16/both",
};

/* Seconds of each case in a file that --json wrote. */
static int compare_with(const struct args *a, const char *path, struct bench_row *rows,
                        int n)
{
    json_error_t error;
    FILE        *in = fopen(path, "rb");

    if (!in)
        return failure(a, "--compare %s: cannot be opened: %s", path, strerror(errno));
    errno = 0;
    json_t   *file = json_loadf(in, 0, &error);
    const int reason = ferror(in) ? errno : 0;
    fclose(in);
    if (!file && reason)
        return failure(a, "--compare %s: cannot be read: %s", path, strerror(reason));
    if (!file)
        return failure(a, "--compare %s: is not what bench --json writes: %s", path,
                       error.text);

    const json_t *cases = json_object_get(file, "cases");
    const json_t *old;
    size_t        j;
    json_array_foreach(cases, j, old)
    {
        const char *text = json_string_value(json_object_get(old, "case"));
        for (int i = 0; text && i < n; i++)
            if (strcmp(text, rows[i].c.text) == 0)
                rows[i].old = json_number_value(json_object_get(old, "seconds"));
    }
    const bool ok = json_is_array(cases);
    json_decref(file);
    return ok ? EXIT_OK
              : failure(a, "--compare %s: no list \"cases\", as bench --json writes",
                        path);
}

static int measure(const struct args *a, foci_ctx *ctx, double working_set,
                   foci_machine *machine)
{
    *machine = (foci_machine){ FOCI_SIZED(foci_machine), .working_set = working_set };
    const foci_status status = foci_ctx_measure(ctx, machine);
    return status == FOCI_OK ? EXIT_OK : library_error(a, ctx, status, NULL);
}

/* Bytes that a repetition touches: the second of two passes finds what the first read. */
static double working_set(const struct bench_row *row)
{
    return row->r.bytes / (row->c.pass == PASS_BOTH ? 2 : 1);
}

static int run_all(const struct args *a, foci_ctx *ctx, struct bench_row *rows, int n)
{
    const int    reps = (int)opt_int(a, "reps", 20);
    const double time = opt_real(a, "time", 0.5);
    foci_machine last;
    int          status = measure(a, ctx, 1, &last);

    struct progress progress;
    progress_begin(&progress, a, "cases", n);
    for (int i = 0; i < n && status == EXIT_OK; i++) {
        progress_at(&progress, i, rows[i].c.text);
        rows[i].before = last;
        status = rows[i].c.product.m
                     ? bench_product(a, ctx, &rows[i].c, reps, time, &rows[i].r)
                     : bench_run(a, ctx, &rows[i].c, reps, time, &rows[i].r);
        if (status == EXIT_OK) status = measure(a, ctx, working_set(&rows[i]), &last);
        rows[i].after = last;
    }
    progress_end(&progress);
    return status;
}

/* A list that no case asks for was meant for one. */
static int check_lists(const struct run_verb *given, const struct bench_row *rows, int n)
{
    for (int64_t l = 0; l < given->p.n_lists; l++) {
        bool found = false;
        for (int i = 0; i < n; i++)
            found |= bench_has_list(&rows[i].c, given->lists[l].name);
        if (!found)
            return usage_error(given->a, "--param %s: no case asks for such a list",
                               given->lists[l].name);
    }
    return EXIT_OK;
}

int bench_prepare(const struct run_verb *given, const char *text, struct bench_case *c)
{
    int status = parse(given->a, given->ctx, text, c);
    if (status) return status;
    const foci_status lists = bench_lists(given, c);
    return lists ? library_error(given->a, given->ctx, lists, text)
                 : try_plan(given->a, given->ctx, c);
}

void bench_case_free(struct bench_case *c)
{
    free(c->spec);
    bench_lists_free(c);
}

/* Rows of cases that are ready to be measured. */
static int prepare(const struct args *a, foci_ctx *ctx, const struct run_verb *given,
                   const char *const *texts, struct bench_row *rows, int n)
{
    const char *old = opt_text(a, "compare");
    int         code = EXIT_OK;

    for (int i = 0; i < n && !code; i++)
        code = bench_is_product(texts[i])
                   ? prepare_product(a, ctx, texts[i], &rows[i].c)
                   : bench_prepare(given, texts[i], &rows[i].c);
    if (!code) code = check_lists(given, rows, n);
    if (!code && old) code = compare_with(a, old, rows, n);
    if (!code && opt_text(a, "csv")) code = check_output(a, opt_text(a, "csv"));
    return code;
}

static int bench_cases(const struct args *a, foci_ctx *ctx, const char *const *texts,
                       int n)
{
    struct run_verb   given = { .a = a, .ctx = ctx };
    struct bench_row *rows = need((size_t)n, sizeof *rows);

    int code = run_lists_only(&given);
    if (!code) code = prepare(a, ctx, &given, texts, rows, n);
    if (!code) code = run_all(a, ctx, rows, n);
    if (!code) {
        bench_compare_rows(rows, n, opt_text(a, "baseline"));
        code = bench_show(a, ctx, rows, n);
    }
    for (int i = 0; i < n; i++) {
        bench_case_free(&rows[i].c);
        bench_release(&rows[i].r);
    }
    free(rows);
    run_lists_free(&given);
    return code;
}

/* All cases, with the baseline before them if it is none of them; to be freed. */
static const char **with_baseline(const char *const *texts, const char *base, int *n)
{
    const char **all = need((size_t)*n + 1, sizeof *all);
    bool         among = !base;

    for (int i = 0; i < *n && !among; i++)
        among = strcmp(texts[i], base) == 0;
    if (!among) all[0] = base;
    memcpy(all + !among, texts, (size_t)*n * sizeof *all);
    *n += !among;
    return all;
}

static int run(const struct args *a)
{
    foci_ctx *ctx = open_device_ctx(a, (int)opt_int(a, "threads", 0));
    if (!ctx) return EXIT_FAILED;

    enum { N_DEFAULT = sizeof default_cases / sizeof *default_cases };
    int          n = a->n_words ? a->n_words : N_DEFAULT;
    const char **all = with_baseline(a->n_words ? a->words : default_cases,
                                     opt_text(a, "baseline"), &n);
    const int status = bench_cases(a, ctx, all, n);
    free(all);
    foci_ctx_free(ctx);
    return status;
}

static const struct option options[] = {
    OPTION_THREADS,
    OPTION_DEVICE,
    { .name = "reps",
      .arg = "N",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 100000,
      .help = "repetitions of each case at least (default 20)" },
    { .name = "time",
      .arg = "S",
      .kind = KIND_REAL,
      .min = 0,
      .max = 3600,
      .help = "seconds of each case at least (default 0.5)" },
    { .name = "param",
      .arg = "NAME=FILE",
      .kind = KIND_TEXT,
      .many = true,
      .help = "a list that planning asks for, instead of one made up" },
    { .name = "baseline",
      .arg = "CASE",
      .kind = KIND_TEXT,
      .help = "show how many times its tokens a second each case has" },
    { .name = "compare",
      .arg = "FILE",
      .kind = KIND_TEXT,
      .help = "show the speed-up over what --json wrote to FILE" },
    { .name = "markdown", .help = "print the table in Markdown, and no plans" },
    { .name = "csv",
      .arg = "FILE",
      .kind = KIND_TEXT,
      .help = "all that is measured of each case as .csv too" },
    { 0 },
};

static const char *const examples[] = {
    "foci bench",
    "foci bench softmax/h8n2048d64c/bf16/fwd relu2/n4096d128/f32/both",
    "foci bench 'local(window=256) rope/h8n16384d64/bf16/both'",
    "foci bench lsh/n1m65536d64/bf16/step",
    "foci bench softmax/b4h8n1024w512/bf16/both 'gau(relu2)/b4n1024w512/bf16/fwd'",
    "foci bench product/m4096n1024k1024/bf16/nn product/m1n4096k4096/f32/nt",
    "foci bench --json > old.json; foci bench --compare old.json",
    "foci bench linear/h8n8192d64c/bf16/fwd --baseline softmax/h8n8192d64c/bf16/fwd",
    NULL,
};

const struct verb verb_bench = {
    .name = "bench",
    .run = run,
    .summary = "time cases: rates, share of the measured peak, memory",
    .usage = "[CASE...]",
    .max_words = -1,
    .options = options,
    .examples = examples,
    .notes =
        "A case is SPEC/PROBLEM/DTYPE/PASS: DTYPE f32, f32fast (bf16 products on f32\n"
        "tensors) or bf16, PASS fwd, bwd, both or step (decoding: n new tokens, after\n"
        "which each of b states has m keys).  Rates are of the median; the peak is\n"
        "that of products in registers, measured before and after each case, and the\n"
        "rate of bytes that of reading or copying as many of them over and over; the\n"
        "density is the share of the pairs that are seen.  Tokens a second are "
        "queries,\n"
        "the new ones of steps.  A case that needs more memory than there is is "
        "refused\n"
        "before any is measured.  Lists are made\n"
        "up where none are given: layouts of which a quarter is seen, 16 tokens "
        "spread\n"
        "evenly.  Words, where they are read, are of four tokens.\n\n"
        "A problem with a width, b4h8n1024w512, is that of a layer with its "
        "projections; SPEC\n"
        "may be gau(SPEC) or conv(SPEC) then, for layers of these kinds.\n\n"
        "A case product/mMnNkK/DTYPE/FORM is a product of an M x K and a K x N matrix, "
        "as\n"
        "layers are made of; FORM (nn, tn, nt, tt) says which are stored the other "
        "way\n"
        "round.",
};
