/* batch.c -- copies rows of the store to the arrays of a batch. */
#include <assert.h>
#include <string.h>

#include "data/data.h"
#include "data/images.h"

/* Room for n elements of so many bytes, which are then there. */
static foci_status reserve(foci_data *d, struct vec *v, int64_t n, size_t each)
{
    TRY(vec_reserve(d->ctx, v, max64(1, n), each));
    v->n = n;
    return FOCI_OK;
}

static foci_status ints(foci_data *d, struct vec *v, int64_t n)
{
    return reserve(d, v, n, sizeof(int32_t));
}

static foci_status open_tokens(foci_data *d)
{
    struct batch_memory *b = &d->batch;
    const bool           pairs = d->kind == FOCI_DATA_TRANSLATE;

    TRY(ints(d, &b->ids, b->cells));
    TRY(ints(d, &b->source_ids, b->source_cells));
    if (d->kind != FOCI_DATA_CLASSIFY) {
        TRY(ints(d, &b->labels, b->cells));
        TRY(reserve(d, &b->label_at, b->cells, sizeof(int64_t)));
    }
    if (d->o.words) TRY(ints(d, &b->words, b->cells));
    if (d->o.words && pairs) TRY(ints(d, &b->source_words, b->source_cells));
    if (d->o.pack) TRY(ints(d, &b->docs, b->rows + 1));
    if (d->o.pack) TRY(ints(d, &b->positions, b->cells));
    if (d->task.def)
        TRY(ints(d, &b->slices,
                 task_n_slices(&d->task) *
                     (d->kind == FOCI_DATA_CLASSIFY ? b->rows : b->cells)));
    return FOCI_OK;
}

static foci_status open_patches(foci_data *d)
{
    struct batch_memory *b = &d->batch;
    const struct images *m = &d->images;
    const int64_t        len = m->rows * m->cols;

    if (b->rows > INT64_MAX / 4 / m->one.count)
        return ctx_fail(d->ctx, FOCI_ERR_ARG,
                        "batch=%lld: there is no memory for so many",
                        (long long)b->rows);
    TRY(reserve(d, &b->patches, b->rows * m->one.count, sizeof(float)));
    TRY(ints(d, &b->patch_rows, len));
    TRY(ints(d, &b->patch_cols, len));
    for (int64_t i = 0; i < len; i++) {
        VEC(int32_t, &b->patch_rows, i) = (int32_t)(i / m->cols);
        VEC(int32_t, &b->patch_cols, i) = (int32_t)(i % m->cols);
    }
    return FOCI_OK;
}

/* The most rows, and the most positions of all of them. */
static foci_status measure(foci_data *d)
{
    struct batch_memory *b = &d->batch;
    const int64_t        rows = d->o.batch ? d->o.batch : d->o.tokens;
    const int64_t        longest = max64(d->o.len, d->o.source_len);

    if (d->o.tokens) {
        b->cells = d->o.tokens;
        b->rows = min64(rows, d->o.tokens);
    } else {
        if (rows > INT32_MAX / longest)
            return ctx_fail(d->ctx, FOCI_ERR_ARG,
                            "batch=%lld and len=%lld: a batch has at most %d tokens",
                            (long long)rows, (long long)longest, INT32_MAX);
        b->cells = rows * d->o.len;
        b->rows = d->o.pack ? b->cells : rows;
    }
    b->source_cells = d->o.tokens ? d->o.tokens : rows * d->o.source_len;
    if (d->kind != FOCI_DATA_TRANSLATE) b->source_cells = 0;
    return FOCI_OK;
}

foci_status batch_open(foci_data *d)
{
    struct batch_memory *b = &d->batch;

    TRY(measure(d));
    TRY(ints(d, &b->lens, b->rows));
    TRY(reserve(d, &b->examples, b->rows, sizeof(int64_t)));
    if (d->kind == FOCI_DATA_TRANSLATE) TRY(ints(d, &b->source_lens, b->rows));
    if (d->kind == FOCI_DATA_CLASSIFY || d->kind == FOCI_DATA_IMAGES)
        TRY(ints(d, &b->classes, b->rows));
    return d->kind == FOCI_DATA_IMAGES ? open_patches(d) : open_tokens(d);
}

void batch_free(foci_data *d)
{
    struct batch_memory *b = &d->batch;
    struct vec *const    all[] = {
           &b->ids,          &b->labels,    &b->words,       &b->source_ids,
           &b->source_words, &b->lens,      &b->source_lens, &b->classes,
           &b->docs,         &b->positions, &b->patch_rows,  &b->patch_cols,
           &b->slices,       &b->label_at,  &b->examples,    &b->patches,
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vec_free(d->ctx, all[i]);
}

/*
 * Rows
 */

static void pad(int32_t *to, int64_t from, int64_t end, int32_t value)
{
    assert(to || from >= end);
    for (int64_t i = from; i < end; i++)
        to[i] = value;
}

static const int32_t *stored(const foci_data *d, int side, const struct data_row *row)
{
    const struct vec *v = &d->store.ids[side];
    return v->at ? (const int32_t *)v->at + row->begin[side] : NULL;
}

/* Labels of a row that is at ids; an mlm hides them there. */
static void put_labels(const foci_data *d, const struct data_row *row, int32_t *ids,
                       int32_t *labels)
{
    const int64_t n = row->n[0];

    if (d->kind == FOCI_DATA_CLASSIFY || !n) return;
    assert(ids && labels);
    if (d->task.def) {
        memcpy(labels, (const int32_t *)d->store.labels.at + row->begin[0],
               (size_t)n * sizeof *labels);
        return;
    }
    if (d->kind == FOCI_DATA_MLM) {
        mask_row(d, row, ids, labels);
        return;
    }
    pad(labels, 0, row->first, -1);
    for (int64_t i = row->first; i < n; i++)
        labels[i] = stored(d, 0, row)[i + 1];
}

/* Words of n tokens, padded to len. */
static foci_status put_words(const foci_data *d, int side, const int32_t *ids,
                             int64_t n, int64_t len, int32_t *words)
{
    foci_word_state state = { FOCI_SIZED(foci_word_state) };

    if (d->task.def)
        for (int64_t i = 0; i < n; i++)
            words[i] = (int32_t)i;
    else
        TRY(foci_token_words(d->tokenizer[side], ids, n, &state, words));
    pad(words, n, len, n ? words[n - 1] : 0);
    return FOCI_OK;
}

/* One row of the target side, at `at` in the arrays and padded to len. */
static foci_status put_row(foci_data *d, const struct data_row *row, int64_t at,
                           int64_t len)
{
    struct batch_memory *b = &d->batch;
    const int64_t        n = row->n[0];
    int32_t             *ids = (int32_t *)b->ids.at + at;
    int32_t             *labels = b->labels.n ? (int32_t *)b->labels.at + at : NULL;

    if (n) memcpy(ids, stored(d, 0, row), (size_t)n * sizeof *ids);
    pad(ids, n, len, d->pad[0]);
    if (d->o.words) TRY(put_words(d, 0, ids, n, len, (int32_t *)b->words.at + at));
    put_labels(d, row, ids, labels);
    if (labels) pad(labels, n, len, -1);
    return FOCI_OK;
}

static foci_status put_source(foci_data *d, const struct data_row *row, int64_t r,
                              int64_t len)
{
    struct batch_memory *b = &d->batch;
    const int64_t        n = row->n[1];
    int32_t             *ids = (int32_t *)b->source_ids.at + r * len;

    if (n) memcpy(ids, stored(d, 1, row), (size_t)n * sizeof *ids);
    pad(ids, n, len, d->pad[1]);
    VEC(int32_t, &b->source_lens, r) = (int32_t)n;
    if (!d->o.words) return FOCI_OK;
    return put_words(d, 1, ids, n, len, (int32_t *)b->source_words.at + r * len);
}

/* An image cut into patches, [patch][row][column][channel]. */
static void put_patches(foci_data *d, const struct data_row *row, int64_t r)
{
    const struct images *m = &d->images;
    const int64_t        patch = d->o.patch, run = patch * m->channels;
    const char          *pixels = d->store.pixels.at;
    const float         *x = m->floats.at;
    float               *out = (float *)d->batch.patches.at + r * m->one.count;

    images_floats(d, pixels + (size_t)row->begin[0] * m->bytes, m->floats.at);
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->cols; j++)
            for (int64_t y = 0; y < patch; y++) {
                const float *from =
                    x + ((i * patch + y) * m->width + j * patch) * m->channels;
                for (int64_t c = 0; c < run; c++)
                    *out++ = (float)(((double)from[c] - d->o.shift) * d->o.scale);
            }
}

/*
 * Batches
 */

/* What each row has besides its tokens. */
static void note_row(foci_data *d, const struct data_row *row, int64_t r,
                     foci_batch *batch)
{
    struct batch_memory *b = &d->batch;

    VEC(int32_t, &b->lens, r) = (int32_t)row->n[0];
    VEC(int64_t, &b->examples, r) = row->number;
    if (b->classes.n) VEC(int32_t, &b->classes, r) = row->answer;
    batch->n_tokens += row->n[0] + row->n[1];
}

static foci_status put_rows(foci_data *d, int64_t t, foci_batch *batch)
{
    int64_t longest[2] = { 1, 1 };

    batch->batch = plan_n(d, t);
    for (int64_t r = 0; r < batch->batch; r++) {
        const struct data_row row = plan_row(d, t, r);
        for (int side = 0; side < 2; side++)
            longest[side] = max64(longest[side], row.n[side]);
    }
    batch->len = padded(d, longest[0], d->o.len);
    if (d->kind == FOCI_DATA_TRANSLATE)
        batch->source_len = padded(d, longest[1], d->o.source_len);
    for (int64_t r = 0; r < batch->batch; r++) {
        const struct data_row row = plan_row(d, t, r);
        note_row(d, &row, r, batch);
        if (d->kind == FOCI_DATA_IMAGES)
            put_patches(d, &row, r);
        else
            TRY(put_row(d, &row, r * batch->len, batch->len));
        if (batch->source_len) TRY(put_source(d, &row, r, batch->source_len));
    }
    return FOCI_OK;
}

/* All documents of the batch in one row. */
static foci_status put_pack(foci_data *d, int64_t t, foci_batch *batch)
{
    struct batch_memory *b = &d->batch;
    int32_t             *docs = b->docs.at, *positions = b->positions.at;
    int64_t              at = 0;

    batch->batch = 1;
    batch->len = b->cells;
    batch->n_docs = plan_n(d, t);
    for (int64_t r = 0; r < batch->n_docs; r++) {
        const struct data_row row = plan_row(d, t, r);
        note_row(d, &row, r, batch);
        docs[r] = (int32_t)at;
        for (int64_t i = 0; i < row.n[0]; i++)
            positions[at + i] = (int32_t)i;
        TRY(put_row(d, &row, at, row.n[0]));
        at += row.n[0];
    }
    docs[batch->n_docs] = (int32_t)at;
    VEC(int32_t, &b->lens, 0) = (int32_t)at;
    pad(positions, at, b->cells, 0);
    pad(b->ids.at, at, b->cells, d->pad[0]);
    if (b->labels.n) pad(b->labels.at, at, b->cells, -1);
    if (d->o.words) pad(b->words.at, at, b->cells, 0);
    return FOCI_OK;
}

/* The positions with a label, and what they spell. */
static void find_labels(foci_data *d, int64_t t, foci_batch *batch)
{
    struct batch_memory *b = &d->batch;
    const int32_t       *labels = b->labels.at;
    const int64_t        n = d->o.pack ? batch->n_docs : batch->batch;
    int64_t              at = 0;

    for (int64_t r = 0; r < n; r++) {
        const struct data_row row = plan_row(d, t, r);
        const struct spelled *spelled = d->store.spelled.at;

        if (!d->o.pack) at = r * batch->len;
        for (int64_t i = 0; i < row.n[0]; i++) {
            if (labels[at + i] < 0) continue;
            VEC(int64_t, &b->label_at, batch->n_labels++) = at + i;
            if (!d->counts) continue;
            batch->n_words += spelled[row.begin[0] + i + 1].words;
            batch->n_chars += spelled[row.begin[0] + i + 1].chars;
        }
        at += row.n[0];
    }
}

/* Slices: the store has them label by label. */
static void put_slices(foci_data *d, int64_t t, foci_batch *batch)
{
    const int64_t *label_at = d->batch.label_at.at;
    const int32_t *from = d->store.slices.at;
    int32_t       *out = d->batch.slices.at;
    int64_t        done = 0;

    batch->n_slices = task_n_slices(&d->task);
    for (int64_t r = 0; r < batch->batch; r++) {
        const struct data_row row = plan_row(d, t, r);
        int64_t               n = 1;

        if (label_at)
            for (n = 0; done + n < batch->n_labels; n++)
                if (label_at[done + n] >= (r + 1) * batch->len) break;
        for (int64_t i = 0; i < n; i++)
            for (int s = 0; s < batch->n_slices; s++)
                out[s * batch->n_labels + done + i] =
                    from[row.first_slice + i * batch->n_slices + s];
        done += n;
    }
}

/* The arrays that batches of this kind have. */
static void show(foci_data *d, foci_batch *batch)
{
    struct batch_memory *b = &d->batch;
    const bool           images = d->kind == FOCI_DATA_IMAGES;

    batch->ids = b->ids.n ? b->ids.at : NULL;
    batch->lens = b->lens.at;
    batch->labels = b->labels.n ? b->labels.at : NULL;
    batch->label_at = b->labels.n ? b->label_at.at : NULL;
    batch->classes = b->classes.n ? b->classes.at : NULL;
    batch->words = b->words.n ? b->words.at : NULL;
    batch->source_ids = batch->source_len ? b->source_ids.at : NULL;
    batch->source_lens = batch->source_len ? b->source_lens.at : NULL;
    batch->source_words =
        batch->source_len && b->source_words.n ? b->source_words.at : NULL;
    batch->patches = images ? b->patches.at : NULL;
    batch->patch_rows = images ? b->patch_rows.at : NULL;
    batch->patch_cols = images ? b->patch_cols.at : NULL;
    if (images) batch->patch_width = d->images.one.count / batch->len;
    batch->docs = d->o.pack ? b->docs.at : NULL;
    batch->positions = d->o.pack ? b->positions.at : NULL;
    batch->examples = b->examples.at;
    batch->slices = batch->n_slices ? b->slices.at : NULL;
}

foci_status batch_make(foci_data *d, int64_t t, foci_batch *batch)
{
    TRY(d->o.pack ? put_pack(d, t, batch) : put_rows(d, t, batch));
    if (d->batch.labels.n)
        find_labels(d, t, batch);
    else
        batch->n_labels = d->o.pack ? batch->n_docs : batch->batch;
    if (d->task.def) put_slices(d, t, batch);
    batch->carries = is_segments(d) && t > 0;
    show(d, batch);
    return FOCI_OK;
}
