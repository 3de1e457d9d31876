/* map.c -- foci map: which keys each query sees and how strongly, as a picture.
 *
 * The weights are those of the interpreter.  The pattern of a mechanism is seen best with
 * equal queries and keys, where only its own rules tell keys apart.  A mechanism that chooses
 * keys by content shows nothing there, so random data is tried first: if other pairs have
 * weights then, these are drawn.  Mechanisms that compute no weights have some nevertheless,
 * wherever o = A v.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/map.h"
#include "cli/picture.h"

enum { MAX_LEN = 1024, MAX_HEADS = 64, MAX_PAIRS = 1 << 24 };

/*
 * The weights
 */

static int check_options(const struct args *a)
{
    const char *out = opt_text(a, "out");

    if (!opt_text(a, "pattern"))
        return usage_error(
            a, "--pattern is missing; usage: foci map --pattern SPEC PROBLEM");
    if (out && !picture_name(out))
        return usage_error(
            a, "--out is '%s'; it takes a name that ends in .svg or .png", out);
    return EXIT_OK;
}

/* A picture is looked at whole, and its weights are all there at once. */
static int check_size(const struct args *a, const foci_problem *p)
{
    const char *text = a->words[0];

    if (p->batch != 1)
        return usage_error(a, "%s has a batch of %lld; a map shows one sequence, b1",
                           text, (long long)p->batch);
    if (p->len_q < 1 || p->len_k < 1 || p->len_q > MAX_LEN || p->len_k > MAX_LEN)
        return usage_error(
            a, "%s has %lld queries and %lld keys; a map takes 1 to %d of each", text,
            (long long)p->len_q, (long long)p->len_k, MAX_LEN);
    if (p->heads > MAX_HEADS || p->heads * p->len_q * p->len_k > MAX_PAIRS)
        return usage_error(
            a,
            "%s has %lld heads of %lld x %lld pairs; a map takes up to %d "
            "heads and %d pairs in all",
            text, (long long)p->heads, (long long)p->len_q, (long long)p->len_k,
            MAX_HEADS, MAX_PAIRS);
    return EXIT_OK;
}

static int make_plan(struct map *m)
{
    struct run_verb *r = &m->run;
    foci_status      status = foci_problem_parse(r->ctx, m->a->words[0], &r->p);

    if (status) return library_error(m->a, r->ctx, status, NULL);
    const int code = check_size(m->a, &r->p);
    if (code) return code;
    r->p.seed = (uint64_t)opt_int(m->a, "seed", 0);
    assume_x(&r->p);
    int given = run_check_lists(r);
    if (!given) given = run_words(r);
    if (given) return given;
    status = foci_plan_create(r->ctx, r->spec, &r->p, &r->plan);
    return status ? library_error(m->a, r->ctx, status, r->spec) : EXIT_OK;
}

static float *make_data(size_t n, bool random, uint64_t seed)
{
    if (random) return bench_draw(FOCI_F32, n, seed);
    float *data = need(n, sizeof *data);
    for (size_t i = 0; i < n; i++)
        data[i] = 1;
    return data;
}

/* Words are there where they are read, and are those of a sentence. */
static int check_words(const struct map *m, foci_io io)
{
    static const _Alignas(64) float some[16];
    const struct run_verb          *r = &m->run;
    char                            text[512];

    io.o = io.work = (void *)some;
    if (!foci_io_check(r->plan, &io, NULL, text, sizeof text)) return EXIT_OK;
    if (r->words.path) return failure(m->a, "%s: %s", r->spec, text);
    int32_t *const zeros = need((size_t)r->p.len_q, sizeof *zeros);
    io.words = zeros;
    const bool missing = !foci_io_check(r->plan, &io, NULL, text, sizeof text);
    free(zeros);
    if (!missing) return EXIT_OK;
    return usage_error(m->a, "--param words=FILE is missing, and %s reads words",
                       r->spec);
}

static int weigh(const struct map *m, bool random, float *weights)
{
    const struct run_verb *r = &m->run;
    const uint64_t         seed = 3 * (uint64_t)opt_int(m->a, "seed", 0);
    foci_problem           p = { FOCI_SIZED(foci_problem) };

    foci_plan_get_problem(r->plan, &p);
    const size_t rows = (size_t)p.len_q, heads = (size_t)p.heads;
    const size_t keys = (size_t)(p.len_k * p.kv_heads);
    float       *q = make_data(rows * heads * (size_t)p.dim_qk, random, seed);
    float       *k = make_data(keys * (size_t)p.dim_qk, random, seed + 1);
    float       *x = make_data(rows * (size_t)p.dim_x, random, seed + 2);
    float       *v = need(keys * (size_t)p.dim_v, sizeof *v);

    float        *o = need(rows * heads * (size_t)p.dim_v, sizeof *o);
    const foci_io io = { FOCI_SIZED(foci_io),
                         .q = q,
                         .k = k,
                         .v = v,
                         .x = x,
                         .o = o,
                         .words = r->words.ints,
                         .params = r->params,
                         .work = need(foci_plan_work_bytes(r->plan), 1) };
    bool          found;
    int           code = check_words(m, io);
    foci_status   status = FOCI_OK;
    /* What is causal needs statistics; others find their own. */
    if (!code && p.flags & FOCI_FLAG_CAUSAL) code = run_calibrate(r, &io, NULL, &found);
    if (!code) status = foci_ref_weights(r->plan, &io, weights);
    free(q);
    free(k);
    free(x);
    free(v);
    free(o);
    free(io.work);
    if (code || !status) return code;
    return failure(m->a, "%s: there are no weights to draw: %s", r->spec,
                   status == FOCI_ERR_UNSUP
                       ? "its output is not one matrix times the values"
                       : foci_status_text(status));
}

/* Do other pairs have weights?  What is next to nothing may be nothing elsewhere. */
static bool differ(const float *x, const float *y, size_t n)
{
    const float little = 1e-9F;

    for (size_t i = 0; i < n; i++)
        if ((x[i] == 0 && fabsf(y[i]) > little) || (y[i] == 0 && fabsf(x[i]) > little))
            return true;
    return false;
}

static int compute(struct map *m)
{
    const foci_problem *p = &m->run.p;
    const size_t        n = (size_t)(p->heads * p->len_q * p->len_k);
    const int           asked = opt_word(m->a, "data", -1);

    m->weights = need(n, sizeof *m->weights);
    m->random = asked != 0;
    int code = weigh(m, m->random, m->weights);
    if (code || asked >= 0) return code;

    float *alike = need(n, sizeof *alike);
    code = weigh(m, false, alike);
    m->random = differ(m->weights, alike, n);
    if (!m->random) memcpy(m->weights, alike, n * sizeof *alike);
    free(alike);
    return code;
}

/*
 * What is seen
 */

static struct panel count(const float *w, int64_t len_q, int64_t len_k)
{
    struct panel p = { .weights = w, .few = len_k };

    for (int64_t i = 0; i < len_q; i++) {
        int64_t keys = 0;
        for (int64_t j = 0; j < len_k; j++, w++) {
            const double x = fabs((double)*w);
            if (!(x > 0)) continue;
            keys++;
            p.negative += *w < 0;
            if (p.low == 0 || x < p.low) p.low = x;
            if (x > p.high) p.high = x;
        }
        p.pairs += keys;
        if (keys < p.few) p.few = keys;
        if (keys > p.many) p.many = keys;
    }
    return p;
}

static void make_panels(struct map *m)
{
    const foci_problem *p = &m->run.p;
    const size_t        pairs = (size_t)(p->len_q * p->len_k);
    char               *full = plan_text(foci_plan_spec, m->run.plan);

    m->labels = map_labels(m->run.spec, full, p->heads);
    m->panels = need((size_t)p->heads, sizeof *m->panels);
    for (int64_t h = 0; h < p->heads; h++) {
        const float  *w = m->weights + (size_t)h * pairs;
        struct panel *last = h ? &m->panels[m->n_panels - 1] : NULL;
        if (last && strcmp(last->label, m->labels[h]) == 0 &&
            memcmp(last->weights, w, pairs * sizeof *w) == 0) {
            last->heads++;
            continue;
        }
        last = &m->panels[m->n_panels++];
        *last = count(w, p->len_q, p->len_k);
        last->first = h;
        last->heads = 1;
        last->label = m->labels[h];
    }
    free(full);
}

static double density(const struct map *m, const struct panel *p)
{
    return (double)p->pairs / (double)(m->run.p.len_q * m->run.p.len_k);
}

static json_t *json_map(const struct map *m)
{
    char    problem[128];
    char   *spec = plan_text(foci_plan_spec, m->run.plan);
    json_t *list = json_array();
    int64_t pairs = 0;

    foci_problem_print(&m->run.p, problem, sizeof problem);
    for (int i = 0; i < m->n_panels; i++) {
        const struct panel *p = &m->panels[i];
        pairs += p->heads * p->pairs;
        json_array_append_new(
            list, json_pack("{s:I, s:I, s:s, s:I, s:I, s:f, s:I, s:I, s:f, s:f}",
                            "first_head", (json_int_t)p->first, "heads",
                            (json_int_t)p->heads, "mechanism", p->label, "pairs",
                            (json_int_t)p->pairs, "below_zero", (json_int_t)p->negative,
                            "density", density(m, p), "fewest_keys", (json_int_t)p->few,
                            "most_keys", (json_int_t)p->many, "least_weight", p->low,
                            "largest_weight", p->high));
    }
    const int64_t all = m->run.p.heads * m->run.p.len_q * m->run.p.len_k;
    json_t       *o =
        json_pack("{s:s, s:s, s:s, s:I, s:f, s:o}", "spec", spec, "problem", problem,
                  "data", m->random ? "random" : "alike", "pairs", (json_int_t)pairs,
                  "density", (double)pairs / (double)all, "maps", list);
    free(spec);
    return o;
}

static void print_map(const struct map *m)
{
    static const char *const heads[] = {
        "heads", "pairs", "density", "keys a query", "weights of a pair", "mechanism"
    };
    struct output_table *t = table_headed("lrrlll");

    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < m->n_panels; i++) {
        const struct panel *p = &m->panels[i];
        if (p->heads > 1)
            table_cell(t, "%lld to %lld", (long long)p->first,
                       (long long)(p->first + p->heads - 1));
        else
            table_cell(t, "%lld", (long long)p->first);
        table_cell(t, "%lld", (long long)p->pairs);
        table_cell(t, "%.3g %%", 100 * density(m, p));
        table_cell(t, "%lld to %lld", (long long)p->few, (long long)p->many);
        if (p->negative)
            table_cell(t, "+-%.3g to +-%.3g", p->low, p->high);
        else
            table_cell(t, "%.3g to %.3g", p->low, p->high);
        table_cell(t, "%s", p->label);
    }
    table_print(t, stdout);
    table_free(t);
}

/*
 * The verb
 */

static int draw(const struct map *m)
{
    const char *out = opt_text(m->a, "out");
    if (!out) return EXIT_OK;

    hold_signals();
    const foci_status status = map_draw(m, out);
    release_signals();
    return status ? library_error(m->a, m->run.ctx, status, NULL) : EXIT_OK;
}

static void release(struct map *m)
{
    for (int64_t h = 0; m->labels && h < m->run.p.heads; h++)
        free(m->labels[h]);
    free(m->labels);
    free(m->panels);
    free(m->weights);
    array_free(&m->run.words);
    free(m->run.params);
    free(m->run.dparams);
    free(m->run.given);
    run_lists_free(&m->run);
    foci_plan_free(m->run.plan);
    foci_ctx_free(m->run.ctx);
}

static int run(const struct args *a)
{
    struct map m = { .a = a,
                     .run = { .a = a,
                              .spec = opt_text(a, "pattern"),
                              .p = { FOCI_SIZED(foci_problem) } } };

    int code = check_options(a);
    if (code) return code;
    m.run.ctx = open_ctx(a, 0);
    if (!m.run.ctx) return EXIT_FAILED;

    code = run_lists(&m.run);
    if (!code) code = make_plan(&m);
    if (!code) code = run_params(&m.run);
    if (!code) code = compute(&m);
    if (!code) {
        make_panels(&m);
        code = draw(&m);
    }
    if (!code && a->json)
        code = print_json(a, json_map(&m));
    else if (!code)
        print_map(&m);
    release(&m);
    return code;
}

static const struct option options[] = {
    { .name = "pattern",
      .arg = "SPEC",
      .help = "the spec whose weights are drawn",
      .kind = KIND_TEXT },
    { .name = "out",
      .arg = "FILE",
      .help = "where the picture goes: a name that ends in .svg or .png",
      .kind = KIND_TEXT },
    { .name = "support", .help = "draw which pairs have a weight, not how large it is" },
    { .name = "data",
      .arg = "KIND",
      .help =
          "q and k: alike, or random (default random if that changes who sees whom)",
      .kind = KIND_WORD,
      .words = "alike|random" },
    { .name = "seed",
      .arg = "N",
      .help = "draw random q and k, and all that specs draw, from this (default 0)",
      .kind = KIND_WHOLE,
      .max = MOST_WHOLE },
    { .name = "param",
      .arg = "NAME=FILE",
      .help = "a parameter, for each head or for all; a list that planning asks for; "
              "words",
      .kind = KIND_TEXT,
      .many = true },
    { 0 },
};

static const char *const examples[] = {
    "foci map --pattern softmax n64d16c --out softmax.svg",
    "foci map --pattern '2*softmax logn + 2*relu2' h4n64d16 --out heads.png",
    "foci map --pattern relu2 n32m48d16 --data random --seed 7 --out cross.svg",
    NULL,
};

const struct verb verb_map = {
    .name = "map",
    .run = run,
    .summary = "a picture of which keys each query sees, and how strongly",
    .usage = "--pattern SPEC PROBLEM",
    .min_words = 1,
    .max_words = 1,
    .options = options,
    .examples = examples,
    .notes =
        "PROBLEM is h8n64m64d16c: heads, queries, keys, width, causal; see foci plan "
        "--help.\n"
        "Weights are computed by the written-out formulas, for up to 1024 queries "
        "and keys.\n"
        "Neighbouring heads with the same weights are drawn once.  Where weights have "
        "signs\n"
        "their size is drawn.  Without --out the numbers are printed only.",
};
