/* tasks_recall.c -- distributions and rules of the tasks of recall and of MAD. */
#include <math.h>

#include "support/examples.h"

enum { N = 8000, MOST = 64 };

/* Counts of up to MOST kinds. */
struct counts {
    double n[MOST], all;
};

static void count(struct counts *c, int64_t kind)
{
    assert_in_range(kind, 0, MOST - 1);
    c->n[kind]++;
    c->all++;
}

/* Kinds from..to - 1 are equally likely, and there are no others. */
static void all_alike(const char *what, const struct counts *c, int from, int to)
{
    for (int k = 0; k < MOST; k++) {
        if (k >= from && k < to)
            examples_about(what, c->n[k], 1.0 / (to - from), c->all);
        else
            assert_true(c->n[k] == 0);
    }
}

/* How many places have a label. */
static int n_labels(const struct task_example *e)
{
    int n = 0;
    for (int64_t i = 0; i < e->n; i++)
        n += e->labels[i] >= 0;
    return n;
}

/*
 * The mixture
 */

struct mixture {
    const int (*settings)[3]; /* length, pairs, examples of a run; up to 0 */
    int           run, at, left[8];
    struct counts place; /* of the second setting in its run */
};

static void look_mixture(const struct examples *m, const struct task_example *e,
                         void *user)
{
    struct mixture *x = user;
    int             of = -1, pairs = n_labels(e);

    if (x->at % x->run == 0)
        for (int s = 0; x->settings[s][0]; s++)
            x->left[s] = x->settings[s][2];
    for (int s = 0; x->settings[s][0]; s++)
        if (x->settings[s][0] == e->n && x->settings[s][1] == pairs) of = s;
    assert_true(of >= 0);
    assert_true(x->left[of]-- > 0);
    if (of == 1) count(&x->place, x->at % x->run);
    for (int64_t i = 0; i < e->n; i++) {
        if (e->labels[i] < 0) continue;
        assert_int_equal(e->slices[i], pairs);
        assert_int_equal(e->slices[2 * m->t.len + i], e->n);
        assert_int_equal(e->ids[i - e->slices[m->t.len + i] + 1], e->labels[i]);
    }
    x->at++;
}

/* Every run has each setting as often as it should, in an order of its own. */
static void mqar_mix(void **state)
{
    static const int train[][3] = { { 64, 4, 5 },   { 128, 8, 1 },  { 256, 16, 1 },
                                    { 256, 32, 1 }, { 256, 64, 1 }, { 0 } };
    static const int brief[][3] = { { 64, 4, 1 },   { 64, 8, 1 },   { 64, 16, 1 },
                                    { 128, 32, 1 }, { 256, 64, 1 }, { 0 } };
    static const int test[][3] = { { 64, 4, 1 },     { 64, 8, 1 },   { 64, 16, 1 },
                                   { 128, 32, 1 },   { 256, 64, 1 }, { 512, 128, 1 },
                                   { 1024, 256, 1 }, { 0 } };
    static const struct {
        const char     *task;
        foci_data_split split;
        const int (*settings)[3];
        int run, runs;
    } all[] = {
        { "mqar-mix", FOCI_DATA_SPLIT_TRAIN, train, 9, 400 },
        { "mqar-mix", FOCI_DATA_SPLIT_VALID, brief, 5, 200 },
        { "mqar-mix(vocab=514, form=published)", FOCI_DATA_SPLIT_TEST, test, 7, 100 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct examples *m = examples_open(all[i].task);
        struct mixture   x = { .settings = all[i].settings, .run = all[i].run };
        examples_each(m, all[i].split, (int64_t)all[i].run * all[i].runs, look_mixture,
                      &x);
        all_alike(all[i].task, &x.place, 0, all[i].run);
        examples_close(m);
    }
}

/*
 * Keys bound anew, and keys of two tokens
 */

struct update {
    struct counts anew, place;
};

static void look_update(const struct examples *m, const struct task_example *e,
                        void *user)
{
    struct update *x = user;

    assert_int_equal(n_labels(e), 8);
    for (int64_t at = 24; at < e->n; at++) {
        int64_t first = -1, last = -1, times = 0;
        if (e->labels[at] < 0) continue;
        for (int64_t i = 0; i < 24; i += 2)
            if (e->ids[i] == e->ids[at]) {
                if (first < 0) first = i;
                last = i;
                times++;
            }
        assert_in_range(times, 1, 2);
        assert_true(at % 2 == 0 && first < 16 && (times == 1 || last >= 16));
        assert_int_equal(e->labels[at], e->ids[last + 1]);
        assert_int_equal(e->slices[at], times - 1);
        assert_int_equal(e->slices[m->t.len + at], at - last);
        if (times == 2) count(&x->anew, first / 2);
        if (first == 0) count(&x->place, (at - 24) / 2);
    }
    for (int64_t i = 1; i < 24; i += 2)
        for (int64_t j = 1; j < i; j += 2)
            assert_int_not_equal(e->ids[i], e->ids[j]);
}

/* Each key is as likely to be bound anew, and asked first where it is near. */
static void mqar_update(void **state)
{
    struct examples *m = examples_open("mqar-update(power=0.5, filler=noise)");
    struct update    x = { 0 };
    double           total = 0;

    (void)state;
    examples_each(m, FOCI_DATA_SPLIT_TRAIN, N, look_update, &x);
    assert_true(x.anew.all == 4.0 * N);
    all_alike("keys bound anew", &x.anew, 0, 8);
    for (int i = 1; i <= 20; i++)
        total += 1 / sqrt(i);
    for (int i = 1; i <= 20; i++)
        examples_about("places of the first key", x.place.n[i - 1], 1 / sqrt(i) / total,
                       N);
    examples_close(m);
}

struct grid {
    struct counts order, place, zeros;
};

static void look_grid(const struct examples *m, const struct task_example *e, void *user)
{
    struct grid *x = user;
    int          others[2] = { 0 };

    assert_int_equal(n_labels(e), 9);
    for (int64_t k = 0; k < 27; k += 3) {
        const int32_t *key = e->ids + k;
        others[0] += key[0] != e->ids[0];
        others[1] += key[1] != e->ids[1];
        for (int64_t i = 0; i < k; i += 3)
            assert_true((key[0] != e->ids[i] || key[1] != e->ids[i + 1]) &&
                        key[2] != e->ids[i + 2]);
        int64_t at = 28;
        while (e->labels[at] != key[2])
            at++;
        assert_true(at % 3 == 1 && e->ids[at - 1] == key[0] && e->ids[at] == key[1]);
        assert_int_equal(e->slices[at], 9);
        assert_int_equal(e->slices[m->t.len + at], at - k - 1);
        if (k == 0) count(&x->place, at / 3 - 9);
        if (k) count(&x->order, (key[0] == e->ids[0]) + 2 * (key[1] == e->ids[1]));
    }
    assert_true(others[0] == 6 && others[1] == 6);
    for (int64_t i = 27; i < e->n; i++)
        if (e->labels[i] < 0 && (i + 1 == e->n || e->labels[i + 1] < 0))
            count(&x->zeros, e->ids[i] == 0);
}

static void mqar_pair(void **state)
{
    struct examples *m =
        examples_open("mqar-pair(vocab=40, length=64, filler=noise, gap=uniform)");
    struct grid x = { 0 };

    (void)state;
    examples_each(m, FOCI_DATA_SPLIT_TEST, N, look_grid, &x);
    all_alike("places of the first key", &x.place, 0, 12);
    /* Of the other eight keys two share the first token, two the second. */
    assert_true(x.order.n[1] == 2.0 * N && x.order.n[2] == 2.0 * N);
    examples_about("zeros among the noise", x.zeros.n[1], 1 / 25.0, x.zeros.all);
    examples_close(m);
}

/*
 * Streams of keys and values
 */

struct stream {
    int           keys, values, noise;
    struct counts key, value, symbols, noisy, last;
};

static void look_stream(const struct examples *m, const struct task_example *e,
                        void *user)
{
    struct stream *x = user;
    int            value[MOST] = { 0 }, at[MOST], seen = 0;

    for (int i = 0; i < e->n; i += 2) {
        const int k = e->ids[i], v = e->ids[i + 1];
        assert_int_equal(e->labels[i + 1], -1);
        const bool noisy = k > x->keys + x->values;
        if (i + 2 < e->n) count(&x->noisy, noisy);
        if (noisy) {
            count(&x->symbols, k - x->keys - x->values - 1);
            count(&x->symbols, v - x->keys - x->values - 1);
            assert_int_equal(e->labels[i], -1);
            continue;
        }
        assert_in_range(k, 1, x->keys);
        assert_in_range(v, x->keys + 1, x->keys + x->values);
        if (i + 2 < e->n) count(&x->key, k - 1);
        if (value[k]) {
            assert_int_equal(v, value[k]);
            assert_int_equal(e->labels[i], v);
            assert_int_equal(e->slices[i], seen);
            assert_int_equal(e->slices[m->t.len + i], i - at[k]);
        } else {
            assert_int_equal(e->labels[i], -1);
            count(&x->value, v - x->keys - 1);
            seen++;
        }
        value[k] = v;
        at[k] = i;
    }
    assert_true(e->labels[e->n - 2] >= 0);
    if (seen == 3) { /* which of three the last one asks, by its first place */
        int before = 0;
        for (int i = 0; e->ids[i] != e->ids[e->n - 2]; i += 2) {
            bool again = e->ids[i] > x->keys;
            for (int j = 0; j < i; j += 2)
                again = again || e->ids[i] == e->ids[j];
            before += !again;
        }
        count(&x->last, before);
    }
}

static void streams(void **state)
{
    struct examples *m = examples_open("mad-recall(vocab=9, length=20)");
    struct stream    x = { .keys = 4, .values = 5 };

    (void)state;
    examples_each(m, FOCI_DATA_SPLIT_TRAIN, N, look_stream, &x);
    all_alike("keys", &x.key, 0, 4);
    all_alike("values", &x.value, 0, 5);
    all_alike("the last key", &x.last, 0, 3);
    examples_close(m);

    m = examples_open("mad-noisy(vocab=15, length=22, noise=0.3, symbols=6)");
    x = (struct stream){ .keys = 4, .values = 5 };
    examples_each(m, FOCI_DATA_SPLIT_TEST, N, look_stream, &x);
    all_alike("keys", &x.key, 0, 4);
    all_alike("values", &x.value, 0, 5);
    all_alike("the last key", &x.last, 0, 3);
    all_alike("noise", &x.symbols, 0, 6);
    examples_about("pairs of noise", x.noisy.n[1], 0.3 * 9 / 10, x.noisy.all);
    examples_close(m);
}

/* As published every token is a label, in training alone. */
static void labels_everywhere(void **state)
{
    static const char *const tasks[] = { "mad-recall(compat=mad)",
                                         "mad-fuzzy(compat=mad)" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct examples *m = examples_open(tasks[i]);
        examples_make(m, FOCI_DATA_SPLIT_VALID, 0);
        for (int e = 0; e < EXAMPLES_AT_ONCE; e++)
            assert_true(n_labels(&m->e[e]) < m->e[e].n / 2);
        examples_make(m, FOCI_DATA_SPLIT_TRAIN, 0);
        for (int e = 0; e < EXAMPLES_AT_ONCE; e++)
            for (int64_t t = 0; t + 1 < m->e[e].n; t++)
                assert_int_equal(m->e[e].labels[t], m->e[e].ids[t + 1]);
        examples_close(m);
    }
}

/*
 * Keys and values of several symbols
 */

struct fuzzy {
    struct counts key, value, symbol, asked;
    int           keys;
};

/* Where the pair that begins at i ends; *key: symbols of its key. */
static int64_t pair_end(const struct task_example *e, int keys, int64_t i, int64_t *key)
{
    int64_t j = i;
    while (j < e->n && e->ids[j] <= keys)
        j++;
    *key = j - i;
    while (j < e->n && e->ids[j] > keys)
        j++;
    return j;
}

static bool same_key(const struct task_example *e, int64_t a, int64_t b, int64_t n)
{
    return !memcmp(e->ids + a, e->ids + b, (size_t)n * sizeof *e->ids);
}

/* Where the pair at i stood last before, -1 if it did not; pairs start at `begin`. */
static int64_t seen_at(const struct task_example *e, int keys, int64_t begin, int64_t i,
                       int64_t key)
{
    int64_t last = -1, other;

    for (int64_t j = begin, end; j < i; j = end) {
        end = pair_end(e, keys, j, &other);
        if (other == key && same_key(e, i, j, key)) last = j;
    }
    return last;
}

static void look_fuzzy(const struct examples *m, const struct task_example *e,
                       void *user)
{
    struct fuzzy *x = user;
    int64_t       begin = 0, key, end;

    while (x->keys == 7 && e->ids[begin] == 16) /* what fills up in front */
        assert_int_equal(e->labels[begin++], -1);
    for (int64_t i = begin; i < e->n; i = end) {
        end = pair_end(e, x->keys, i, &key);
        const int64_t last = seen_at(e, x->keys, begin, i, key);
        if (i == begin) {
            count(&x->key, key);
            count(&x->value, end - key - i);
            count(&x->symbol, e->ids[i] - 1);
        }
        if (end == e->n) count(&x->asked, last >= 0);
        for (int64_t j = i + key - 1; j + 1 < end; j++) {
            if (last < 0) {
                assert_true(e->labels[j] == -1 || end == e->n);
                continue;
            }
            assert_int_equal(e->labels[j], e->ids[last + j + 1 - i]);
            assert_int_equal(e->labels[j], e->ids[j + 1]);
            assert_int_equal(e->slices[j], key);
            assert_int_equal(e->slices[m->t.len + j], i - last);
        }
    }
}

static void fuzzy(void **state)
{
    struct examples *m = examples_open("mad-fuzzy");
    struct fuzzy     x = { .keys = 8 };

    (void)state;
    examples_each(m, FOCI_DATA_SPLIT_TRAIN, 3000, look_fuzzy, &x);
    all_alike("sizes of keys", &x.key, 1, 4);
    all_alike("sizes of values", &x.value, 1, 4);
    all_alike("symbols", &x.symbol, 0, 8);
    assert_true(x.asked.n[0] == 0);
    x = (struct fuzzy){ .keys = 8 };
    examples_each(m, FOCI_DATA_SPLIT_TEST, 1000, look_fuzzy, &x);
    assert_true(x.key.n[3] == x.key.all);
    assert_true(x.asked.n[0] == 0);
    examples_close(m);

    /* As published some questions have no answer. */
    m = examples_open("mad-fuzzy(compat=mad)");
    x = (struct fuzzy){ .keys = 7 };
    examples_each(m, FOCI_DATA_SPLIT_VALID, 2000, look_fuzzy, &x);
    assert_true(x.asked.n[0] > 0 && x.asked.n[0] < 0.1 * x.asked.all);
    examples_close(m);
}

/*
 * Copies, and the map
 */

struct places {
    int           before, blank;
    struct counts subset, first, symbol;
};

static void look_places(const struct examples *m, const struct task_example *e,
                        void *user)
{
    struct places *x = user;
    int            subset = 0, n = 0;

    assert_int_equal(e->ids[x->before], x->blank + 1);
    for (int i = 0; i < x->before; i++) {
        if (e->ids[i] == x->blank) continue;
        if (!n) count(&x->first, i);
        subset |= 1 << i;
        count(&x->symbol, e->ids[i] - 1);
        const int at = x->before + 1 + n;
        assert_int_equal(e->ids[at], x->blank);
        assert_int_equal(e->labels[at], e->ids[i]);
        assert_int_equal(e->slices[at], n++);
        assert_int_equal(e->slices[m->t.len + at], at - i);
    }
    assert_int_equal(x->before + 1 + n, e->n);
    assert_int_equal(n_labels(e), n);
    count(&x->subset, subset);
}

static void copies(void **state)
{
    struct examples *m = examples_open("mad-copy(vocab=9, length=8, tokens=2)");
    struct places    x = { .before = 5, .blank = 8 };

    (void)state;
    examples_each(m, FOCI_DATA_SPLIT_TRAIN, N, look_places, &x);
    all_alike("symbols", &x.symbol, 0, 7);
    int kinds = 0;
    for (int s = 0; s < 32; s++) {
        if (x.subset.n[s] == 0) continue;
        examples_about("two places of five", x.subset.n[s], 0.1, N);
        kinds++;
    }
    assert_int_equal(kinds, 10);
    examples_close(m);

    /* Blanks in front of the first of three symbols: binomial, of three with 1/3. */
    m = examples_open("mad-copy(length=10, tokens=3, positions=mad)");
    x = (struct places){ .before = 6, .blank = 15 };
    examples_each(m, FOCI_DATA_SPLIT_TRAIN, N, look_places, &x);
    for (int k = 0; k < 4; k++) {
        static const double share[] = { 8 / 27.0, 12 / 27.0, 6 / 27.0, 1 / 27.0 };
        examples_about("blanks in front", x.first.n[k], share[k], N);
    }
    for (int s = 0; s < 32; s++) /* nothing behind the last symbol */
        assert_true(x.subset.n[s] == 0);
    examples_close(m);
}

static void look_string(const struct examples *m, const struct task_example *e,
                        void *user)
{
    struct counts *symbols = user;

    for (int64_t i = 0; i < e->n; i++) {
        const bool mark = i == e->n - 1;
        assert_int_equal(e->ids[i] == m->t.vocab - 1, mark);
        assert_int_equal(e->labels[i], mark ? -1 : e->ids[i]);
        if (!mark) count(symbols, e->ids[i] - 1);
    }
}

static void strings(void **state)
{
    struct examples *m = examples_open("mad-compress(vocab=12, length=9)");
    struct counts    symbols = { 0 };

    (void)state;
    assert_true(m->t.from_last);
    examples_each(m, FOCI_DATA_SPLIT_TEST, N, look_string, &symbols);
    all_alike("symbols", &symbols, 0, 11);
    examples_close(m);
}

struct map {
    int32_t       value[MOST];
    struct counts key;
};

static void look_map(const struct examples *m, const struct task_example *e, void *user)
{
    struct map *x = user;

    for (int64_t i = 0; i < e->n; i += 2) {
        const int32_t k = e->ids[i], v = e->labels[i + 1];
        assert_int_equal(e->ids[i + 1], m->t.vocab - 1);
        assert_int_equal(e->labels[i], -1);
        assert_int_equal(e->slices[i + 1], i / 2);
        assert_in_range(v, 10, 19);
        assert_true(!x->value[k] || x->value[k] == v);
        x->value[k] = v;
        count(&x->key, k - 1);
    }
}

/* One map for all splits and seeds, another for every number. */
static void maps(void **state)
{
    struct examples *m = examples_open("mad-memorise(vocab=20)");
    struct map       x = { 0 };
    struct counts    first = { 0 };

    (void)state;
    for (int split = 0; split < 3; split++)
        examples_each(m, (foci_data_split)split, 800, look_map, &x);
    all_alike("keys", &x.key, 0, 9);
    for (int a = 1; a <= 9; a++)
        for (int b = 1; b < a; b++)
            assert_int_not_equal(x.value[a], x.value[b]);
    for (int i = 0; i < 2000; i++) {
        m->t.arg[2] = i;
        task_make(m->ctx, &m->memory, (uint64_t)i, FOCI_DATA_SPLIT_TRAIN, 0, 1, m->e);
        count(&first, m->e[0].labels[1] - 10);
    }
    all_alike("the value of a key, over maps", &first, 0, 10);
    examples_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mqar_mix),  cmocka_unit_test(mqar_update),
        cmocka_unit_test(mqar_pair), cmocka_unit_test(streams),
        cmocka_unit_test(fuzzy),     cmocka_unit_test(labels_everywhere),
        cmocka_unit_test(copies),    cmocka_unit_test(strings),
        cmocka_unit_test(maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
