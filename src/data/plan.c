/* plan.c -- the order of the rows of a block, and their batches.
 *
 * Examples are put in random order, then sorted by length, equally long ones staying in
 * that order, and cut into batches as long as they fit; batches come in random order.  This
 * minimises padding, and batches differ in every pass.  In an evaluation nothing is random.
 *
 * Running text is cut into windows.  In training the first one has a random length, so that
 * the cuts are elsewhere in every pass; every token is predicted once all the same.
 */
#include <stdlib.h>

#include "data/data.h"

/*
 * Running text
 */

/* Labels of a window but for the first one. */
static int64_t step_of(const foci_data *d)
{
    return d->o.stride ? d->o.stride : d->o.len;
}

/* Labels of the first window. */
static int64_t first_of(const foci_data *d)
{
    return d->plan.shift ? d->plan.shift : d->o.len;
}

static int64_t count_windows(const foci_data *d)
{
    const int64_t n = running_labels(d), first = min64(first_of(d), n);
    return n ? 1 + div_up(n - first, step_of(d)) : 0;
}

/* Window i: the labels of the first are at its very start, those of others may have tokens
 * before them that were predicted already. */
static struct data_row window(const foci_data *d, int64_t i)
{
    const int64_t n = running_labels(d), step = step_of(d), first = first_of(d);
    const int64_t begin = i ? first + (i - 1) * step : 0;
    const int64_t end = min64(i ? begin + step : first, n);
    const int64_t seen = i && d->o.stride ? min64(d->o.len - step, begin) : 0;

    return (struct data_row){ .begin[0] = begin - seen,
                              .n[0] = end - begin + seen,
                              .first = seen,
                              .number = -1 };
}

/* Part t of run r: the text is cut into as many runs as there are rows. */
static struct data_row segment(const foci_data *d, int64_t t, int64_t r)
{
    const int64_t n = running_labels(d), rows = d->o.batch;
    const int64_t begin = n / rows * r + min64(r, n % rows);
    const int64_t end = begin + n / rows + (r < n % rows);
    const int64_t at = begin + t * d->o.len;

    return (struct data_row){ .begin[0] = min64(at, end),
                              .n[0] = max64(0, min64(d->o.len, end - at)),
                              .number = -1 };
}

/*
 * Order
 */

struct by_length {
    int64_t length, place, row;
};

static int compare(const void *a, const void *b)
{
    const struct by_length *x = a, *y = b;

    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static void identity(struct vec *v, int64_t n)
{
    v->n = n;
    for (int64_t i = 0; i < n; i++)
        VEC(int64_t, v, i) = i;
}

/* Fisher and Yates. */
static void shuffle(struct rng *r, struct vec *v)
{
    int64_t *x = v->at;

    for (int64_t i = v->n - 1; i > 0; i--) {
        const int64_t other = rng_below(r, i + 1), kept = x[i];
        x[i] = x[other];
        x[other] = kept;
    }
}

static const struct example *example(const foci_data *d, int64_t i)
{
    return (const struct example *)d->store.examples.at + i;
}

static void sort(foci_data *d)
{
    struct plan_rows *p = &d->plan;
    const int64_t     n = p->order.n;

    for (int64_t i = 0; i < n; i++) {
        const int64_t         row = VEC(int64_t, &p->order, i);
        const struct example *e = example(d, row);
        VEC(struct by_length, &p->sorted, i) =
            (struct by_length){ (int64_t)e->n[0] << 32 | e->n[1], i, row };
    }
    qsort(p->sorted.at, (size_t)n, sizeof(struct by_length), compare);
    for (int64_t i = 0; i < n; i++)
        VEC(int64_t, &p->order, i) = VEC(struct by_length, &p->sorted, i).row;
}

/*
 * Batches
 */

/* A batch that is being filled: its rows and their longest sides. */
struct filling {
    int64_t rows, longest[2], total;
};

/* Whether the example fits; it is then in it. */
static bool fits(const foci_data *d, struct filling *f, const struct example *e)
{
    const int64_t target = padded(d, max64(f->longest[0], e->n[0]), d->o.len);
    const int64_t source = padded(d, max64(f->longest[1], e->n[1]), d->o.source_len);
    const int64_t longest = max64(target, source);
    const int64_t rows = f->rows + 1, total = f->total + e->n[0];

    if (f->rows && d->o.pack) {
        if (total > d->batch.cells) return false;
    } else if (f->rows) {
        if (d->o.batch && rows > d->o.batch) return false;
        if (d->o.tokens && longest > d->o.tokens / rows) return false;
    }
    *f = (struct filling){
        rows, { max64(f->longest[0], e->n[0]), max64(f->longest[1], e->n[1]) }, total
    };
    return true;
}

static void cut_examples(foci_data *d)
{
    struct plan_rows *p = &d->plan;
    struct filling    f = { 0 };

    for (int64_t i = 0; i < p->order.n; i++) {
        const struct example *e = example(d, VEC(int64_t, &p->order, i));
        if (i && fits(d, &f, e)) continue;
        VEC(int64_t, &p->starts, p->starts.n++) = i;
        f = (struct filling){ 0 };
        (void)fits(d, &f, e);
    }
}

static void cut_windows(foci_data *d)
{
    struct plan_rows *p = &d->plan;

    for (int64_t i = 0; i < p->order.n; i += d->o.batch)
        VEC(int64_t, &p->starts, p->starts.n++) = i;
}

static foci_status reserve(foci_data *d, int64_t n)
{
    struct plan_rows *p = &d->plan;

    p->order.n = p->starts.n = p->turns.n = p->sorted.n = 0;
    TRY(vec_reserve(d->ctx, &p->order, n, sizeof(int64_t)));
    TRY(vec_reserve(d->ctx, &p->starts, n + 1, sizeof(int64_t)));
    TRY(vec_reserve(d->ctx, &p->turns, n, sizeof(int64_t)));
    return d->supply->running
               ? FOCI_OK
               : vec_reserve(d->ctx, &p->sorted, n, sizeof(struct by_length));
}

foci_status plan_make(foci_data *d)
{
    struct plan_rows *p = &d->plan;
    const bool        shuffled = d->o.order == FOCI_DATA_ORDER_SHUFFLED;
    struct rng        r = data_stream(d, DRAW_ORDER, d->pass, d->block.index);

    if (is_segments(d)) {
        p->n_batches = div_up(div_up(running_labels(d), d->o.batch), d->o.len);
        return FOCI_OK;
    }
    p->shift = shuffled && d->supply->running ? rng_below(&r, d->o.len) : 0;
    const int64_t n = d->supply->running ? count_windows(d) : d->store.examples.n;
    TRY(reserve(d, n));
    identity(&p->order, n);
    if (shuffled) shuffle(&r, &p->order);
    if (!d->supply->running && !d->o.pack && n) sort(d);
    d->supply->running ? cut_windows(d) : cut_examples(d);
    p->n_batches = p->starts.n;
    VEC(int64_t, &p->starts, p->starts.n) = n;
    identity(&p->turns, p->n_batches);
    if (shuffled) shuffle(&r, &p->turns);
    return FOCI_OK;
}

int64_t plan_n(const foci_data *d, int64_t t)
{
    const struct plan_rows *p = &d->plan;

    if (is_segments(d)) return d->o.batch;
    const int64_t *starts = (int64_t *)p->starts.at + VEC(int64_t, &p->turns, t);
    return starts[1] - starts[0];
}

struct data_row plan_row(const foci_data *d, int64_t t, int64_t r)
{
    const struct plan_rows *p = &d->plan;

    if (is_segments(d)) return segment(d, t, r);
    const int64_t start = VEC(int64_t, &p->starts, VEC(int64_t, &p->turns, t));
    const int64_t i = VEC(int64_t, &p->order, start + r);
    if (d->supply->running) return window(d, i);

    const struct example *e = example(d, i);
    return (struct data_row){ .begin = { e->begin[0], e->begin[1] },
                              .n = { e->n[0], e->n[1] },
                              .first_slice = e->first_slice,
                              .number = e->number,
                              .answer = e->answer };
}
