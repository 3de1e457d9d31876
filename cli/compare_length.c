/* compare_length.c -- foci compare --length: time, memory and error of mechanisms as the
 * length grows, where one becomes faster than another, and what to use; nothing is trained.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/compare_length.h"
#include "cli/report.h"

/* One of each family: windows, random and global keys, hashes, landmarks; features of a
 * kernel, random features, recurrences. */
static const char *const default_specs[] = { "softmax",   "local",    "bigbird",
                                             "lsh",       "nystrom",  "linear",
                                             "performer", "retention" };

enum { N_DEFAULT = sizeof default_specs / sizeof *default_specs };

/*
 * The context counts what it allocates.
 */

static void *metered(void *user, void *old, size_t old_bytes, size_t new_bytes)
{
    enum { LINE = 64 };
    struct length_meter *m = user;
    void                *block = NULL;

    if (new_bytes) {
        if (new_bytes > SIZE_MAX - LINE) return NULL;
        block = aligned_alloc(LINE, (new_bytes + LINE - 1) / LINE * LINE);
        if (!block) return NULL;
        m->now += new_bytes;
        if (m->now > m->peak) m->peak = m->now;
    }
    if (old) {
        if (block) memcpy(block, old, old_bytes < new_bytes ? old_bytes : new_bytes);
        free(old);
        m->now -= old_bytes;
    }
    return block;
}

static int open_contexts(struct lengths *w)
{
    const int          threads = (int)opt_int(w->a, "threads", 0);
    const foci_options options = { FOCI_SIZED(foci_options), .threads = threads,
                                   .alloc = metered, .user = w->meter,
                                   .device = opt_text(w->a, "device") };

    if (foci_ctx_create(&options, &w->ctx))
        return failure(w->a, "%s", foci_errmsg(NULL));
    w->judge = open_ctx(w->a, threads);
    return w->judge ? EXIT_OK : EXIT_FAILED;
}

/*
 * Options
 */

static int bad_lengths(const struct args *a)
{
    return usage_error(a,
                       "--length is '%s'; it takes up to %d whole numbers from 1 to %d "
                       "with commas, as in 1k,4k,16k (k: 1024)",
                       opt_text(a, "length"), LENGTHS_MOST, COMPARE_LONGEST);
}

static int upward(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Each once, upward. */
static void sort_lengths(struct lengths *w)
{
    int n = 0;

    qsort(w->length, (size_t)w->n_lengths, sizeof *w->length, upward);
    for (int i = 0; i < w->n_lengths; i++)
        if (!n || w->length[n - 1] != w->length[i]) w->length[n++] = w->length[i];
    w->n_lengths = n;
}

static int read_lengths(struct lengths *w)
{
    const char *text = opt_text(w->a, "length");

    for (char *end;; text = end + 1) {
        if (*text < '0' || *text > '9' || w->n_lengths == LENGTHS_MOST)
            return bad_lengths(w->a);
        errno = 0;
        const long long n = strtoll(text, &end, 10);
        const int       shift = *end == 'k' ? 10 : *end == 'm' ? 20 : 0;
        end += shift > 0;
        if (errno || n < 1 || n > COMPARE_LONGEST >> shift || (*end && *end != ','))
            return bad_lengths(w->a);
        w->length[w->n_lengths++] = (int64_t)n << shift;
        if (!*end) break;
    }
    sort_lengths(w);
    return EXIT_OK;
}

static int read_problem(struct lengths *w)
{
    const struct args *a = w->a;
    const int64_t heads = opt_int(a, "heads", 8), dim = opt_int(a, "dim", 64 * heads);
    const bool    causal = opt_flag(a, "causal") || w->pass == PASS_STEP;
    const bool    fast = opt_word(a, "precision", 0) == 1;
    const bool    back = w->pass == PASS_BWD || w->pass == PASS_BOTH;

    if (dim % heads)
        return usage_error(a, "--dim %lld cannot be divided among %lld heads",
                           (long long)dim, (long long)heads);
    w->problem = (foci_problem){
        FOCI_SIZED(foci_problem),
        .dtype = opt_word(a, "dtype", 0) ? FOCI_BF16 : FOCI_F32,
        .flags = (causal ? FOCI_FLAG_CAUSAL : 0) | (fast ? FOCI_FLAG_FAST : 0) |
                 (back ? FOCI_FLAG_TRAIN : 0),
        .batch = 1,
        .heads = heads,
        .dim_qk = dim / heads,
        .dim_x = dim,
    };
    return EXIT_OK;
}

static bool has_spec(const struct lengths *w, const char *spec)
{
    for (int i = 0; i < w->n_specs; i++)
        if (strcmp(w->specs[i], spec) == 0) return true;
    return false;
}

/* Softmax, which the others are held against, and those given, or the default ones. */
static int read_specs(struct lengths *w)
{
    int n = 0;

    while (opt_nth(w->a, "attention", n))
        n++;
    const bool given = n > 0;
    if (!given) n = N_DEFAULT;
    w->specs = need((size_t)n + 1, sizeof *w->specs);
    w->specs[w->n_specs++] = "softmax";
    for (int i = 0; i < n; i++) {
        const char *spec = given ? opt_nth(w->a, "attention", i) : default_specs[i];
        if (strcmp(spec, "softmax") == 0) continue;
        if (has_spec(w, spec))
            return usage_error(w->a, "--attention '%s' is given twice", spec);
        w->specs[w->n_specs++] = spec;
    }
    return EXIT_OK;
}

/*
 * Plans
 */

foci_status length_plan(const struct lengths *w, const char *spec, int64_t length,
                        struct bench_case *c, foci_plan **plan)
{
    const struct run_verb none = { .a = w->a, .ctx = w->ctx };

    *plan = NULL;
    *c = (struct bench_case){ .text = spec,
                              .spec = need(strlen(spec) + 1, 1),
                              .problem = w->problem,
                              .pass = w->pass };
    strcpy(c->spec, spec);
    c->problem.len_k = length;
    c->problem.len_q = w->pass == PASS_STEP ? 1 : length;
    const foci_status status = bench_lists(&none, c);
    return status ? status : bench_plan(w->ctx, c, plan);
}

/* Whether the spec can be planned at a length, and stepped through where it has to be. */
static foci_status try_spec(const struct lengths *w, const char *spec, int64_t length)
{
    struct bench_case c;
    foci_plan        *plan;
    foci_pool        *pool = NULL;
    foci_status       status = length_plan(w, spec, length, &c, &plan);

    if (!status && w->pass == PASS_STEP && !on_device(w->ctx))
        status = foci_pool_create(plan, 0, &pool);
    foci_pool_free(pool);
    foci_plan_free(plan);
    free(c.spec);
    bench_lists_free(&c);
    return status;
}

/* Refuse, before time is spent, what no length can be planned at; of the default ones such
 * are left out. */
static int check_specs(struct lengths *w)
{
    const bool given = opt_text(w->a, "attention");
    int        n = 0;

    for (int s = 0; s < w->n_specs; s++) {
        foci_status status = FOCI_ERR_UNSUP;
        for (int i = 0; i < w->n_lengths && status; i++)
            status = try_spec(w, w->specs[s], w->length[i]);
        if (status && (given || status != FOCI_ERR_UNSUP))
            return library_error(w->a, w->ctx, status, w->specs[s]);
        if (status)
            note(w->a, "%s is left out: %s", w->specs[s], foci_errmsg(w->ctx));
        else
            w->specs[n++] = w->specs[s];
    }
    w->n_specs = n;
    return EXIT_OK;
}

/*
 * The verb
 */

static int measure_all(struct lengths *w)
{
    struct progress progress;
    int             code = EXIT_OK;

    progress_begin(&progress, w->a, "lengths", w->n_lengths);
    for (int i = 0; i < w->n_lengths && !code; i++)
        code = length_measure(w, i, &progress);
    progress_end(&progress);
    return code;
}

static int compare(struct lengths *w)
{
    const char *csv = opt_text(w->a, "csv");

    int code = csv ? check_output(w->a, csv) : EXIT_OK;
    if (!code) code = read_lengths(w);
    if (!code) code = read_problem(w);
    if (!code) code = read_specs(w);
    if (!code) code = open_contexts(w);
    if (!code) code = check_specs(w);
    if (code) return code;
    w->cells = need((size_t)(w->n_specs * w->n_lengths), sizeof *w->cells);
    code = length_lines_open(w);
    if (!code) code = measure_all(w);
    if (!code && csv) code = length_csv(w, csv);
    if (!code) code = length_show(w);
    if (code || !w->path) return code;
    return report_of_lengths(w->a, w->judge, opt_text(w->a, "out"));
}

int compare_length(const struct args *a)
{
    struct length_meter meter = { 0 };
    struct lengths      w = { .a = a,
                              .meter = &meter,
                              .pass = (enum pass)opt_word(a, "pass", PASS_FWD),
                              .rounds = (int)opt_int(a, "repeat", 5),
                              .limit = opt_real(a, "time-limit", 60) };
    const int           code = compare(&w);

    for (int i = 0; w.cells && i < w.n_specs * w.n_lengths; i++)
        free(w.cells[i].skipped);
    free(w.cells);
    free(w.specs);
    free(w.path);
    json_decref(w.lines);
    foci_ctx_free(w.ctx);
    foci_ctx_free(w.judge);
    return code;
}
