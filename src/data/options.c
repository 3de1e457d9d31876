/* options.c -- options of a data object: checks and defaults. */
#include <math.h>
#include <string.h>

#include "data/data.h"

/* Longest row: positions are counted in int32_t. */
static const int64_t most_len = INT32_MAX;

static bool is_text(foci_data_kind kind)
{
    return kind == FOCI_DATA_LM || kind == FOCI_DATA_MLM;
}

/* A whole number within bounds. */
static foci_status check_number(foci_data *d, const char *name, int64_t value,
                                int64_t least, int64_t most)
{
    if (value >= least && value <= most) return FOCI_OK;
    return ctx_fail(d->ctx, FOCI_ERR_ARG, "%s=%lld: a data set takes %lld to %lld",
                    name, (long long)value, (long long)least, (long long)most);
}

/* Something that only some kinds have. */
static foci_status check_only(foci_data *d, bool given, bool taken, const char *name,
                              const char *where)
{
    if (!given || taken) return FOCI_OK;
    return ctx_fail(d->ctx, FOCI_ERR_ARG, "%s is given, which is for %s only", name,
                    where);
}

static foci_status check_enums(foci_data *d)
{
    const foci_data_options *o = &d->o;

    TRY(check_number(d, "kind", o->kind, FOCI_DATA_LM, FOCI_DATA_TASK));
    TRY(check_number(d, "order", o->order, FOCI_DATA_ORDER_SHUFFLED,
                     FOCI_DATA_ORDER_ONCE_SEGMENTS));
    TRY(check_number(d, "documents", o->documents, FOCI_DATA_DOCUMENTS_NONE,
                     FOCI_DATA_DOCUMENTS_PARAGRAPHS));
    TRY(check_number(d, "too_long", o->too_long, FOCI_DATA_LONG_DEFAULT,
                     FOCI_DATA_LONG_CUT));
    return check_number(d, "split", o->split, FOCI_DATA_SPLIT_TRAIN,
                        FOCI_DATA_SPLIT_TEST);
}

static foci_status check_source(foci_data *d)
{
    const foci_data_options *o = &d->o;
    const bool               task = o->kind == FOCI_DATA_TASK;
    const bool               images = o->kind == FOCI_DATA_IMAGES;

    if (!task && !d->lines[0].reader.read)
        return ctx_fail(d->ctx, FOCI_ERR_ARG,
                        "there is no source to read: options.source is NULL, or has no "
                        "read()");
    if (images && !d->lines[1].reader.read)
        return ctx_fail(d->ctx, FOCI_ERR_ARG,
                        "images need labels: options.target is NULL, or has no read()");
    if (!task && !images && !o->tokenizer)
        return ctx_fail(d->ctx, FOCI_ERR_ARG, "text needs a tokenizer");
    TRY(check_only(d, d->lines[0].reader.read, !task, "a source", "data from files"));
    TRY(check_only(d, d->lines[1].reader.read, images || o->kind == FOCI_DATA_TRANSLATE,
                   "a target", "translate and images"));
    TRY(check_only(d, o->target_tokenizer, o->kind == FOCI_DATA_TRANSLATE,
                   "a tokenizer of the target", "translate"));
    TRY(check_only(d, o->reverse, o->kind == FOCI_DATA_TRANSLATE, "reverse",
                   "translate"));
    return check_only(d, o->task, task, "a task", "generated examples");
}

static foci_status check_part(foci_data *d)
{
    const double begin = d->o.part_begin, end = d->o.part_end;

    TRY(check_only(d, begin != 0 || end != 0, d->o.kind != FOCI_DATA_TASK, "a part",
                   "data from files"));
    if ((begin == 0 && end == 0) || (begin >= 0 && begin < end && end <= 1))
        return FOCI_OK;
    return ctx_fail(
        d->ctx, FOCI_ERR_ARG,
        "part %g to %g: a part begins at 0 or later, ends behind that and at "
        "1 at most",
        begin, end);
}

static foci_status check_shape(foci_data *d)
{
    const foci_data_options *o = &d->o;
    const bool own = o->kind == FOCI_DATA_TASK || o->kind == FOCI_DATA_IMAGES;

    TRY(check_number(d, "batch", o->batch, 0, most_len));
    TRY(check_number(d, "tokens", o->tokens, 0, most_len));
    TRY(check_number(d, "len", o->len, own ? 0 : 1, most_len));
    TRY(check_number(d, "source_len", o->source_len, 0, most_len));
    TRY(check_number(d, "multiple", o->multiple, 0, 1 << 20));
    TRY(check_number(d, "patch", o->patch, 0, 1 << 20));
    TRY(check_number(d, "n_classes", o->n_classes, o->classes ? 1 : 0, 1 << 16));
    TRY(check_number(d, "examples", o->examples, 0, (int64_t)1 << 48));
    if (!o->batch && !o->tokens)
        return ctx_fail(d->ctx, FOCI_ERR_ARG,
                        "batch=0 and tokens=0: one of them says how large a batch is");
    if (!(o->mask >= 0 && o->mask < 1))
        return ctx_fail(d->ctx, FOCI_ERR_ARG,
                        "mask=%g: the share of hidden tokens is 0 to less than 1",
                        o->mask);
    if (isfinite(o->shift) && isfinite(o->scale)) return FOCI_OK;
    return ctx_fail(d->ctx, FOCI_ERR_ARG, "shift=%g, scale=%g: numbers are needed",
                    o->shift, o->scale);
}

static foci_status check_order(foci_data *d)
{
    const foci_data_options *o = &d->o;
    const bool               documents = o->documents != FOCI_DATA_DOCUMENTS_NONE;

    TRY(check_only(d, documents, is_text(o->kind), "documents", "lm and mlm"));
    TRY(check_only(d, is_segments(d), is_text(o->kind) && !documents,
                   "an order of segments", "lm and mlm without documents"));
    TRY(check_only(d, o->pack, documents || o->kind == FOCI_DATA_CLASSIFY, "pack",
                   "documents and classify"));
    TRY(check_only(d, o->pack && o->tokens, false, "tokens beside pack",
                   "rows that are not packed, and is"));
    TRY(check_only(d, o->stride,
                   o->kind == FOCI_DATA_LM && !documents &&
                       o->order == FOCI_DATA_ORDER_ONCE,
                   "stride", "one pass over the text of an lm"));
    return check_number(d, "stride", o->stride, 0, o->stride ? o->len : 0);
}

static void fill_in(foci_data *d)
{
    foci_data_options *o = &d->o;

    if (!o->source_len) o->source_len = o->len;
    if (!o->multiple) o->multiple = 1;
    if (!o->patch) o->patch = 1;
    if (o->mask == 0) o->mask = 0.15;
    if (!o->memory) o->memory = (size_t)1 << 30;
    if (o->too_long == FOCI_DATA_LONG_DEFAULT)
        o->too_long = is_once(d) ? FOCI_DATA_LONG_CUT : FOCI_DATA_LONG_DROP;
}

foci_status options_take(foci_data *d)
{
    TRY(check_enums(d));
    TRY(check_source(d));
    TRY(check_part(d));
    TRY(check_shape(d));
    TRY(check_order(d));
    fill_in(d);
    return FOCI_OK;
}

foci_status options_fit(foci_data *d)
{
    foci_data_options *o = &d->o;
    const bool         pairs = d->kind == FOCI_DATA_TRANSLATE;
    const int64_t      longest = pairs ? max64(o->len, o->source_len) : o->len;

    if (!pairs) o->source_len = 0;
    if (o->tokens && o->tokens < longest)
        return ctx_fail(d->ctx, FOCI_ERR_ARG,
                        "tokens=%lld: a row of %lld does not fit into a batch",
                        (long long)o->tokens, (long long)longest);
    /* Rows of these are all alike. */
    if (o->tokens && (d->supply->running || d->kind == FOCI_DATA_IMAGES)) {
        const int64_t rows = o->tokens / longest;
        o->batch = o->batch ? min64(o->batch, rows) : rows;
    }
    return FOCI_OK;
}
