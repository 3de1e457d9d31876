/* tasks_sequence.c -- copying, looking up and following in one sequence: every label is what
 * is found by reading the ids, draws are as often as they should be, and so are the rules
 * right. */
#include <math.h>
#include <stdio.h>

#include "foci/data.h"
#include "support/examples.h"

/*
 * Labels, found by reading
 */

/* The label at place `at` of a text, by its ids alone. */
typedef int32_t solve_fn(const struct task *t, const int32_t *ids, int64_t at);

static int32_t solve_selcopy(const struct task *t, const int32_t *ids, int64_t at)
{
    const int32_t mark = (int32_t)t->vocab - 1;
    int64_t       number = 0, i = 0;

    while (ids[at - number - 1] == mark)
        number++;
    for (i = 0; number > 0 || !ids[i]; i++)
        number -= ids[i] != 0;
    return ids[i];
}

static int32_t solve_induction(const struct task *t, const int32_t *ids, int64_t at)
{
    int64_t i = 0;

    (void)t;
    while (ids[i] != ids[at])
        i++;
    return i < at ? ids[i + 1] : -1;
}

/* What is predicted stands in the text, but for the last label. */
static int32_t solve_ngram(const struct task *t, const int32_t *ids, int64_t at)
{
    return at + 1 < t->len ? ids[at + 1] : 0;
}

/* Texts of digits 1 to 10, letters up to 36, colons 37 and ends of lines 38: the last piece
 * without an end begins as one of the lines. */
static int32_t solve_phonebook(const struct task *t, const int32_t *ids, int64_t at)
{
    int64_t last = at, line = 0, found = -1;

    (void)t;
    while (last > 0 && ids[last - 1] != 38)
        last--;
    for (; line < last; line++) {
        if (line > 0 && ids[line - 1] != 38) continue;
        int64_t same = 0;
        while (ids[line + same] == ids[last + same] && last + same <= at)
            same++;
        if (last + same <= at) continue;
        assert_int_equal(found, -1); /* only one begins so */
        found = ids[line + same];
    }
    return (int32_t)found;
}

/* The question in front says which key, and how many values were said of it. */
static int32_t solve_needle(const struct task *t, const int32_t *ids, int64_t at)
{
    int64_t question = at, i = 0;

    (void)t;
    while (ids[question] != 1)
        question--;
    for (int64_t left = at - question; left > 0; i++)
        left -= i > 0 && ids[i - 1] == ids[question + 1];
    return i <= question ? ids[i - 1] : -1;
}

/* Where a statement says what this is: `side` -1: the place behind a sign = that it follows,
 * 1: the place before one. */
static int64_t statement(const int32_t *ids, int64_t end, int32_t what, int side)
{
    for (int64_t i = 1; i + 1 < end; i++)
        if (ids[i] == 1 && ids[i - side] == what) return i + side;
    return -1;
}

static int32_t solve_vartrack(const struct task *t, const int32_t *ids, int64_t at)
{
    int64_t question = at, found;

    while (ids[question] != 2)
        question--;
    if (ids[question + 1] >= t->vocab - (int64_t)t->arg[4]) { /* a value */
        found = statement(ids, question, ids[at], -1);
        return found < 0 ? -1 : ids[found];
    }
    int32_t x = ids[at];
    while ((found = statement(ids, question, x, 1)) >= 0)
        x = ids[found];
    return x;
}

static const struct {
    const char *text;
    solve_fn   *solve;
    int         labels;
} solved[] = {
    { "selcopy(length=40)", solve_selcopy, 16 },
    { "selcopy(length=3, tokens=3, vocab=4)", solve_selcopy, 3 },
    { "induction", solve_induction, 1 },
    { "induction(length=3, test=5)", solve_induction, 1 },
    { "ngram(length=40)", solve_ngram, 39 },
    { "ngram(n=5, symbols=3, length=9)", solve_ngram, 6 },
    { "phonebook", solve_phonebook, 4 },
    { "phonebook(entries=300, letters=2, digits=7)", solve_phonebook, 7 },
    { "needle", solve_needle, 1 },
    { "needle(keys=5, values=3, queries=5, length=40)", solve_needle, 15 },
    { "needle(keys=64, length=128)", solve_needle, 1 },
    { "vartrack", solve_vartrack, 5 },
    { "vartrack(hops=0, chains=3, length=9, words=1, symbols=3)", solve_vartrack, 1 },
    { "vartrack(ask=value)", solve_vartrack, 1 },
    { "vartrack(hops=9, chains=2, length=60, ask=value)", solve_vartrack, 1 },
};

static void check_labels(const char *text, const struct task *t,
                         const struct task_example *e, solve_fn *solve, int labels)
{
    for (int64_t i = 0; i < e->n; i++) {
        if (e->labels[i] < 0) continue;
        labels--;
        const int32_t found = solve(t, e->ids, i);
        if (found && found != e->labels[i])
            fail_msg("%s: place %d asks for %d, and the text says %d", text, (int)i,
                     e->labels[i], found);
    }
    if (labels) fail_msg("%s: %d labels are missing", text, labels);
}

static void labels_are_in_the_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof solved / sizeof *solved; i++) {
        struct examples *m = examples_open(solved[i].text);
        for (int first = 0; first < 480; first += EXAMPLES_AT_ONCE) {
            examples_make(m, (foci_data_split)(first / EXAMPLES_AT_ONCE % 3), first);
            for (int k = 0; k < EXAMPLES_AT_ONCE; k++)
                check_labels(solved[i].text, &m->t, &m->e[k], solved[i].solve,
                             solved[i].labels);
        }
        examples_close(m);
    }
}

/* The second slice of each task, and the first of some, are distances: from a label to what
 * it is found by. */
static void distances(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof solved / sizeof *solved; i++) {
        struct examples *m = examples_open(solved[i].text);
        if (solved[i].solve == solve_ngram) {
            examples_close(m);
            continue;
        }
        examples_make(m, FOCI_DATA_SPLIT_TRAIN, 0);
        for (int k = 0; k < EXAMPLES_AT_ONCE; k++) {
            const struct task_example *e = &m->e[k];
            for (int64_t at = 0; at < e->n; at++) {
                if (e->labels[at] < 0) continue;
                const int64_t there = at - e->slices[m->t.len + at];
                assert_in_range(there, 0, at - 1);
                /* The label itself, or the key it stands behind. */
                const bool itself = e->ids[there] == e->labels[at];
                const bool behind = solved[i].solve == solve_induction
                                        ? e->ids[there] == e->ids[at]
                                        : e->ids[there + 1] == e->labels[at];
                if (!itself && !behind && solved[i].solve != solve_phonebook)
                    fail_msg("%s: nothing of the label stands %d before it",
                             solved[i].text, e->slices[m->t.len + at]);
            }
        }
        examples_close(m);
    }
}

/* With ask=value the variable that is asked for is all hops away. */
static void hops(void **state)
{
    struct examples *m = examples_open("vartrack(hops=7, chains=2, ask=value)");

    (void)state;
    examples_make(m, FOCI_DATA_SPLIT_TRAIN, 0);
    for (int k = 0; k < EXAMPLES_AT_ONCE; k++) {
        const int32_t *ids = m->e[k].ids;
        int            n = 0;
        for (int32_t x = ids[257]; x < m->t.vocab - 64; n++)
            x = ids[statement(ids, 256, x, 1)];
        assert_int_equal(n, 7 + 1);
        assert_int_equal(m->e[k].slices[257], 7);
    }
    examples_close(m);
}

/*
 * Distributions
 */

enum { EXAMPLES = 8000 };

/* Calls `look` with every one of EXAMPLES examples of a split. */
typedef void look_fn(const struct task *t, const struct task_example *e, double *counts);

static void count(const char *text, foci_data_split split, look_fn *look, double *counts)
{
    struct examples *m = examples_open(text);

    for (int first = 0; first < EXAMPLES; first += EXAMPLES_AT_ONCE) {
        examples_make(m, split, first);
        for (int i = 0; i < EXAMPLES_AT_ONCE; i++)
            look(&m->t, &m->e[i], counts);
    }
    examples_close(m);
}

/* Counts from `begin` on are those of n cases that are as likely. */
static void uniform(const char *what, const double *counts, int begin, int n)
{
    double all = 0;

    for (int i = 0; i < n; i++)
        all += counts[begin + i];
    for (int i = 0; i < n; i++)
        examples_about(what, counts[begin + i], 1.0 / n, all);
}

static void look_selcopy(const struct task *t, const struct task_example *e,
                         double *counts)
{
    (void)t;
    for (int i = 0; i < 12; i++) {
        counts[i] += e->ids[i] > 0;
        if (e->ids[i]) counts[20 + e->ids[i]]++;
    }
    /* All pairs of places are as likely. */
    counts[40] += e->ids[0] && e->ids[1];
    counts[41] += e->ids[3] && e->ids[11];
}

static void selcopy(void **state)
{
    double counts[50] = { 0 };

    (void)state;
    count("selcopy(vocab=9, length=12, tokens=4)", FOCI_DATA_SPLIT_TRAIN, look_selcopy,
          counts);
    for (int i = 0; i < 12; i++)
        examples_about("places of symbols", counts[i], 4 / 12.0, EXAMPLES);
    uniform("symbols", counts, 21, 7);
    examples_about("two neighbours", counts[40], 4 * 3 / (12 * 11.0), EXAMPLES);
    examples_about("two apart", counts[41], 4 * 3 / (12 * 11.0), EXAMPLES);
}

static void look_induction(const struct task *t, const struct task_example *e,
                           double *counts)
{
    const int32_t special = (int32_t)t->vocab - 1;

    assert_int_equal(e->n, 10);
    assert_int_equal(e->slices[9], 10);
    for (int i = 0; i < 9; i++)
        counts[e->ids[i] == special ? i : 20 + e->ids[i]]++;
    counts[30 + e->labels[9]]++;
}

static void induction(void **state)
{
    double counts[50] = { 0 };

    (void)state;
    count("induction(vocab=6, length=4, test=10)", FOCI_DATA_SPLIT_TEST, look_induction,
          counts);
    uniform("places of the special token", counts, 0, 8);
    assert_true(counts[8] == 0); /* something has to follow */
    uniform("tokens", counts, 21, 5);
    uniform("labels", counts, 31, 5);
}

/* How often each symbol followed the n - 1 before place `at` so far; the result is how often
 * any did. */
static int followers(const int32_t *ids, int64_t at, int n, int of[16])
{
    int all = 0;

    for (int v = 0; v < 16; v++)
        of[v] = 0;
    for (int64_t i = n - 1; i <= at; i++) {
        int same = 0;
        while (same < n - 1 && ids[i - 1 - same] == ids[at - same])
            same++;
        if (same < n - 1) continue;
        of[ids[i]]++;
        all++;
    }
    return all;
}

/* Of one whose prior is the flat Dirichlet distribution of k symbols: a symbol that followed
 * c of s times follows next with (c + 1) / (s + k). */
static void look_ngram(const struct task *t, const struct task_example *e,
                       double *counts)
{
    const int k = (int)t->vocab - 1, n = (int)t->arg[0];
    int       of[16];

    for (int i = 0; i < n - 1; i++)
        counts[40 + e->ids[i]]++;
    for (int64_t at = n - 2; at < e->n; at++) {
        const int s = followers(e->ids, at, n, of);
        assert_int_equal(e->slices[at], at);
        assert_int_equal(e->slices[t->len + at], s);
        if (s == 0) counts[50 + e->labels[at]]++;
        if (s == 1) {
            counts[0]++;
            counts[1] += of[e->labels[at]];
        }
        if (s != 3) continue;
        for (int v = 1; v <= k; v++) {
            counts[2 + 2 * of[v]]++;
            counts[3 + 2 * of[v]] += e->labels[at] == v;
        }
    }
}

static void ngram(void **state)
{
    static const struct {
        const char *text;
        int         k;
    } forms[] = { { "ngram(n=3, symbols=3, length=40)", 3 },
                  { "ngram(n=2, symbols=5, length=20)", 5 } };

    (void)state;
    for (int f = 0; f < 2; f++) {
        const int k = forms[f].k;
        double    counts[70] = { 0 };
        count(forms[f].text, FOCI_DATA_SPLIT_VALID, look_ngram, counts);
        uniform("first symbols", counts, 41, k);
        uniform("symbols behind a new context", counts, 51, k);
        examples_about("the same symbol again", counts[1], 2.0 / (1 + k), counts[0]);
        for (int c = 0; c <= 3; c++)
            examples_about("symbols by how often they followed", counts[3 + 2 * c],
                           (c + 1.0) / (3 + k), counts[2 + 2 * c]);
    }
}

static void look_phonebook(const struct task *t, const struct task_example *e,
                           double *counts)
{
    const int entry = 2 + 1 + 3 + 1;

    (void)t;
    for (int i = 0; i < 5 * entry; i++)
        counts[e->ids[i]]++;
    for (int i = 0; i < 5; i++)
        counts[50 + i] += e->ids[5 * entry] == e->ids[i * entry] &&
                          e->ids[5 * entry + 1] == e->ids[i * entry + 1];
}

static void phonebook(void **state)
{
    double counts[60] = { 0 };

    (void)state;
    count("phonebook(entries=5, letters=2, digits=3)", FOCI_DATA_SPLIT_TRAIN,
          look_phonebook, counts);
    uniform("digits", counts, 1, 10);
    uniform("letters", counts, 11, 26);
    uniform("entries that are asked for", counts, 50, 5);
    assert_true(counts[37] == 5 * EXAMPLES && counts[38] == 5 * EXAMPLES);
}

/* Words 2 to 4, keys 5 to 9, values 10 to 14. */
static void look_needle(const struct task *t, const struct task_example *e,
                        double *counts)
{
    int met = 0;

    (void)t;
    for (int i = 0; i < 9; i++) {
        counts[e->ids[i]]++;
        if (e->ids[i] < 5 || e->ids[i] > 9) continue;
        counts[20 + i]++;
        counts[40 + met++] += e->ids[i] == e->ids[10];
    }
    assert_int_equal(met, 2);
}

static void needle(void **state)
{
    double counts[60] = { 0 };

    (void)state;
    count("needle(keys=2, length=9, words=3, symbols=5)", FOCI_DATA_SPLIT_TRAIN,
          look_needle, counts);
    uniform("words", counts, 2, 3);
    uniform("keys", counts, 5, 5);
    uniform("values", counts, 10, 5);
    uniform("keys that are asked for", counts, 40, 2);
    /* Two of seven slots: the text begins with a needle, or ends with one. */
    examples_about("first place", counts[20], 2 / 7.0, EXAMPLES);
    examples_about("last place", counts[27], 2 / 7.0, EXAMPLES);
}

/* Words 3 and 4, variables 5 to 10, values 11 to 16. */
static void look_vartrack(const struct task *t, const struct task_example *e,
                          double *counts)
{
    int met = 0, first = -1;

    (void)t;
    for (int i = 0; i < 16; i++) {
        counts[e->ids[i]]++;
        if (e->ids[i] != 1) continue;
        if (e->ids[i + 1] == e->ids[17]) first = met;
        met++;
    }
    assert_int_equal(met, 4);
    counts[20 + first]++;
    counts[30] += e->ids[1] == 1;
}

static void vartrack(void **state)
{
    double counts[40] = { 0 };

    (void)state;
    count("vartrack(hops=1, chains=2, length=16, words=2, symbols=6)",
          FOCI_DATA_SPLIT_TRAIN, look_vartrack, counts);
    uniform("words", counts, 3, 2);
    uniform("variables", counts, 5, 6);
    uniform("values", counts, 11, 6);
    /* Of four statements in any order with the two of a chain in theirs. */
    examples_about("the chain is first", counts[20], 1 / 2.0, EXAMPLES);
    examples_about("the chain is second", counts[21], 1 / 3.0, EXAMPLES);
    examples_about("the chain is third", counts[22], 1 / 6.0, EXAMPLES);
    examples_about("the text begins with a statement", counts[30], 4 / 8.0, EXAMPLES);
}

/*
 * Floors
 */

static void floors(void **state)
{
    static const struct {
        const char *task;
        int         rule;
        const char *name;
        double      accuracy;
        int         labels; /* of an example that do not depend on each other */
    } known[] = {
        { "selcopy", 0, "chance", 1 / 14.0, 0 },
        { "selcopy", 1, "most frequent", 1 / 14.0, 16 },
        { "selcopy", 2, "last symbol", 1 / 16.0 + 15 / 16.0 / 14, 1 },
        { "selcopy(length=3, tokens=2, vocab=6)", 3,
          "symbol nearest to the usual place", (4 + 2 / 4.0) / 6, 1 },
        { "selcopy(length=5, tokens=5)", 3, "symbol nearest to the usual place", 1, 0 },
        { "induction", 0, "chance", 1 / 15.0, 0 },
        { "induction(length=7)", 2, "token before", 1 / 5.0 + 4 / 5.0 / 15, 1 },
        { "induction(length=3)", 3, "most frequent in context", 1, 0 },
        { "ngram", 0, "chance", 1 / 4.0, 0 },
        { "phonebook", 0, "chance", 0.1, 0 },
        { "phonebook", 2, "last number", 1 / 16.0 + 15 / 16.0 / 10, 1 },
        { "phonebook(entries=1)", 3, "most frequent in the book", 1, 0 },
        { "needle", 2, "last value", 1, 0 },
        { "needle(keys=4)", 2, "last value", 1 / 4.0, 1 },
        { "needle(keys=4, queries=4)", 3, "values in order", 1 / 4.0, 1 },
        { "needle(values=4)", 3, "values in order", 1, 0 },
        { "vartrack(chains=1)", 3, "nearest assignment", 1, 0 },
        { "vartrack(chains=1, hops=2, ask=value)", 3, "nearest assignment", 1, 0 },
        { "vartrack(ask=value)", 2, "last assignment", 1 / 4.0, 1 },
        { "vartrack(hops=0)", 3, "nearest assignment", 1, 0 },
    };
    enum { JUDGED = 3000 };
    foci_ctx *ctx = test_ctx(NULL, 2);

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .kind = FOCI_DATA_TASK, .task = known[i].task,
                                      .batch = 1, .split = FOCI_DATA_SPLIT_VALID };
        foci_data              *d = NULL;
        foci_floor              floor = { FOCI_SIZED(foci_floor) };
        const double            p = known[i].accuracy, n = JUDGED * known[i].labels;
        assert_int_equal(foci_data_open(ctx, &o, &d), FOCI_OK);
        assert_int_equal(foci_data_floor(d, known[i].rule, JUDGED, &floor), FOCI_OK);
        assert_string_equal(floor.name, known[i].name);
        const double spread = known[i].labels ? 4 * sqrt(p * (1 - p) / n) : 1e-12;
        if (fabs(floor.accuracy - p) > spread)
            fail_msg("%s, %s: %g, not %g +- %g", known[i].task, floor.name,
                     floor.accuracy, p, spread);
        foci_data_free(d);
    }
    foci_ctx_free(ctx);
}

/* What the rule of n-grams reaches follows from the texts: the most frequent follower, which
 * followed c of s times, is right with (c + 1) / (s + k), and any guess behind a new context
 * with 1 / k. */
static void ngram_floor(void **state)
{
    enum { N = 3, K = 4, JUDGED = 320 };
    static const char       text[] = "ngram(n=3, symbols=4, length=64)";
    struct examples        *m = examples_open(text);
    const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                  .kind = FOCI_DATA_TASK,
                                  .task = text,
                                  .batch = 1,
                                  .seed = EXAMPLES_SEED,
                                  .split = FOCI_DATA_SPLIT_TEST };
    foci_data              *d = NULL;
    foci_floor              floor = { FOCI_SIZED(foci_floor) };
    double                  mean = 0, variance = 0, all = 0;

    (void)state;
    for (int first = 0; first < JUDGED; first += EXAMPLES_AT_ONCE) {
        examples_make(m, FOCI_DATA_SPLIT_TEST, first);
        for (int i = 0; i < EXAMPLES_AT_ONCE; i++)
            for (int64_t at = N - 2; at < m->e[i].n; at++) {
                int       of[16], best = 0;
                const int s = followers(m->e[i].ids, at, N, of);
                for (int v = 1; v <= K; v++)
                    best = of[v] > best ? of[v] : best;
                const double p = (best + 1.0) / (s + K);
                mean += p;
                variance += p * (1 - p);
                all++;
            }
    }
    assert_int_equal(foci_data_open(m->ctx, &o, &d), FOCI_OK);
    assert_int_equal(foci_data_floor(d, 4, JUDGED, &floor), FOCI_OK);
    assert_string_equal(floor.name, "n-gram in context");
    if (fabs(floor.accuracy * all - mean) > 4 * sqrt(variance))
        fail_msg("%s: %g, not %g", floor.name, floor.accuracy, mean / all);
    foci_data_free(d);
    examples_close(m);
}

/*
 * Refusals
 */

static void refused(void **state)
{
    static const struct {
        const char *text, *reason;
    } wrong[] = {
        { "selcopy(length=9)", "selcopy: tokens=16: there are only length=9 places" },
        { "selcopy(vocab=2)", "vocab=2: selcopy takes 3 to 1048576" },
        { "induction(length=2)", "length=2: induction takes 3 to 4194304" },
        { "induction(vocab=1)", "vocab=1: induction takes 2 to 1024" },
        { "ngram(n=1)", "n=1: ngram takes 2 to 8" },
        { "ngram(n=8, symbols=5)",
          "ngram: n=8: symbols=5 makes a model of more than 16384 numbers; take a "
          "smaller n or fewer symbols" },
        { "ngram(n=8, symbols=64)", "ngram: n=8: symbols=64 makes a model of more" },
        { "ngram(n=4, length=3)",
          "ngram: length=3 is below n=4: no symbol has a context" },
        { "phonebook(letters=1)",
          "phonebook: entries=16: letters=1 make 26 names, which is less than twice" },
        { "needle(queries=2)", "needle: queries=2: there are only keys=1" },
        { "needle(keys=9, values=9)",
          "needle: symbols=64: keys=9 with values=9 each take 81" },
        { "needle(keys=9, length=17)",
          "needle: length=17: keys=9 with values=1 each take 18" },
        { "vartrack(hops=20)",
          "vartrack: symbols=64: chains=4 of hops=20 take 84 variables" },
        { "vartrack(length=59)", "vartrack: length=59: chains=4 of hops=4 take 60" },
        { "vartrack(ask=all)", "ask=all: vartrack takes variables, value" },
    };
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct task t;
        assert_int_equal(task_parse(ctx, wrong[i].text, &t), FOCI_ERR_SPEC);
        if (!strstr(foci_errmsg(ctx), wrong[i].reason))
            fail_msg("'%s': \"%s\" should speak of \"%s\"", wrong[i].text,
                     foci_errmsg(ctx), wrong[i].reason);
        task_free(ctx, &t);
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_in_the_text),
        cmocka_unit_test(distances),
        cmocka_unit_test(hops),
        cmocka_unit_test(selcopy),
        cmocka_unit_test(induction),
        cmocka_unit_test(ngram),
        cmocka_unit_test(phonebook),
        cmocka_unit_test(needle),
        cmocka_unit_test(vartrack),
        cmocka_unit_test(floors),
        cmocka_unit_test(ngram_floor),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
