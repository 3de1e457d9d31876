/* compare_sentences.c -- whether another test set would say the same: tests over the examples
 * of the test set, beside the interval over seeds.
 *
 * Counts of an example (n-grams that match, labels that were hit) are summed over the seeds
 * of an arm, so one test speaks of the arm and not of one of its runs.  They are read from
 * the files that foci eval --outputs wrote.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/comparison.h"
#include "foci/stats.h"

/* Counts of all examples, summed over files. */
struct counts {
    double *sum; /* [n][each] */
    int64_t n, each;
};

static int64_t put(const json_t *from, const char *key, double *to)
{
    const json_t *value = json_object_get(from, key);
    size_t        i;
    json_t       *one;

    if (!json_is_array(value)) {
        *to = json_number_value(value);
        return 1;
    }
    json_array_foreach(value, i, one) { to[i] = json_number_value(one); }
    return (int64_t)json_array_size(value);
}

/* The counts that a metric is computed from, in the order of foci/stats.h; 0: the line has
 * none. */
static int64_t counts_of(const json_t *line, const char *metric, double *to)
{
    static const char *const bleu[] = { "match", "total", "length", "reference" };
    static const char *const chrf[] = { "translation", "reference", "match" };
    const bool               is_bleu = !strcmp(metric, "bleu");
    const json_t            *from = json_object_get(line, is_bleu ? "bleu" : "chrf");
    const char *labels = json_object_get(line, "labels") ? "labels" : "tokens";
    int64_t     n = 0;

    if (is_bleu || !strcmp(metric, "chrf2")) {
        for (int i = 0; from && i < (is_bleu ? 4 : 3); i++)
            n += put(from, is_bleu ? bleu[i] : chrf[i], to + n);
        return n == (is_bleu ? FOCI_BLEU_N_COUNTS : FOCI_CHRF_N_COUNTS) ? n : 0;
    }
    if (!json_object_get(line, labels) || !strcmp(metric, "bits_per_character"))
        return 0;
    const bool hits = !strcmp(metric, "accuracy") || !strcmp(metric, "exact");
    (void)put(line, hits ? "hits" : "nats", &to[0]);
    (void)put(line, labels, &to[1]);
    if (!strcmp(metric, "exact")) {
        to[0] = to[0] >= to[1];
        to[1] = 1;
    }
    return FOCI_RATIO_N_COUNTS;
}

/* Lines of a file. */
static int64_t count_lines(FILE *f)
{
    int64_t n = 0;

    for (int c; (c = getc(f)) != EOF;)
        n += c == '\n';
    rewind(f);
    return n;
}

/* Add the counts of one file; false: it is not there, or has other examples. */
static bool add_file(struct counts *c, const char *path, const char *metric)
{
    FILE   *f = path ? fopen(path, "r") : NULL;
    char   *text = NULL;
    size_t  cap = 0;
    int64_t n = 0;
    bool    good = f != NULL;

    if (f && !c->sum) {
        c->n = count_lines(f);
        c->sum = need((size_t)c->n * FOCI_SENTENCE_COUNTS + 1, sizeof *c->sum);
    }
    for (; good && getline(&text, &cap, f) > 0; n++) {
        double        row[FOCI_SENTENCE_COUNTS] = { 0 };
        json_t       *line = json_loads(text, 0, NULL);
        const int64_t each = n < c->n && line ? counts_of(line, metric, row) : 0;
        good = each > 0 && (!c->each || c->each == each);
        c->each = each;
        for (int64_t i = 0; good && i < each; i++)
            c->sum[n * each + i] += row[i];
        json_decref(line);
    }
    free(text);
    if (f) fclose(f);
    return good && n == c->n && n > 0;
}

static bool add_files(struct counts *c, const json_t *paths, const char *metric)
{
    bool    good = json_array_size(paths) > 0;
    size_t  i;
    json_t *path;

    json_array_foreach(paths, i, path)
    {
        good = good && add_file(c, json_string_value(path), metric);
    }
    return good;
}

static foci_status test(foci_ctx *ctx, const struct compare_metric *m,
                        const struct counts c[2], json_t *to)
{
    foci_bootstrap       b = { FOCI_SIZED(foci_bootstrap) };
    foci_randomisation   r = { FOCI_SIZED(foci_randomisation) };
    const foci_sentences s = { FOCI_SIZED(foci_sentences),
                               .n = c[0].n,
                               .n_counts = c[0].each,
                               .a = c[0].sum,
                               .b = c[1].sum,
                               .score = !strcmp(m->key, "bleu")    ? foci_score_bleu
                                        : !strcmp(m->key, "chrf2") ? foci_score_chrf
                                                                   : foci_score_ratio };

    foci_status status = foci_sentences_bootstrap(ctx, &s, &b);
    if (!status) status = foci_sentences_randomise(ctx, &s, &r);
    if (status) return status;
    const double all[] = { b.difference, b.low, b.high };
    double       shown[3];
    /* Of perplexity the logarithm was resampled. */
    for (int i = 0; i < 3; i++)
        shown[i] = m->ratio ? 100 * expm1(all[i]) : m->scale * all[i];
    json_object_set_new(to, "sentences",
                        json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "n",
                                  (json_int_t)c[0].n, "difference", shown[0], "low",
                                  shown[1], "high", shown[2], "p", b.p,
                                  "p_randomisation", r.p));
    return FOCI_OK;
}

foci_status sentences_judge(foci_ctx *ctx, const struct compare_metric *m,
                            const json_t *a, const json_t *b, json_t *to)
{
    struct counts c[2] = { { 0 } };
    foci_status   status = FOCI_OK;

    if (add_files(&c[0], a, m->key) && add_files(&c[1], b, m->key) &&
        c[0].n == c[1].n && c[0].each == c[1].each)
        status = test(ctx, m, c, to);
    free(c[0].sum);
    free(c[1].sum);
    return status;
}
