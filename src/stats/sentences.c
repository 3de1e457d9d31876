/* sentences.c -- two arms on the same test sentences: paired bootstrap and paired
 * approximate randomisation.
 *
 * Koehn, "Statistical Significance Tests for Machine Translation Evaluation", 2004; Noreen,
 * "Computer-Intensive Methods for Testing Hypotheses", 1989, and Riezler and Maxwell, "On Some
 * Pitfalls in Automatic Evaluation and Significance Testing for MT", 2005.  A score is a
 * function of counts that are summed over sentences, so that a resample is a sum of rows.
 *
 * With the observed difference d of scores and those of K samples, d_k, p values are
 *
 *     bootstrap      (1 + #{ |d_k - d| >= |d| }) / (1 + K)
 *     randomisation  (1 + #{ |d_k| >= |d| }) / (1 + K)
 *
 * and sacrebleu's are
 *
 *     bootstrap      (1 + #{ |d_k| - mean over k of |d_k|  >  |d| }) / (1 + K)
 *     randomisation  (1 + #{ |d_k|  >  |d| }) / (1 + K)
 *
 * The first of these subtracts a mean that is about |d|, so that only samples on one side
 * of it can count: about half of them.  The second is too small where arms differ in few
 * sentences, and many samples have just the observed difference.
 */
#include <math.h>

#include "foci/text.h"
#include "stats/stats.h"

/*
 * Scores
 */

void foci_bleu_row(const foci_bleu_counts *counts, double row[FOCI_BLEU_N_COUNTS])
{
    for (int i = 0; i < 4; i++) {
        row[i] = (double)counts->match[i];
        row[4 + i] = (double)counts->total[i];
    }
    row[8] = (double)counts->length;
    row[9] = (double)counts->reference;
}

void foci_chrf_row(const foci_chrf_counts *counts, double row[FOCI_CHRF_N_COUNTS])
{
    for (int i = 0; i < 6; i++) {
        row[i] = (double)counts->translation[i];
        row[6 + i] = (double)counts->reference[i];
        row[12 + i] = (double)counts->match[i];
    }
}

/* Whoever calls a score may give anything. */
static int64_t whole(double x) { return fabs(x) <= 0x1p53 ? (int64_t)x : 0; }

double foci_score_bleu(void *user, const double *counts)
{
    foci_bleu_counts c = { .length = whole(counts[8]), .reference = whole(counts[9]) };
    foci_bleu        bleu = { FOCI_SIZED(foci_bleu) };

    (void)user;
    for (int i = 0; i < 4; i++) {
        c.match[i] = whole(counts[i]);
        c.total[i] = whole(counts[4 + i]);
    }
    return foci_bleu_score(&c, 0, &bleu) ? NAN : bleu.score;
}

double foci_score_chrf(void *user, const double *counts)
{
    foci_chrf_counts c;

    (void)user;
    for (int i = 0; i < 6; i++) {
        c.translation[i] = whole(counts[i]);
        c.reference[i] = whole(counts[6 + i]);
        c.match[i] = whole(counts[12 + i]);
    }
    return foci_chrf_score(&c);
}

double foci_score_ratio(void *user, const double *counts)
{
    (void)user;
    return counts[1] != 0 ? counts[0] / counts[1] : NAN;
}

/*
 * What both tests begin with
 */

struct scores {
    double a, b;
};

static foci_status check_counts(foci_ctx *ctx, const foci_sentences *s,
                                const char *name, const double *counts)
{
    const double most = 0x1p53 / (double)s->n;

    for (int64_t i = 0; i < s->n * s->n_counts; i++)
        if (!(fabs(counts[i]) <= most))
            return ctx_fail(
                ctx, FOCI_ERR_ARG,
                "%s: count %lld of sentence %lld is %g: with %lld sentences a "
                "finite number of at most %g is wanted",
                name, (long long)(i % s->n_counts), (long long)(i / s->n_counts),
                counts[i], (long long)s->n, most);
    return FOCI_OK;
}

static foci_status check_sizes(foci_ctx *ctx, const foci_sentences *s)
{
    if (s->n < 0 || s->n > INT32_MAX)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_sentences.n is %lld: 0 to %d is wanted",
                        (long long)s->n, INT32_MAX);
    if (s->n_counts < 1 || s->n_counts > FOCI_SENTENCE_COUNTS)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "foci_sentences.n_counts is %lld: 1 to %d is wanted",
                        (long long)s->n_counts, FOCI_SENTENCE_COUNTS);
    if (s->samples < 1)
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "foci_sentences.samples is %lld: 1 or more, or 0 for the default",
            (long long)s->samples);
    if (!s->score || (s->n > 0 && (!s->a || !s->b)))
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_sentences.%s is NULL",
                        !s->score ? "score"
                        : !s->a   ? "a"
                                  : "b");
    return FOCI_OK;
}

static foci_status take(foci_ctx *ctx, const foci_sentences *given, int64_t samples,
                        foci_sentences *s)
{
    if (!ctx)
        return ctx_fail(NULL, FOCI_ERR_ARG,
                        "a test of sentences takes a context, not NULL");
    TRY(sized_in(ctx, "foci_sentences", s, given, sizeof *s));
    if (s->samples == 0) s->samples = samples;
    if (s->seed == 0) s->seed = 12345;
    TRY(check_sizes(ctx, s));
    TRY(level_check(ctx, "foci_sentences.level", &s->level));
    TRY(check_counts(ctx, s, "foci_sentences.a", s->a));
    return check_counts(ctx, s, "foci_sentences.b", s->b);
}

/* Scores of sums; `sample` is -1 for the sentences as they are. */
static foci_status score(foci_ctx *ctx, const foci_sentences *s, const double *a,
                         const double *b, int64_t sample, struct scores *to)
{
    to->a = s->score(s->user, a);
    to->b = s->score(s->user, b);
    if (isfinite(to->a) && isfinite(to->b)) return FOCI_OK;
    const double bad = isfinite(to->a) ? to->b : to->a;
    if (sample < 0)
        return ctx_fail(ctx, FOCI_ERR_ARG, "the score of all sentences is %g", bad);
    return ctx_fail(
        ctx, FOCI_ERR_ARG,
        "the score of sample %lld is %g: sentences that count nothing have to "
        "be left out",
        (long long)sample, bad);
}

static void add_row(double *sum, const double *row, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        sum[c] += row[c];
}

struct sums {
    double a[FOCI_SENTENCE_COUNTS], b[FOCI_SENTENCE_COUNTS];
};

static void add_sentence(const foci_sentences *s, int64_t i, struct sums *sums)
{
    add_row(sums->a, s->a + i * s->n_counts, s->n_counts);
    add_row(sums->b, s->b + i * s->n_counts, s->n_counts);
}

/* Sums and scores of all sentences; of none 0. */
static foci_status score_all(foci_ctx *ctx, const foci_sentences *s, struct sums *sums,
                             struct scores *found)
{
    *sums = (struct sums){ { 0 }, { 0 } };
    *found = (struct scores){ 0, 0 };
    if (s->n == 0) return FOCI_OK;
    for (int64_t i = 0; i < s->n; i++)
        add_sentence(s, i, sums);
    return score(ctx, s, sums->a, sums->b, -1, found);
}

/* The size of the observed difference, and samples: those whose statistic is at least that,
 * where sums in another order may differ in their last digits, and those with more. */
struct count {
    double  observed, near;
    int64_t least, more;
};

static struct count count_of(const struct scores *all)
{
    return (struct count){ .observed = fabs(all->a - all->b),
                           .near = 1e-12 * (fabs(all->a) + fabs(all->b)) };
}

/* `statistic` counts for p, `other` for sacrebleu's. */
static void count_sample(struct count *c, double statistic, double other)
{
    c->least += statistic >= c->observed - c->near;
    c->more += other > c->observed;
}

static double share(int64_t count, int64_t samples)
{
    return (double)(count + 1) / ((double)samples + 1);
}

/*
 * Bootstrap
 */

static foci_status draw(foci_ctx *ctx, const foci_sentences *s, double *a, double *b)
{
    struct pcg64  r;
    struct scores found;

    pcg64_seed(&r, s->seed);
    for (int64_t k = 0; k < s->samples; k++) {
        struct sums sums = { { 0 }, { 0 } };
        for (int64_t i = 0; i < s->n; i++)
            add_sentence(s, pcg64_below(&r, (uint32_t)s->n), &sums);
        TRY(score(ctx, s, sums.a, sums.b, k, &found));
        a[k] = found.a;
        b[k] = found.b;
    }
    return FOCI_OK;
}

static void bootstrap_p(const struct scores *all, const double *d, foci_bootstrap *r)
{
    struct count count = count_of(all);
    double       mean = 0;

    for (int64_t k = 0; k < r->samples; k++)
        mean += fabs(d[k]) / (double)r->samples;
    for (int64_t k = 0; k < r->samples; k++)
        count_sample(&count, fabs(d[k] - r->difference), fabs(d[k]) - mean);
    r->p = share(count.least, r->samples);
    r->p_sacrebleu = share(count.more, r->samples);
}

static double half_width(double *scores, int64_t n, double level)
{
    values_sort(scores, n);
    const struct interval i = percentiles(scores, n, level);
    return (i.high - i.low) / 2;
}

/* a, b and d have room for what is found in each sample. */
static foci_status bootstrap(foci_ctx *ctx, const foci_sentences *s,
                             const struct scores *all, double *a, double *b, double *d,
                             foci_bootstrap *r)
{
    TRY(draw(ctx, s, a, b));
    for (int64_t k = 0; k < s->samples; k++)
        d[k] = a[k] - b[k];
    bootstrap_p(all, d, r);
    r->mean[0] = values_mean(a, s->samples);
    r->mean[1] = values_mean(b, s->samples);
    r->half[0] = half_width(a, s->samples, s->level);
    r->half[1] = half_width(b, s->samples, s->level);
    values_sort(d, s->samples);
    const struct interval i = percentiles(d, s->samples, s->level);
    r->low = i.low;
    r->high = i.high;
    return FOCI_OK;
}

foci_status foci_sentences_bootstrap(foci_ctx *ctx, const foci_sentences *sentences,
                                     foci_bootstrap *result)
{
    foci_bootstrap r = { FOCI_SIZED(foci_bootstrap), .low = -INFINITY, .high = INFINITY,
                         .p = 1, .p_sacrebleu = 1 };
    foci_sentences s;
    struct sums    sums;
    struct scores  all;

    TRY(take(ctx, sentences, 1000, &s));
    TRY(sized_check(ctx, "foci_bootstrap", result, sizeof r));
    TRY(score_all(ctx, &s, &sums, &all));
    r.n = s.n;
    r.samples = s.samples;
    r.score[0] = r.mean[0] = all.a;
    r.score[1] = r.mean[1] = all.b;
    r.difference = all.a - all.b;
    if (s.n > 1) {
        const size_t  n = (size_t)s.samples;
        double *const scratch = ctx_alloc(ctx, n, 3 * sizeof *scratch);
        if (!scratch) return FOCI_ERR_MEMORY;
        const foci_status status =
            bootstrap(ctx, &s, &all, scratch, scratch + n, scratch + 2 * n, &r);
        ctx_free(ctx, scratch, n, 3 * sizeof *scratch);
        TRY(status);
    }
    return sized_out(ctx, "foci_bootstrap", result, &r, sizeof r);
}

/*
 * Randomisation
 */

/* What is exchanged leaves one arm for the other. */
static void exchange(const foci_sentences *s, struct pcg64 *r, struct sums *sums)
{
    double moved[FOCI_SENTENCE_COUNTS] = { 0 };

    for (int64_t i = 0; i < s->n; i++) {
        if (!pcg64_coin(r)) continue;
        const double *a = s->a + i * s->n_counts, *b = s->b + i * s->n_counts;
        for (int64_t c = 0; c < s->n_counts; c++)
            moved[c] += a[c] - b[c];
    }
    for (int64_t c = 0; c < s->n_counts; c++) {
        sums->a[c] -= moved[c];
        sums->b[c] += moved[c];
    }
}

foci_status foci_sentences_randomise(foci_ctx *ctx, const foci_sentences *sentences,
                                     foci_randomisation *result)
{
    foci_randomisation r = { FOCI_SIZED(foci_randomisation) };
    foci_sentences     s = { 0 };
    struct sums        sums;
    struct scores      all, found;
    struct pcg64       generator;

    TRY(take(ctx, sentences, 10000, &s));
    TRY(sized_check(ctx, "foci_randomisation", result, sizeof r));
    TRY(score_all(ctx, &s, &sums, &all));
    struct count count = count_of(&all);

    pcg64_seed(&generator, s.seed);
    for (int64_t k = 0; k < s.samples && s.n > 0; k++) {
        struct sums sample = sums;
        exchange(&s, &generator, &sample);
        TRY(score(ctx, &s, sample.a, sample.b, k, &found));
        const double size = fabs(found.a - found.b);
        count_sample(&count, size, size);
    }
    r.n = s.n;
    r.samples = s.samples;
    r.score[0] = all.a;
    r.score[1] = all.b;
    r.difference = all.a - all.b;
    r.p = s.n > 0 ? share(count.least, s.samples) : 1;
    r.p_sacrebleu = s.n > 0 ? share(count.more, s.samples) : 1;
    return sized_out(ctx, "foci_randomisation", result, &r, sizeof r);
}
