/* stats.h -- whether one model is better than another: intervals, tests and verdicts.
 *
 * Two arms of a comparison are trained with the same seeds, and each pair of runs with one
 * seed gives one difference:
 *
 *     foci_pairs pairs = { FOCI_SIZED(foci_pairs) };
 *     if (foci_pairs_test(ctx, bleu_a, bleu_b, n_seeds, NULL, &pairs))
 *         die(foci_errmsg(ctx));
 *     verdict = foci_verdict_of(pairs.low, pairs.high, 1.0, FOCI_BETTER_HIGHER);
 *     printf("%+.2f [%.2f, %.2f] %s\n", pairs.difference, pairs.low, pairs.high,
 *            foci_verdict_name(verdict));
 *
 * Seeds and test sentences vary for different reasons: the interval over seeds says whether
 * another training would give the same result, the tests over sentences (below) whether
 * another test set would.
 *
 * Differences that are meant as a share of the value ("5 % of perplexity") are differences
 * of logarithms: give log(x) for each x, and log(1.05) as the margin; exp(low) and
 * exp(high) are then the interval of the ratio a / b.  The mean loss in nats is already
 * the logarithm of perplexity.
 *
 * With fewer than two values nothing is known of how they vary.  This is no error: the
 * interval is then -INFINITY to INFINITY, p is 1, and the verdict undecided.  Results are
 * never NaN.
 */
#ifndef FOCI_STATS_H
#define FOCI_STATS_H

#include "foci/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Over seeds
 */

/* A description of n values, one for each run.  What n is too small for is 0. */
typedef struct foci_summary {
    size_t  size;
    int64_t n;
    double  mean;
    double  deviation; /* standard deviation of the sample, divisor n - 1 */
    double  median;
    /* The interquartile mean: that of the values in order without the first and the last
     * n/4, rounded down, so that of fewer than four all count. */
    double iqm;
    double low, high; /* t interval of the mean */
} foci_summary;

/* Describe n values, 0 or more, into the fields that summary->size covers.  `level` is the
 * share of intervals that contain the true mean; 0: 0.95.  Values have to be finite and at
 * most 1e100 in magnitude. */
FOCI_API foci_status foci_summary_of(foci_ctx *ctx, const double *values, int64_t n,
                                     double level, foci_summary *summary);

/* What is left 0 takes the default beside it. */
typedef struct foci_pairs_options {
    size_t   size;
    double   level;     /* of both intervals; 0: 0.95 */
    int64_t  resamples; /* of the bootstrap; 0: 10,000 */
    uint64_t seed;      /* of the bootstrap (docs/random.md); 0 is a seed like others */
} foci_pairs_options;

/* The differences a - b of n pairs. */
typedef struct foci_pairs {
    size_t  size;
    int64_t n;
    double  difference; /* their mean */
    double  deviation;  /* their standard deviation, divisor n - 1 */
    double  low, high;  /* t interval of the mean difference */
    double  p;          /* two-sided, of the paired t test */

    /* Percentile bootstrap of the mean difference.  It assumes no normal distribution, but
     * of a handful of pairs it is too narrow: verdicts rest on the t interval. */
    double bootstrap_low, bootstrap_high;
} foci_pairs;

/* Compare the pairs a[i], b[i], which the caller has put together: runs with the same seed
 * and the same order of data.  A run whose partner failed has no place here.  Where all
 * differences are equal, the interval is a point, and p is 1 if they are 0 and else 0.
 * Values as in foci_summary_of(); `options` may be NULL. */
FOCI_API foci_status foci_pairs_test(foci_ctx *ctx, const double *a, const double *b,
                                     int64_t n, const foci_pairs_options *options,
                                     foci_pairs *pairs);

/*
 * Verdicts
 */

/* What an interval of the difference a - b says of arm a. */
typedef enum foci_verdict {
    FOCI_VERDICT_UNDECIDED,
    FOCI_VERDICT_BETTER,
    FOCI_VERDICT_WORSE,
    FOCI_VERDICT_EQUIVALENT
} foci_verdict;

/* Which values are better: those of accuracy and BLEU, or those of a loss. */
typedef enum foci_better { FOCI_BETTER_HIGHER, FOCI_BETTER_LOWER } foci_better;

/* The verdict on a difference in the interval from low to high, where differences of at
 * most `margin`, set before the runs, make no difference to anybody.  The first that holds:
 *
 *     equivalent   -margin <= low and high <= margin
 *     better       0 < low  (FOCI_BETTER_LOWER: high < 0)
 *     worse        high < 0 (FOCI_BETTER_LOWER: 0 < low)
 *     undecided
 *
 * So a difference that is certain but too small to matter is equivalent, and one that is
 * certainly not 0 is better or worse even where it may lie within the margin.  A margin
 * of 0 leaves only arms with exactly the same results equivalent.  Undecided also where
 * low is not at most high, or the margin is negative or NaN. */
FOCI_API foci_verdict foci_verdict_of(double low, double high, double margin,
                                      foci_better better);

/* "undecided", "better", "worse" or "equivalent"; never NULL. */
FOCI_API const char *foci_verdict_name(foci_verdict verdict);

/* Adjust the p values of n comparisons that are reported together, as Holm (1979) does:
 * whoever calls those below 0.05 different is wrong about any of them in at most 5 % of
 * all such reports.  `adjusted` may be p. */
FOCI_API foci_status foci_holm(foci_ctx *ctx, const double *p, int64_t n,
                               double *adjusted);

/*
 * Over test sentences: tests of a score that is a function of counts which are summed over
 * sentences, such as BLEU, chrF, accuracy and mean loss
 *
 * Random numbers are those of NumPy's default generator, drawn in the order that sacrebleu
 * draws them: intervals and p values are its own (sacrebleu 2.6 with NumPy 2.4), up to the
 * rounding of its single-precision sums.
 */

/* The most counts of a sentence. */
#define FOCI_SENTENCE_COUNTS 64

/* The score of `counts`, sums over sentences; not NaN, not infinite. */
typedef double (*foci_score_fn)(void *user, const double *counts);

/* Counts of BLEU are the fields of foci_bleu_counts in their order, of chrF those of
 * foci_chrf_counts; of a ratio the first is divided by the second: hits and labels, or nats
 * and tokens.  `user` is not used.  A ratio with nothing to divide by is NaN. */
#define FOCI_BLEU_N_COUNTS  10
#define FOCI_CHRF_N_COUNTS  18
#define FOCI_RATIO_N_COUNTS 2
FOCI_API double foci_score_bleu(void *user, const double *counts);
FOCI_API double foci_score_chrf(void *user, const double *counts);
FOCI_API double foci_score_ratio(void *user, const double *counts);

/* Write the counts of one sentence to a row. */
FOCI_API void foci_bleu_row(const foci_bleu_counts *counts,
                            double                  row[FOCI_BLEU_N_COUNTS]);
FOCI_API void foci_chrf_row(const foci_chrf_counts *counts,
                            double                  row[FOCI_CHRF_N_COUNTS]);

/* The same sentences as two arms have them.  Counts have to be finite, and so small that a
 * sum of n of them is at most 2^53 in magnitude. */
typedef struct foci_sentences {
    size_t        size;
    int64_t       n;        /* sentences, at most 2^31 - 1 */
    int64_t       n_counts; /* of each, 1 to FOCI_SENTENCE_COUNTS */
    const double *a, *b;    /* [n][n_counts] */
    foci_score_fn score;
    void         *user;
    double        level;   /* of the bootstrap's intervals; 0: 0.95 */
    int64_t       samples; /* 0: 1,000 of a bootstrap, 10,000 of a randomisation */
    uint64_t      seed;    /* 0: 12345, sacrebleu's */
} foci_sentences;

/* What resamples of the sentences say.  Interval ends are the k-th smallest and k-th
 * largest of `samples` values, with (1 - level)/2 of the values outside on each side. */
typedef struct foci_bootstrap {
    size_t  size;
    int64_t n, samples;
    double  score[2];   /* of a and of b, all sentences */
    double  difference; /* of the scores, a - b */
    double  low, high;  /* interval of the difference */
    /* Of each arm the mean score of the resamples, and half the width of their interval. */
    double mean[2], half[2];
    /* Two-sided: the share of resamples where the size of the difference exceeds its mean
     * over resamples by the observed size or more. */
    double p;
    /* The same as sacrebleu counts it, by "more" in place of "or more".  Where few
     * sentences differ this is too small; of identical arms it is 1 / (samples + 1). */
    double p_sacrebleu;
} foci_bootstrap;

/* Paired bootstrap (Koehn 2004): draw n sentences with replacement, the same ones for both
 * arms, and score them, `samples` times. */
FOCI_API foci_status foci_sentences_bootstrap(foci_ctx             *ctx,
                                              const foci_sentences *sentences,
                                              foci_bootstrap       *result);

/* What exchanging the arms' sentences says. */
typedef struct foci_randomisation {
    size_t  size;
    int64_t n, samples;
    double  score[2];   /* of a and of b, all sentences */
    double  difference; /* of the scores, a - b */
    /* Two-sided: the share of trials with a difference of the observed size or more. */
    double p;
    double p_sacrebleu; /* by "more" in place of "or more", as above */
} foci_randomisation;

/* Paired approximate randomisation (Noreen 1989): exchange the two arms' counts in about
 * half of the sentences, by the toss of a coin for each, and score both, `samples` times. */
FOCI_API foci_status foci_sentences_randomise(foci_ctx             *ctx,
                                              const foci_sentences *sentences,
                                              foci_randomisation   *result);

/*
 * Distributions: NaN outside the ranges given
 */

/* Student's t distribution with df > 0 degrees of freedom, INFINITY: the normal one.  The
 * share of values up to t, and for p in [0, 1] the value that the share p is below, which
 * may be infinite. */
FOCI_API double foci_t_cdf(double t, double df);
FOCI_API double foci_t_quantile(double p, double df);

/* The standard normal value that the share p is below. */
FOCI_API double foci_normal_quantile(double p);

/* The regularised incomplete beta function I_x(a, b), for a > 0, b > 0 and x in [0, 1]: the
 * share of a beta distribution up to x. */
FOCI_API double foci_beta_cdf(double x, double a, double b);

#ifdef __cplusplus
}
#endif
#endif
