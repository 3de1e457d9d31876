/* data.c -- data objects: opening, the next batch, queries. */
#include <string.h>

#include "data/classes.h"
#include "data/data.h"

static const struct supply *supply_of(const foci_data_options *o)
{
    switch (o->kind) {
    case FOCI_DATA_TRANSLATE: return &supply_pairs;
    case FOCI_DATA_CLASSIFY: return &supply_labelled;
    case FOCI_DATA_IMAGES: return &supply_images;
    case FOCI_DATA_TASK: return &supply_made;
    default: break;
    }
    return o->documents == FOCI_DATA_DOCUMENTS_NONE ? &supply_text : &supply_documents;
}

/* Readers are taken over whatever happens: the caller's are then closed ones. */
static foci_status take_reader(foci_data *d, int i, foci_reader *reader)
{
    const foci_reader closed = { 0 };
    foci_reader       whole;

    if (!reader) return FOCI_OK;
    TRY(sized_in(d->ctx, "foci_reader", &whole, reader, sizeof whole));
    lines_open(&d->lines[i], d->ctx, &whole);
    return sized_out(d->ctx, "foci_reader", reader, &closed, sizeof closed);
}

/* Nothing was read that a batch can be made of. */
static foci_status fail_empty(foci_data *d)
{
    if (d->seen.dropped)
        return lines_fail(
            &d->lines[0], NULL,
            "all %lld examples are longer than len=%lld; allow longer rows, "
            "or cut examples",
            (long long)d->seen.dropped, (long long)d->o.len);
    return lines_fail(&d->lines[0], NULL, "has nothing to learn from%s",
                      d->part[0] || d->part[1] < INT64_MAX
                          ? " in the part that is wanted"
                          : "; is it empty?");
}

/* The first block that has a batch. */
static foci_status begin(foci_data *d, int64_t pass)
{
    TRY(blocks_begin(d, pass));
    while (!d->plan.n_batches && !d->block.last)
        TRY(blocks_next(d));
    return d->plan.n_batches ? FOCI_OK : fail_empty(d);
}

static foci_status open_all(foci_data *d)
{
    TRY(options_take(d));
    d->kind = d->o.kind;
    d->causal = d->kind == FOCI_DATA_LM || d->kind == FOCI_DATA_TRANSLATE;
    d->counts = d->kind == FOCI_DATA_LM && is_once(d);
    d->supply = supply_of(&d->o);
    d->part[1] = INT64_MAX;
    TRY(d->supply->open(d));
    TRY(options_fit(d));
    TRY(batch_open(d));
    TRY(begin(d, 0));
    for (int i = 0; i < 2 && d->whole; i++)
        lines_free(&d->lines[i]);
    return FOCI_OK;
}

foci_status foci_data_open(foci_ctx *ctx, const foci_data_options *options,
                           foci_data **data)
{
    foci_data_options o;

    if (data) *data = NULL;
    TRY(sized_in(ctx, "foci_data_options", &o, options, sizeof o));
    foci_data *d = ctx && data ? ctx_alloc(ctx, 1, sizeof *d) : NULL;
    if (!d) {
        foci_reader_close(o.source);
        foci_reader_close(o.target);
        return ctx && data ? FOCI_ERR_MEMORY
                           : ctx_fail(ctx, FOCI_ERR_ARG, "foci_data_open: %s is NULL",
                                      ctx ? "data" : "the context");
    }
    d->ctx = ctx;
    d->o = o;
    d->o.source = d->o.target = NULL;
    foci_status       status = take_reader(d, 0, o.source);
    const foci_status target = take_reader(d, 1, o.target);
    if (!status) status = target;
    if (!status) status = open_all(d);
    if (status) {
        foci_data_free(d);
        return status;
    }
    /* What the caller lent for opening alone. */
    d->o.task = NULL;
    d->o.classes = NULL;
    *data = d;
    return FOCI_OK;
}

static void free_chunk(foci_ctx *ctx, struct data_chunk *c)
{
    struct vec *const all[] = { &c->text,    &c->ends,    &c->closed, &c->numbers,
                                &c->answers, &c->strings, &c->ids,    &c->offsets };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vec_free(ctx, all[i]);
}

void foci_data_free(foci_data *d)
{
    if (!d) return;
    foci_ctx         *ctx = d->ctx;
    struct store     *s = &d->store;
    struct plan_rows *p = &d->plan;
    struct vec *const all[] = { &s->ids[0],       &s->ids[1],  &s->labels,
                                &s->slices,       &s->spelled, &s->examples,
                                &s->pixels,       &p->order,   &p->starts,
                                &p->turns,        &p->sorted,  &d->images.labels,
                                &d->images.floats };

    for (int i = 0; i < 2; i++) {
        lines_free(&d->lines[i]);
        foci_encoder_free(d->encoder[i]);
        free_chunk(ctx, &d->chunk[i]);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vec_free(ctx, all[i]);
    classes_free(d);
    task_memory_free(ctx, &d->task_memory);
    if (d->made) ctx_free(ctx, d->made, (size_t)d->task_memory.n, sizeof *d->made);
    task_free(ctx, &d->task);
    batch_free(d);
    ctx_free(ctx, d, 1, sizeof *d);
}

/*
 * Batch after batch
 */

/* Go to a block that has a batch left; false: the pass is over. */
static foci_status advance(foci_data *d, bool *more)
{
    *more = true;
    if (d->over) TRY(begin(d, d->pass + 1));
    while (d->next == d->plan.n_batches) {
        if (!d->block.last) {
            TRY(blocks_next(d));
        } else if (is_once(d)) {
            d->over = true;
            *more = false;
            return FOCI_OK;
        } else {
            TRY(begin(d, d->pass + 1));
        }
    }
    return FOCI_OK;
}

static foci_status next(foci_data *d, foci_batch *batch)
{
    bool more;

    TRY(advance(d, &more));
    batch->pass = d->pass;
    batch->index = d->index;
    if (!more) return FOCI_OK;
    TRY(batch_make(d, d->next, batch));
    d->next++;
    d->index++;
    return FOCI_OK;
}

foci_status foci_data_next(foci_data *data, foci_batch *batch)
{
    foci_batch  whole = { FOCI_SIZED(foci_batch) };
    foci_status status;

    if (!data) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_data_next: the data are NULL");
    TRY(sized_check(data->ctx, "foci_batch", batch, sizeof *batch));
    if (data->failed)
        return ctx_fail(data->ctx, FOCI_ERR_FILE,
                        "the data failed before; rewind or restore them first");
    status = next(data, &whole);
    data->failed = status != FOCI_OK;
    return status ? status
                  : sized_out(data->ctx, "foci_batch", batch, &whole, sizeof whole);
}

foci_status foci_data_rewind(foci_data *data, int64_t pass)
{
    if (!data || pass < 0)
        return ctx_fail(data ? data->ctx : NULL, FOCI_ERR_ARG,
                        "pass %lld: passes are counted from 0", (long long)pass);
    const foci_status status = begin(data, pass);
    data->failed = status != FOCI_OK;
    return status;
}

/*
 * What is known
 */

foci_status foci_data_get_info(const foci_data *d, foci_data_info *info)
{
    foci_data_info whole = { FOCI_SIZED(foci_data_info) };

    if (!d) return ctx_fail(NULL, FOCI_ERR_ARG, "there are no data to tell of");
    const struct images *m = &d->images;
    const bool           known = d->counted;
    whole.kind = d->kind;
    whole.causal = d->causal;
    whole.streams = !d->whole;
    whole.vocab = d->vocab[0];
    whole.source_vocab = d->kind == FOCI_DATA_TRANSLATE ? d->vocab[1] : 0;
    whole.len = d->o.pack ? d->batch.cells : d->o.len;
    whole.source_len = d->o.source_len;
    whole.batch = d->o.pack ? 1 : d->batch.rows;
    whole.n_classes = d->task.def ? d->task.n_classes : d->classes.names.n;
    if (m->n) {
        whole.patch_width = m->one.count / (m->rows * m->cols);
        whole.grid_rows = m->rows;
        whole.grid_cols = m->cols;
        whole.shift = d->o.shift;
        whole.scale = d->o.scale;
    }
    whole.n_examples = known ? d->known.examples : -1;
    whole.n_batches = known ? d->known.batches : -1;
    whole.n_tokens = known ? d->known.tokens : -1;
    whole.n_dropped = known ? d->known.dropped : -1;
    whole.n_cut = known ? d->known.cut : -1;
    whole.n_not_utf8 = known ? d->known.not_utf8 : -1;
    whole.n_slices = d->task.def ? task_n_slices(&d->task) : 0;
    whole.from_last = d->task.from_last;
    return sized_out(d->ctx, "foci_data_info", info, &whole, sizeof whole);
}
