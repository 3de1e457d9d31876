/* made.c -- generated examples, a block at a time. */
#include <string.h>

#include "data/data.h"
#include "data/task/floors.h"

/* Tokens that are made at once, about, and the examples of a block where there is no end of
 * them: as many batches are shuffled and put together by length. */
enum { TOKENS_AT_ONCE = 1 << 16, BLOCK_BATCHES = 64, BLOCK_ROWS = 4096 };

static foci_status check_len(foci_data *d, const char *name, int64_t *given,
                             int64_t most)
{
    if (*given && *given < most)
        return ctx_fail(d->ctx, FOCI_ERR_ARG, "%s=%lld: examples of %s have up to %lld",
                        name, (long long)*given, d->task.def->name, (long long)most);
    *given = most;
    return FOCI_OK;
}

static foci_status open_made(foci_data *d)
{
    struct task *t = &d->task;

    TRY(task_parse(d->ctx, d->o.task, t));
    d->kind = t->kind;
    d->causal = t->causal;
    d->vocab[0] = t->vocab;
    d->vocab[1] = t->source_vocab;
    TRY(check_len(d, "len", &d->o.len, t->len));
    TRY(check_len(d, "source_len", &d->o.source_len, t->source_len));
    if (is_once(d) && !d->o.examples) d->o.examples = 1000;
    const int64_t n = max64(4, min64(1024, TOKENS_AT_ONCE / (t->len + t->source_len)));
    TRY(task_memory_make(d->ctx, t, n, &d->task_memory));
    d->made = ctx_alloc(d->ctx, (size_t)n, sizeof *d->made);
    return d->made ? FOCI_OK : FOCI_ERR_MEMORY;
}

/* Labels and what they are reported by. */
static foci_status store_labels(foci_data *d, const struct task_example *m)
{
    struct store *s = &d->store;
    const int     n_slices = task_n_slices(&d->task);

    if (d->kind == FOCI_DATA_CLASSIFY)
        return VEC_ADD(d->ctx, &s->slices, m->slices, n_slices);
    TRY(VEC_ADD(d->ctx, &s->labels, m->labels, m->n));
    for (int64_t i = 0; i < m->n; i++)
        for (int t = 0; m->labels[i] >= 0 && t < n_slices; t++)
            TRY(VEC_ADD(d->ctx, &s->slices, &m->slices[t * d->task.len + i], 1));
    return FOCI_OK;
}

static foci_status store_example(foci_data *d, const struct task_example *m,
                                 int64_t number)
{
    struct store        *s = &d->store;
    const struct example e = { .begin = { s->ids[0].n, s->ids[1].n },
                               .n = { (int32_t)m->n, (int32_t)m->n_source },
                               .first_slice = s->slices.n,
                               .answer = m->answer,
                               .number = number };

    TRY(VEC_ADD(d->ctx, &s->ids[0], m->ids, m->n));
    TRY(VEC_ADD(d->ctx, &s->ids[1], m->source, m->n_source));
    TRY(store_labels(d, m));
    d->seen.tokens += m->n + m->n_source;
    return VEC_ADD(d->ctx, &s->examples, &e, 1);
}

/* Examples of the block that begins with number block.begin. */
static int64_t wanted(const foci_data *d)
{
    if (d->o.examples) return d->o.examples - d->block.begin;
    return d->o.batch ? min64(d->o.batch, INT32_MAX) * BLOCK_BATCHES : BLOCK_ROWS;
}

static foci_status made_fill(foci_data *d)
{
    const int64_t most = wanted(d);

    store_clear(d);
    do {
        const int64_t first = d->block.begin + d->block.taken;
        const int64_t n = min64(d->task_memory.n, most - d->block.taken);
        task_make(d->ctx, &d->task_memory, d->o.seed, d->o.split, first, n, d->made);
        for (int64_t i = 0; i < n; i++)
            TRY(store_example(d, &d->made[i], first + i));
        d->block.taken += n;
    } while (d->block.taken < most && !store_full(d));
    d->block.last = d->o.examples && d->block.begin + d->block.taken == d->o.examples;
    return FOCI_OK;
}

static foci_status rewind_made(foci_data *d)
{
    (void)d;
    return FOCI_OK;
}

static foci_status skip(foci_data *d, int64_t n)
{
    (void)d;
    (void)n;
    return FOCI_OK;
}

const struct supply supply_made = {
    .open = open_made,
    .fill = made_fill,
    .rewind = rewind_made,
    .skip = skip,
};

/*
 * What is told of a task
 */

int foci_data_task(const foci_data *d, char *text, size_t cap)
{
    if (cap) *text = 0;
    return d && d->task.def ? task_print(&d->task, text, cap) : 0;
}

int foci_data_slice_count(const foci_data *d)
{
    return d && d->task.def ? task_n_slices(&d->task) : 0;
}

const char *foci_data_slice(const foci_data *d, int i)
{
    if (i < 0 || i >= foci_data_slice_count(d)) return NULL;
    return d->task.def->slices[i];
}

int foci_data_text(const foci_data *d, int side, const int32_t *ids, int64_t n,
                   char *text, size_t cap)
{
    struct printer     out = { .at = text, .cap = cap };
    const struct task *t = &d->task;
    int32_t            before = -1;

    if (cap) *text = 0;
    for (int64_t i = 0; t->def && i < n; i++) {
        char symbol[64];
        if (ids[i] < 0 || ids[i] >= d->vocab[!!side]) continue;
        if (t->def->symbol(t, side, ids[i], symbol, sizeof symbol) <= 0) continue;
        if (before >= 0)
            printer_add(&out, "%s",
                        t->def->between ? t->def->between(t, side, before, ids[i])
                                        : " ");
        printer_add(&out, "%s", symbol);
        before = ids[i];
    }
    return out.used;
}

int foci_data_floor_count(const foci_data *d)
{
    return d && d->task.def ? task_floor_count(&d->task) : 0;
}

foci_status foci_data_floor(foci_data *d, int i, int64_t examples, foci_floor *floor)
{
    foci_floor whole = { FOCI_SIZED(foci_floor) };

    if (!d || !d->task.def)
        return ctx_fail(d ? d->ctx : NULL, FOCI_ERR_ARG,
                        "floors are of tasks, and these data are none");
    if (i < 0 || i >= task_floor_count(&d->task))
        return ctx_fail(d->ctx, FOCI_ERR_ARG, "floor %d: this task has %d", i,
                        task_floor_count(&d->task));
    if (examples < 1 || examples > INT32_MAX)
        return ctx_fail(d->ctx, FOCI_ERR_ARG,
                        "examples=%lld: floors are counted over 1 to %d",
                        (long long)examples, INT32_MAX);
    TRY(sized_check(d->ctx, "foci_floor", floor, sizeof *floor));
    TRY(task_floor(d->ctx, &d->task, d->o.seed, d->o.split, i, examples, &whole.name,
                   &whole.accuracy));
    return sized_out(d->ctx, "foci_floor", floor, &whole, sizeof whole);
}
