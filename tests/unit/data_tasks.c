/* data_tasks.c -- generators: what every one of them must keep, and the distributions of
 * each. */
#include <math.h>
#include <stdio.h>

#include "data/task/task.h"
#include "support/datasets.h"

/* Arguments that make short examples, one of each form. */
static const char *const texts[] = {
    "mqar(vocab=64, length=32)",
    "mqar(vocab=33, length=17, pairs=4, filler=noise, gap=uniform)",
    "mqar(vocab=10, length=16, pairs=4, filler=noise, compat=zoology, power=1.5)",
    "listops(depth=6, arguments=6, least=16, most=199)",
    "listops(depth=2, arguments=2, least=1, most=4)",
    "numbers",
    "numbers(to=vi, digits=3)",
    "numbers(tokens=chars)",
    "numbers(to=vi, tokens=chars)",
    "copy",
    "copy(form=row, symbols=1)",
    "reverse(form=masked)",
    "reverse(least=3, longest=3, test=5)",
    "mqar_mix(vocab=130)",
    "mqar-mix(vocab=514, form=published)",
    "mqar-update(vocab=64, length=40)",
    "mqar-update(vocab=9, length=15, pairs=3, updates=1, filler=noise, gap=uniform)",
    "mqar-pair(vocab=20)",
    "mqar-pair(vocab=10, length=27, grid=2, filler=noise)",
    "mad-recall(length=16)",
    "mad-recall(vocab=4, length=4, compat=mad)",
    "mad-noisy(length=24)",
    "mad-noisy(vocab=9, length=14, noise=0.8, symbols=4)",
    "mad-fuzzy(vocab=6, length=20)",
    "mad-fuzzy(length=40, compat=mad)",
    "mad-copy(length=40)",
    "mad-copy(vocab=4, length=9, tokens=4)",
    "mad-copy(length=30, tokens=5, positions=mad)",
    "mad-compress(vocab=5, length=6)",
    "mad-compress(compat=mad)",
    "mad-memorise(vocab=9)",
    "selcopy(length=20, tokens=5)",
    "selcopy(vocab=5, length=6, tokens=6)",
    "induction(length=20, test=30)",
    "induction(vocab=2, length=30, test=3)",
    "ngram(length=20)",
    "ngram(n=2, symbols=9, length=12)",
    "phonebook(entries=3)",
    "phonebook(entries=13, letters=1, digits=1)",
    "needle(length=20)",
    "needle(keys=4, values=3, queries=4, length=24, words=2, symbols=12)",
    "vartrack(length=66)",
    "vartrack(hops=1, chains=3, length=18, words=1, symbols=6, ask=value)",
};
enum { N_TEXTS = sizeof texts / sizeof *texts, AT_ONCE = 16 };

struct made {
    foci_ctx           *ctx;
    struct task         t;
    struct task_memory  memory;
    struct task_example e[AT_ONCE];
};

static struct made *open_task(const char *text)
{
    struct made *m = test_alloc(1, sizeof *m);

    m->ctx = test_ctx(NULL, 2);
    if (task_parse(m->ctx, text, &m->t)) fail_msg("%s: %s", text, foci_errmsg(m->ctx));
    assert_int_equal(task_memory_make(m->ctx, &m->t, AT_ONCE, &m->memory), FOCI_OK);
    return m;
}

static void close_task(struct made *m)
{
    task_memory_free(m->ctx, &m->memory);
    task_free(m->ctx, &m->t);
    foci_ctx_free(m->ctx);
    free(m);
}

/* Examples first to first + AT_ONCE. */
static void make(struct made *m, foci_data_split split, int64_t first)
{
    task_make(m->ctx, &m->memory, 9, split, first, AT_ONCE, m->e);
}

/*
 * All generators
 */

static void check_ids(const char *text, const int32_t *ids, int64_t n, int64_t vocab)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            fail_msg("%s: id %d of %lld", text, ids[i], (long long)vocab);
}

static void check_example(const char *text, const struct task *t,
                          const struct task_example *e)
{
    int n_labels = 0;

    assert_in_range(e->n, 1, t->len);
    check_ids(text, e->ids, e->n, t->vocab);
    for (int64_t i = e->n; i < t->len; i++)
        assert_int_equal(e->ids[i], TASK_PAD);
    if (t->kind == FOCI_DATA_CLASSIFY) {
        assert_null(e->labels);
        assert_in_range(e->answer, 0, t->n_classes - 1);
        return;
    }
    for (int64_t i = 0; i < t->len; i++) {
        assert_true(e->labels[i] >= -1 && e->labels[i] < t->vocab);
        assert_true(e->labels[i] == -1 || i < e->n);
        n_labels += e->labels[i] >= 0;
    }
    assert_true(n_labels > 0);
    if (t->kind != FOCI_DATA_TRANSLATE) return;
    assert_in_range(e->n_source, 1, t->source_len);
    check_ids(text, e->source, e->n_source, t->source_vocab);
}

static void all_keep_their_bounds(void **state)
{
    (void)state;
    for (int i = 0; i < N_TEXTS; i++) {
        struct made *m = open_task(texts[i]);
        for (int split = 0; split < 3; split++)
            for (int64_t first = 0; first < 160; first += AT_ONCE) {
                make(m, (foci_data_split)split, first);
                for (int e = 0; e < AT_ONCE; e++)
                    check_example(texts[i], &m->t, &m->e[e]);
            }
        close_task(m);
    }
}

/* The longest rows there can be do come, so rows are not longer than needed. */
static void rows_are_as_long_as_said(void **state)
{
    (void)state;
    for (int i = 0; i < N_TEXTS; i++) {
        struct made *m = open_task(texts[i]);
        int64_t      longest = 0, source = 0;
        /* Only the test split of copies has the longest ones. */
        for (int64_t first = 0; first < 40000; first += AT_ONCE) {
            make(m, first / AT_ONCE % 2 ? FOCI_DATA_SPLIT_TEST : FOCI_DATA_SPLIT_TRAIN,
                 first);
            for (int e = 0; e < AT_ONCE; e++) {
                longest = max64(longest, m->e[e].n);
                source = max64(source, m->e[e].n_source);
            }
        }
        /* Numbers of the most characters are rare: 373,373 and the like. */
        const bool rare = strstr(texts[i], "chars") != NULL;
        if (longest < m->t.len - 2 * rare || source < m->t.source_len - 2 * rare)
            fail_msg("%s: %lld of %lld, %lld of %lld", texts[i], (long long)longest,
                     (long long)m->t.len, (long long)source, (long long)m->t.source_len);
        close_task(m);
    }
}

static void splits_and_seeds_differ(void **state)
{
    (void)state;
    for (int i = 0; i < N_TEXTS; i++) {
        struct made *m = open_task(texts[i]);
        uint64_t     sums[4] = { 0 };
        for (int c = 0; c < 4; c++) {
            task_make(m->ctx, &m->memory, c == 3 ? 10 : 9, (foci_data_split)(c % 3), 0,
                      AT_ONCE, m->e);
            for (int e = 0; e < AT_ONCE; e++)
                for (int64_t t = 0; t < m->t.len; t++)
                    sums[c] = sums[c] * 31 + (uint64_t)m->e[e].ids[t] * 7 +
                              (m->e[e].labels ? (uint64_t)m->e[e].labels[t] : 0);
        }
        /* A copy of a single symbol and lists of one digit have little to differ in. */
        for (int c = 0; c < 4; c++)
            for (int d = 0; d < c; d++)
                assert_true(sums[c] != sums[d]);
        close_task(m);
    }
}

/* Texts print with all arguments and parse to the same. */
static void texts_print(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (int i = 0; i < N_TEXTS; i++) {
        struct task a, b;
        char        one[400], two[400];
        assert_int_equal(task_parse(ctx, texts[i], &a), FOCI_OK);
        assert_in_range(task_print(&a, one, sizeof one), 4, sizeof one);
        if (task_parse(ctx, one, &b)) fail_msg("%s: %s", one, foci_errmsg(ctx));
        (void)task_print(&b, two, sizeof two);
        assert_string_equal(one, two);
        assert_memory_equal(a.arg, b.arg, sizeof a.arg);
        task_free(ctx, &a);
        task_free(ctx, &b);
    }
    foci_ctx_free(ctx);
}

static void tasks_are_listed(void **state)
{
    foci_task_info info = { FOCI_SIZED(foci_task_info) }, bad = { .size = 1 };
    const int      n = foci_task_count();

    (void)state;
    for (int t = 0; t < n; t++) {
        assert_int_equal(foci_task(t, &info), FOCI_OK);
        assert_non_null(info.name);
        assert_non_null(info.summary);
        assert_non_null(info.source);
        assert_true(info.version >= 1);
        for (size_t i = 0; i < info.n_args; i++) {
            assert_non_null(info.args[i].name);
            assert_non_null(info.args[i].help);
        }
    }
    assert_true(n > 12);
    assert_int_equal(foci_task(-1, &info), FOCI_ERR_ARG);
    assert_int_equal(foci_task(n, &info), FOCI_ERR_ARG);
    char message[64];
    snprintf(message, sizeof message, "task %d: there are %d", n, n);
    assert_string_equal(foci_errmsg(NULL), message);
    assert_int_equal(foci_task(0, &bad), FOCI_ERR_ARG);
    assert_int_equal(foci_task(0, NULL), FOCI_ERR_ARG);
}

static void refused(void **state)
{
    static const struct {
        const char *text, *reason;
    } wrong[] = {
        { "", "column 1: the name of a task is wanted" },
        { "mqr", "unknown task \"mqr\"; the nearest is \"mqar\"" },
        { "mqar(size=3)", "column 6: unknown argument \"size\" of mqar" },
        { "mqar(pairs=0)", "pairs=0: mqar takes 1 to 262144" },
        { "mqar(filler=dust)", "filler=dust: mqar takes zero, noise" },
        { "mqar(filler=nois)",
          "filler=nois: mqar takes zero, noise; the nearest is \"noise\"" },
        { "xyzzy", "unknown task \"xyzzy\"; \"foci task\" names all there are" },
        { "mqar(pairs=17)",
          "mqar: length=64: 17 pairs and a question for each take 68" },
        { "mqar(vocab=8)", "mqar: pairs=4: vocab=8 has only 3 keys" },
        { "mqar softmax", "\"softmax\" is not expected after the task" },
        { "mqar(64", "has no \")\"" },
        { "copy(least=26)", "copy: longest=25 is below least=26: no length is left" },
        { "reverse(test=2, least=3)", "reverse: test=2 is below least=3" },
        { "numbers(digits=7)", "digits=7: numbers takes 2 to 6" },
        { "listops(least=9, most=8)", "listops: least=9 is above most=8" },
        { "mqar-", "unknown task \"mqar-\"; the nearest is \"mqar\"" },
        { "mqar-mixed", "unknown task \"mqar-mixed\"; the nearest is \"mqar-mix\"" },
        { "mqar-mix(vocab=129)", "mqar-mix: pairs=64: vocab=129 has only 63 keys" },
        { "mqar-mix(vocab=512, form=published)",
          "mqar-mix: pairs=256: vocab=512 has only 255 keys" },
        { "mqar-update(pairs=3)", "mqar-update: updates=4 is above pairs=3" },
        { "mqar-update(length=39)",
          "length=39: pairs, updates and a question for each key take 40" },
        { "mqar-update(vocab=22)",
          "vocab=22: keys and values take 23 tokens at least" },
        { "mqar-pair(length=53)", "mqar-pair: length=53: 9 keys of two tokens" },
        { "mqar-pair(vocab=16)", "mqar-pair: grid=3 takes a vocab of 17 at least" },
        { "mqar-pair(vocab=9, grid=2)", "grid=2 takes a vocab of 10 at least" },
        { "mad-recall(length=7)", "mad-recall: length is odd" },
        { "mad-noisy(vocab=17)",
          "mad-noisy: vocab=17 has no keys and values beside 16" },
        { "mad-noisy(noise=1)", "noise=1: mad-noisy takes 0 to 0.999" },
        { "mad-fuzzy(length=17)", "mad-fuzzy: length=17: three pairs" },
        { "mad-fuzzy(vocab=5)", "mad-fuzzy: vocab=5 has 2 symbols of keys and 3" },
        { "mad-fuzzy(vocab=6, compat=mad)", "vocab=6 has 2 symbols of keys and 3" },
        { "mad-copy(length=32)", "mad-copy: length=32: 16 tokens, a marker" },
        { "mad-memorise(length=31)", "mad-memorise: length is odd" },
        { "listops(depth=2)",
          "listops: lists of 501 to 1999 tokens are too rare with depth=2" },
    };
    foci_ctx *ctx = test_ctx(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .kind = FOCI_DATA_TASK, .task = wrong[i].text,
                                      .batch = 2 };
        foci_data              *d = NULL;
        assert_int_equal(foci_data_open(ctx, &o, &d), FOCI_ERR_SPEC);
        assert_null(d);
        if (!strstr(foci_errmsg(ctx), wrong[i].reason))
            fail_msg("'%s': \"%s\" should speak of \"%s\"", wrong[i].text,
                     foci_errmsg(ctx), wrong[i].reason);
    }
    const foci_data_options o = { FOCI_SIZED(foci_data_options), .kind = FOCI_DATA_TASK,
                                  .task = "mqar", .batch = 2, .len = 63 };
    foci_data              *d = NULL;
    assert_int_equal(foci_data_open(ctx, &o, &d), FOCI_ERR_ARG);
    assert_string_equal(foci_errmsg(ctx), "len=63: examples of mqar have up to 64");
    foci_ctx_free(ctx);
}

/*
 * Batches of tasks
 */

/* Every example of a pass once, and each label with its slices. */
static void passes(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 2);

    (void)state;
    for (int i = 0; i < N_TEXTS; i++) {
        struct made            *m = open_task(texts[i]);
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .kind = FOCI_DATA_TASK,
                                      .task = texts[i],
                                      .batch = 7,
                                      .examples = AT_ONCE,
                                      .seed = 9,
                                      .split = FOCI_DATA_SPLIT_TEST,
                                      .order = FOCI_DATA_ORDER_ONCE };
        foci_data              *d = NULL;
        foci_data_info          info = { FOCI_SIZED(foci_data_info) };
        int                     seen[AT_ONCE] = { 0 };
        assert_int_equal(foci_data_open(ctx, &o, &d), FOCI_OK);
        assert_int_equal(foci_data_get_info(d, &info), FOCI_OK);
        assert_int_equal(info.n_examples, AT_ONCE);
        const int n_slices = task_n_slices(&m->t);
        assert_int_equal(info.n_slices, n_slices);
        assert_int_equal(foci_data_slice_count(d), n_slices);
        assert_non_null(foci_data_slice(d, n_slices - 1));
        assert_null(foci_data_slice(d, n_slices));
        make(m, FOCI_DATA_SPLIT_TEST, 0);
        for (foci_batch b = datasets_next(d); b.batch; b = datasets_next(d)) {
            int64_t l = 0;
            for (int64_t r = 0; r < b.batch; r++) {
                const struct task_example *e = &m->e[b.examples[r]];
                seen[b.examples[r]]++;
                assert_int_equal(b.lens[r], e->n);
                assert_memory_equal(b.ids + r * b.len, e->ids, (size_t)e->n * 4);
                if (b.classes) {
                    assert_int_equal(b.classes[r], e->answer);
                    for (int s = 0; s < n_slices; s++)
                        assert_int_equal(b.slices[s * b.batch + r], e->slices[s]);
                    continue;
                }
                assert_memory_equal(b.labels + r * b.len, e->labels, (size_t)e->n * 4);
                for (int64_t t = 0; t < e->n; t++) {
                    if (e->labels[t] < 0) continue;
                    assert_int_equal(b.label_at[l], r * b.len + t);
                    for (int s = 0; s < n_slices; s++)
                        assert_int_equal(b.slices[s * b.n_labels + l],
                                         e->slices[s * m->t.len + t]);
                    l++;
                }
            }
            if (!b.classes) assert_int_equal(l, b.n_labels);
        }
        for (int e = 0; e < AT_ONCE; e++)
            assert_int_equal(seen[e], 1);
        foci_data_free(d);
        close_task(m);
    }
    foci_ctx_free(ctx);
}

/* Without a number of examples none comes twice, and the pass has no end. */
static void for_ever(void **state)
{
    const foci_data_options o = { FOCI_SIZED(foci_data_options), .kind = FOCI_DATA_TASK,
                                  .task = texts[0], .batch = 4 };
    foci_ctx               *ctx = test_ctx(NULL, 1);
    foci_data              *d = NULL;
    foci_data_info          info = { FOCI_SIZED(foci_data_info) };
    static char             seen[4000];
    int                     in_order = 0;

    (void)state;
    assert_int_equal(foci_data_open(ctx, &o, &d), FOCI_OK);
    assert_int_equal(foci_data_get_info(d, &info), FOCI_OK);
    assert_int_equal(info.n_examples, -1);
    assert_int_equal(info.n_batches, -1);
    assert_true(info.streams);
    for (int n = 0; n < 640; n++) {
        const foci_batch b = datasets_next(d);
        assert_int_equal(b.pass, 0);
        assert_int_equal(b.index, n);
        for (int64_t r = 0; r < b.batch; r++) {
            assert_in_range(b.examples[r], 0, sizeof seen - 1);
            assert_int_equal(seen[b.examples[r]]++, 0);
            if (r) in_order += b.examples[r] > b.examples[r - 1];
        }
    }
    for (int i = 0; i < 2560; i++)
        assert_int_equal(seen[i], 1); /* ten blocks of 64 batches */
    assert_in_range(in_order, 800, 1120);
    foci_data_free(d);
    foci_ctx_free(ctx);
}

static void floors(void **state)
{
    static const struct {
        const char *task;
        int         rule;
        const char *name;
        double      least, most;
    } known[] = {
        { "mqar(vocab=64, length=32)", 0, "chance", 1 / 32.0, 1 / 32.0 },
        { "mqar(vocab=64, length=32)", 1, "most frequent", 0.01, 0.06 },
        { "mqar(vocab=64, length=32)", 2, "last value", 0.25, 0.25 },
        { "mqar(vocab=64, length=32)", 3, "values in order", 0.25, 0.35 },
        /* As measured on lists made elsewhere: 12.4 and 26.2 %. */
        { "listops(6, 6, 16, 199)", 1, "most frequent", 0.10, 0.15 },
        { "listops(6, 6, 16, 199)", 2, "root operator", 0.23, 0.29 },
        { "listops(6, 6, 16, 199)", 3, "root operator on its digits", 0.41, 0.48 },
        { "reverse(longest=1, test=1)", 3, "symbol at the same place", 1, 1 },
        { "copy(longest=1, test=1)", 2, "last symbol", 0.5, 0.5 },
    };
    foci_ctx *ctx = test_ctx(NULL, 2);

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const foci_data_options o = { FOCI_SIZED(foci_data_options),
                                      .kind = FOCI_DATA_TASK, .task = known[i].task,
                                      .batch = 1, .split = FOCI_DATA_SPLIT_VALID };
        foci_data              *d = NULL;
        foci_floor              floor = { FOCI_SIZED(foci_floor) };
        assert_int_equal(foci_data_open(ctx, &o, &d), FOCI_OK);
        assert_int_equal(foci_data_floor(d, known[i].rule, 2000, &floor), FOCI_OK);
        assert_string_equal(floor.name, known[i].name);
        if (floor.accuracy < known[i].least || floor.accuracy > known[i].most)
            fail_msg("%s, %s: %g, not %g to %g", known[i].task, floor.name,
                     floor.accuracy, known[i].least, known[i].most);
        const int n = foci_data_floor_count(d);
        assert_true(known[i].rule < n);
        assert_int_equal(foci_data_floor(d, n - 1, 10, &floor), FOCI_OK);
        assert_non_null(floor.name);
        assert_int_equal(foci_data_floor(d, n, 10, &floor), FOCI_ERR_ARG);
        assert_int_equal(foci_data_floor(d, -1, 10, &floor), FOCI_ERR_ARG);
        assert_int_equal(foci_data_floor(d, 0, 0, &floor), FOCI_ERR_ARG);
        assert_int_equal(foci_data_floor(d, 0, 1, NULL), FOCI_ERR_ARG);
        foci_data_free(d);
    }
    foci_ctx_free(ctx);
}

/*
 * Rules and distributions of each
 */

/* Within four and a half standard deviations of a share. */
static void about(const char *what, double seen, double share, double of)
{
    const double mean = share * of, spread = 4.5 * sqrt(mean * (1 - share));
    if (fabs(seen - mean) > spread)
        fail_msg("%s: %.0f of %.0f, expected %.1f +- %.1f", what, seen, of, mean,
                 spread);
}

/* Keys below values, none twice, every key asked once at an even place. */
static void check_mqar(const struct made *m, const struct task_example *e, int pairs,
                       bool noise)
{
    const int half = (int)m->t.vocab / 2;
    int       asked = 0;

    for (int a = 0; a < 2 * pairs; a++) {
        assert_in_range(e->ids[a], a % 2 ? half : 1, a % 2 ? m->t.vocab - 1 : half - 1);
        assert_int_equal(e->labels[a], -1);
        for (int b = 0; b < a; b++)
            assert_true(e->ids[a] != e->ids[b]);
    }
    for (int64_t i = 2 * pairs; i < m->t.len; i++) {
        int of = -1;
        for (int p = 0; p < 2 * pairs; p++)
            if (e->ids[p] == e->ids[i]) of = p;
        if (e->labels[i] < 0) {
            assert_true(of < 0);
            assert_true(noise || e->ids[i] == 0);
            continue;
        }
        asked++;
        assert_true(of >= 0 && of % 2 == 0 && i % 2 == 0);
        assert_int_equal(e->labels[i], e->ids[of + 1]);
        assert_int_equal(e->slices[i], pairs);
        assert_int_equal(e->slices[m->t.len + i], i - of);
    }
    assert_int_equal(asked, pairs);
}

/* The first key takes place i with a share of its weight alone. */
static void mqar(void **state)
{
    static const char *const forms[] = {
        "mqar(vocab=64, length=32, power=0.5)",
        "mqar(vocab=64, length=32, gap=uniform, filler=noise)",
    };
    enum { EXAMPLES = 8000, PLACES = 12 };

    (void)state;
    for (int f = 0; f < 2; f++) {
        struct made *m = open_task(forms[f]);
        double       places[PLACES] = { 0 }, total = 0, zeros = 0, keys[32] = { 0 };
        for (int first = 0; first < EXAMPLES; first += AT_ONCE) {
            make(m, FOCI_DATA_SPLIT_TRAIN, first);
            for (int i = 0; i < AT_ONCE; i++) {
                const struct task_example *e = &m->e[i];
                check_mqar(m, e, 4, f == 1);
                keys[e->ids[0]]++;
                for (int64_t at = 8; at < 32; at++) {
                    if (e->labels[at] == e->ids[1]) places[(at - 8) / 2]++;
                    zeros += e->ids[at] == 0;
                }
            }
        }
        for (int i = 0; i < PLACES; i++)
            total += f ? 1 : 1 / sqrt(i + 1);
        for (int i = 0; i < PLACES; i++)
            about(forms[f], places[i], (f ? 1 : 1 / sqrt(i + 1)) / total, EXAMPLES);
        for (int k = 1; k < 32; k++)
            about("keys", keys[k], 1 / 31.0, EXAMPLES);
        /* Noise is any token but the eight of the sequence: 0 is one of 56. */
        if (f) about("zeros", zeros, 1 / 56.0, EXAMPLES * 20.0);
        close_task(m);
    }
}

/* Any noise, keys and values of the sequence too. */
static void mqar_as_published(void **state)
{
    struct made *m = open_task(texts[2]);
    double       again = 0, all = 0;

    (void)state;
    for (int first = 0; first < 4000; first += AT_ONCE) {
        make(m, FOCI_DATA_SPLIT_TRAIN, first);
        for (int i = 0; i < AT_ONCE; i++)
            for (int64_t at = 8; at < 16; at++) {
                if (m->e[i].labels[at] >= 0) continue;
                all++;
                for (int p = 0; p < 8; p++)
                    again += m->e[i].ids[at] == m->e[i].ids[p];
            }
    }
    about("keys and values among the noise", again, 0.8, all);
    close_task(m);
}

static void listops(void **state)
{
    struct made *m = open_task("listops(6, 6, 16, 199)");
    double       operators[5] = { 0 }, digits[10] = { 0 }, all = 0, n = 0, length = 0;

    (void)state;
    for (int first = 0; first < 4000; first += AT_ONCE) {
        make(m, FOCI_DATA_SPLIT_TRAIN, first);
        for (int i = 0; i < AT_ONCE; i++) {
            const struct task_example *e = &m->e[i];
            int64_t                    level = 0;
            assert_in_range(e->n, 16, 199);
            assert_int_equal(e->slices[0], e->n);
            for (int64_t t = 0; t < e->n; t++) {
                const int32_t id = e->ids[t];
                level += (id >= 11 && id < 15) - (id == 15);
                assert_true(level >= 0 && level < 6);
                if (id < 11) digits[id - 1]++;
                if (id >= 11) operators[id - 11]++;
                all += id < 11;
            }
            assert_int_equal(level, 0);
            length += (double)e->n;
            n++;
        }
    }
    for (int d = 0; d < 10; d++)
        about("digits", digits[d], 0.1, all);
    for (int o = 0; o < 4; o++)
        about("operators", operators[o], 0.25, operators[4]);
    assert_true(fabs(length / n - 46) < 2); /* as of lists made elsewhere */
    close_task(m);
}

/* Values of lists that were made elsewhere. */
static void list_values(void **state)
{
    static const struct {
        const char *list;
        int         value;
    } lists[] = {
        { "7", 7 },
        { "[MAX 2 9 [MIN 4 7 ] 0 ]", 9 },
        { "[MED 1 4 ]", 2 },
        { "[MED 5 1 9 ]", 5 },
        { "[MED 7 [MAX 9 7 2 [MAX [SM 8 6 ] 7 4 [SM 3 6 [MAX 4 9 6 2 ] ] ] ] 9 5 ]", 8 },
        { "[MED 1 3 8 1 [MAX 5 2 9 0 [MIN 9 0 7 [MAX [SM 4 2 ] 8 0 4 ] [MED 8 [MAX 9 0 "
          "8 "
          "1 4 6 ] 1 ] 7 ] ] ]",
          3 },
        { "[MED 9 2 [SM [MED 8 2 4 [MIN [SM 7 2 9 9 ] 5 [SM 3 5 6 ] [SM 7 1 5 9 ] 0 ] "
          "8 ] "
          "6 2 2 ] 5 1 ]",
          4 },
    };
    static const char *const words[] = { "[MIN", "[MAX", "[MED", "[SM", "]" };

    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char    text[200];
        int32_t ids[100];
        int     n = 0;
        strcpy(text, lists[i].list);
        for (char *w = strtok(text, " "); w; w = strtok(NULL, " ")) {
            ids[n] = 1 + *w - '0';
            for (int o = 0; o < 5; o++)
                if (!strcmp(w, words[o])) ids[n] = 11 + o;
            n++;
        }
        assert_int_equal(listops_value(ids), lists[i].value);
    }
}

/* Digits are as often as said, and splits have no number in common. */
static void numbers(void **state)
{
    static const foci_data_split splits[] = { FOCI_DATA_SPLIT_TRAIN,
                                              FOCI_DATA_SPLIT_VALID,
                                              FOCI_DATA_SPLIT_TEST };
    struct made                 *m = open_task("numbers(digits=3)");
    static char                  seen[3][1 << 16]; /* a hash of each source */
    double                       digits[4] = { 0 };
    int                          n[3] = { 0 };

    (void)state;
    for (int s = 0; s < 3; s++)
        for (int first = 0; first < 16000; first += AT_ONCE) {
            make(m, splits[s], first);
            for (int i = 0; i < AT_ONCE; i++) {
                const struct task_example *e = &m->e[i];
                uint64_t                   sum = 1;
                for (int64_t t = 0; t < e->n_source; t++)
                    sum = rng_absorb(sum, (uint64_t)e->source[t]);
                if (!seen[s][sum & 0xffff]++) n[s]++;
                seen[s][sum & 0xffff] = 1;
                if (s == 0) digits[e->slices[0]]++;
            }
        }
    assert_in_range(n[0], 740, 860);
    assert_in_range(n[1], 70, 130);
    assert_in_range(n[2], 70, 130);
    assert_true(n[0] + n[1] + n[2] <= 1000 && n[0] + n[1] + n[2] >= 985);
    int both = 0;
    for (int h = 0; h < 1 << 16; h++)
        both += seen[0][h] + seen[1][h] + seen[2][h] > 1;
    assert_in_range(both, 0, 12); /* of the hashes, not of the numbers */
    for (int d = 1; d <= 3; d++)
        assert_true(digits[d] > 16000 / 3.0 * 0.7 && digits[d] < 16000 / 3.0 * 1.3);
    close_task(m);
}

static void copies(void **state)
{
    struct made *m = open_task("copy(symbols=7, least=2, longest=5, test=6)");
    double       lengths[8] = { 0 }, symbols[7] = { 0 }, all = 0;

    (void)state;
    for (int first = 0; first < 8000; first += AT_ONCE) {
        make(m, FOCI_DATA_SPLIT_VALID, first);
        for (int i = 0; i < AT_ONCE; i++) {
            lengths[m->e[i].n_source - 1]++;
            for (int64_t t = 0; t + 1 < m->e[i].n_source; t++, all++)
                symbols[m->e[i].source[t] - 5]++;
        }
    }
    assert_true(lengths[0] + lengths[1] + lengths[6] == 0);
    for (int n = 2; n <= 5; n++)
        about("lengths", lengths[n], 0.25, 8000);
    for (int s = 0; s < 7; s++)
        about("symbols", symbols[s], 1 / 7.0, all);
    close_task(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_keep_their_bounds),
        cmocka_unit_test(rows_are_as_long_as_said),
        cmocka_unit_test(splits_and_seeds_differ),
        cmocka_unit_test(texts_print),
        cmocka_unit_test(tasks_are_listed),
        cmocka_unit_test(refused),
        cmocka_unit_test(passes),
        cmocka_unit_test(for_ever),
        cmocka_unit_test(floors),
        cmocka_unit_test(mqar),
        cmocka_unit_test(mqar_as_published),
        cmocka_unit_test(listops),
        cmocka_unit_test(list_values),
        cmocka_unit_test(numbers),
        cmocka_unit_test(copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
