/* reading.c -- a text as a model reads it: the ids that a batch has of it, and what people see
 * in their place.
 *
 * What stands around a text is what data put there in training: a text to classify begins with
 * <bos> where the tokenizer has one, a target begins with <bos>, and a source ends with <eos>.
 * Around texts of the other kinds there is nothing: windows of a long text begin anywhere.
 */
#include <inttypes.h>
#include <string.h>

#include "foci/analyse.h"
#include "train/model.h"

enum { MOST_PRESET = 256 };

/* All that a reading has, in one piece of memory but for the arrays of its sides. */
struct reading {
    foci_reading public; /* the first: it is what callers hold */
    foci_ctx         *ctx;
    foci_reading_side sides[2];
    foci_batch        batch;
    int32_t           lens[2], class;
    int32_t          *ids[2], *words[2]; /* [cap] */
    int32_t          *labels;            /* [cap[0]], of which none counts */
    int64_t           cap[2];
    char            **tokens[2]; /* [n], all in */
    char             *text[2];   /* [bytes] */
    size_t            bytes[2];
};

static const char *const names[] = { "text", "source" };

static int32_t special(const foci_tokenizer *t, foci_special which, foci_special other)
{
    const int32_t id = foci_tokenizer_special(t, which);
    return id >= 0 ? id : foci_tokenizer_special(t, other);
}

static int64_t most_of(const foci_model *m, const foci_reading_options *o, int side)
{
    const foci_model_config *c = &m->config;
    const int64_t context = side && c->source_context ? c->source_context : c->context;

    return min64(context, o->most > 0 ? o->most : MOST_PRESET);
}

/* `first` and `last` are put around the text, unless negative; where it is cut the last one
 * stays. */
static foci_status encode(struct reading *r, int side, const foci_tokenizer *t,
                          const foci_string *text, int64_t most, int32_t first,
                          int32_t last)
{
    foci_reading_side *s = &r->sides[side];
    foci_encoder      *encoder = NULL;
    int64_t            offsets[2] = { 0, 0 };

    TRY(foci_encoder_create(t, &encoder));
    const int64_t room = foci_encoder_most(encoder, text, 1);
    r->cap[side] = room + 2;
    r->ids[side] = ctx_alloc(r->ctx, (size_t)r->cap[side], sizeof(int32_t));
    foci_status status = r->ids[side] ? FOCI_OK : FOCI_ERR_MEMORY;
    if (!status)
        status = foci_encode(encoder, text, 1, 0, r->ids[side] + (first >= 0), room,
                             offsets);
    foci_encoder_free(encoder);
    TRY(status);
    if (first >= 0) r->ids[side][0] = first;
    s->whole = offsets[1] + (first >= 0) + (last >= 0);
    s->n = min64(s->whole, most);
    if (last >= 0 && s->n) r->ids[side][s->n - 1] = last;
    s->ids = r->ids[side];
    if (s->n) return FOCI_OK;
    return ctx_fail(r->ctx, FOCI_ERR_ARG,
                    "the %s has no tokens: give one that has some", names[side]);
}

static foci_status find_words(struct reading *r, int side, const foci_model *m,
                              const foci_tokenizer *t)
{
    foci_word_state state = { FOCI_SIZED(foci_word_state) };

    if (!foci_model_reads_words(m)) return FOCI_OK;
    r->words[side] = ctx_alloc(r->ctx, (size_t)r->cap[side], sizeof(int32_t));
    if (!r->words[side]) return FOCI_ERR_MEMORY;
    return foci_token_words(t, r->ids[side], r->sides[side].n, &state, r->words[side]);
}

static foci_status display(struct reading *r, int side, const foci_tokenizer *t)
{
    foci_reading_side *s = &r->sides[side];
    size_t             at = 0;

    for (int64_t i = 0; i < s->n; i++)
        r->bytes[side] += (size_t)foci_token_display(t, s->ids[i], NULL, 0) + 1;
    r->text[side] = ctx_alloc(r->ctx, r->bytes[side], 1);
    r->tokens[side] = ctx_alloc(r->ctx, (size_t)s->n, sizeof(char *));
    if (!r->text[side] || !r->tokens[side]) return FOCI_ERR_MEMORY;
    for (int64_t i = 0; i < s->n; i++) {
        char *const text = r->text[side] + at;
        r->tokens[side][i] = text;
        at += (size_t)foci_token_display(t, s->ids[i], text, r->bytes[side] - at) + 1;
    }
    s->tokens = (const char *const *)r->tokens[side];
    return FOCI_OK;
}

static foci_status read_side(struct reading *r, int side, const foci_model *m,
                             const foci_tokenizer *t, const foci_reading_options *o)
{
    const foci_model_kind task = m->config.task;
    const foci_string    *text = side ? &o->source : &o->text;
    const foci_string     empty = { "", 0 };
    int32_t               first = -1, last = -1;

    if (text->bytes < 0 || (text->bytes && !text->text))
        return ctx_fail(r->ctx, FOCI_ERR_ARG,
                        "the %s has %" PRId64 " bytes, but its address is %s",
                        names[side], text->bytes, text->text ? "given" : "NULL");
    if (task == FOCI_MODEL_CLASSIFY)
        first = foci_tokenizer_special(t, FOCI_SPECIAL_BOS);
    if (task == FOCI_MODEL_TRANSLATE && side == 0)
        first = special(t, FOCI_SPECIAL_BOS, FOCI_SPECIAL_EOS);
    if (side) last = special(t, FOCI_SPECIAL_EOS, FOCI_SPECIAL_BOS);
    TRY(encode(r, side, t, text->text ? text : &empty, most_of(m, o, side), first,
               last));
    TRY(find_words(r, side, m, t));
    r->lens[side] = (int32_t)r->sides[side].n;
    return display(r, side, t);
}

/* Models take batches that say what they should learn: nothing. */
static foci_status make_labels(struct reading *r)
{
    r->labels = ctx_alloc(r->ctx, (size_t)r->cap[0], sizeof *r->labels);
    if (!r->labels) return FOCI_ERR_MEMORY;
    for (int64_t i = 0; i < r->cap[0]; i++)
        r->labels[i] = -1;
    return FOCI_OK;
}

static void make_batch(struct reading *r)
{
    r->batch = (foci_batch){
        FOCI_SIZED(foci_batch),
        .batch = 1,
        .len = r->lens[0],
        .ids = r->ids[0],
        .lens = &r->lens[0],
        .labels = r->labels,
        .classes = &r->class,
        .words = r->words[0],
        .source_len = r->lens[1],
        .source_ids = r->ids[1],
        .source_lens = r->ids[1] ? &r->lens[1] : NULL,
        .source_words = r->words[1],
        .n_tokens = r->lens[0] + (int64_t)r->lens[1],
    };
}

static foci_status check(const foci_model *m, const foci_tokenizer *t,
                         const foci_reading_options *o)
{
    const bool translates = m->config.task == FOCI_MODEL_TRANSLATE;

    if (!t)
        return ctx_fail(
            m->ctx, FOCI_ERR_ARG,
            "the model has no tokenizer, so it reads no text: it was trained "
            "on a generator or on images");
    if (foci_tokenizer_fingerprint(t) != m->config.tokenizer)
        return ctx_fail(m->ctx, FOCI_ERR_ARG,
                        "the tokenizer is not that of the model, whose ids mean "
                        "something else");
    if (translates == (o->source.text != NULL)) return FOCI_OK;
    return ctx_fail(m->ctx, FOCI_ERR_ARG,
                    translates ? "there is no source, which the model translates from"
                               : "there is a source, which only a translation has");
}

foci_status foci_reading_create(foci_model *model, const foci_tokenizer *tokenizer,
                                const foci_reading_options *options,
                                foci_reading              **reading)
{
    foci_reading_options o;

    if (reading) *reading = NULL;
    if (!model || !reading)
        return ctx_fail(model ? model->ctx : NULL, FOCI_ERR_ARG,
                        "foci_reading_create: %s is NULL",
                        model ? "reading" : "the model");
    TRY(sized_in(model->ctx, "foci_reading_options", &o, options, sizeof o));
    TRY(check(model, tokenizer, &o));
    struct reading *r = ctx_alloc(model->ctx, 1, sizeof *r);
    if (!r) return FOCI_ERR_MEMORY;
    r->ctx = model->ctx;
    r->public = (foci_reading){ FOCI_SIZED(foci_reading), .sides = r->sides,
                                .batch = &r->batch };
    foci_status status = read_side(r, 0, model, tokenizer, &o);
    if (!status && o.source.text) status = read_side(r, 1, model, tokenizer, &o);
    if (!status) status = make_labels(r);
    make_batch(r);
    if (status)
        foci_reading_free(&r->public);
    else
        *reading = &r->public;
    return status;
}

void foci_reading_free(foci_reading *reading)
{
    struct reading *r = (struct reading *)reading;

    for (int side = 0; r && side < 2; side++) {
        const size_t cap = (size_t)r->cap[side];
        if (r->ids[side]) ctx_free(r->ctx, r->ids[side], cap, sizeof(int32_t));
        if (r->words[side]) ctx_free(r->ctx, r->words[side], cap, sizeof(int32_t));
        if (r->text[side]) ctx_free(r->ctx, r->text[side], r->bytes[side], 1);
        if (r->tokens[side])
            ctx_free(r->ctx, r->tokens[side], (size_t)r->sides[side].n, sizeof(char *));
    }
    if (r && r->labels)
        ctx_free(r->ctx, r->labels, (size_t)r->cap[0], sizeof *r->labels);
    if (r) ctx_free(r->ctx, r, 1, sizeof *r);
}
