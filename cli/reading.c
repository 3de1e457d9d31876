/* reading.c -- the text that a trained model is looked at on. */
#include <stdlib.h>
#include <string.h>

#include "cli/reading.h"
#include "cli/translations.h"

/* The text of --prompt, or that of the file, but for the end of its last line. */
static int find_text(const struct args *a, struct text_lines *file, foci_string *text)
{
    const char *path = opt_text(a, "text"), *prompt = opt_text(a, "prompt");

    if (path && prompt) return usage_error(a, "--text and --prompt exclude each other");
    if (!path && !prompt)
        return usage_error(a,
                           "a model reads a text: give --text FILE or --prompt TEXT");
    if (prompt) {
        *text = (foci_string){ prompt, (int64_t)strlen(prompt) };
        return EXIT_OK;
    }
    const int code = text_lines_read(a, path, file);
    if (code) return code;
    *text = (foci_string){ file->text, (int64_t)file->bytes };
    if (text->bytes && text->text[text->bytes - 1] == '\n') text->bytes--;
    if (text->bytes && text->text[text->bytes - 1] == '\r') text->bytes--;
    return text->bytes ? EXIT_OK : failure(a, "--text %s: it is empty", path);
}

/*
 * Translation
 */

struct own_translation {
    const foci_tokenizer *tokenizer;
    char                 *text;
    int64_t               bytes;
    foci_status           status;
};

static int take(void *user, int64_t sentence, const int32_t *ids, int64_t n,
                double score)
{
    struct own_translation *t = user;
    foci_decoder            none = { FOCI_SIZED(foci_decoder) }, d = none;
    const unsigned          flags = FOCI_DECODE_END;

    (void)sentence;
    (void)score;
    t->status = foci_decode(t->tokenizer, &d, ids, n, flags, NULL, 0, &t->bytes);
    if (t->status) return 1;
    t->text = need((size_t)t->bytes + 1, 1);
    d = none;
    t->status =
        foci_decode(t->tokenizer, &d, ids, n, flags, t->text, t->bytes, &t->bytes);
    return t->status != FOCI_OK;
}

/* The source as the model reads it, without a target, is translated. */
static foci_status translate(foci_model *model, const foci_reading_options *o,
                             struct own_translation *t)
{
    const foci_translate_options greedy = { FOCI_SIZED(foci_translate_options) };
    foci_reading                *r = NULL;

    foci_status status = foci_reading_create(model, t->tokenizer, o, &r);
    if (!status)
        status =
            foci_translate(model, 1, r->sides[1].ids, &r->sides[1].n, &greedy, take, t);
    foci_reading_free(r);
    return status ? status : t->status;
}

/* Of the first line. */
static foci_status read_pair(foci_model *model, foci_reading_options *o,
                             struct own_translation *t)
{
    const char *end = memchr(o->text.text, '\n', (size_t)o->text.bytes);

    if (end) o->text.bytes = end - o->text.text;
    const char *tab = memchr(o->text.text, '\t', (size_t)o->text.bytes);
    o->source = o->text;
    o->text = (foci_string){ "", 0 };
    if (tab) {
        const int64_t before = tab - o->source.text;
        o->text = (foci_string){ tab + 1, o->source.bytes - before - 1 };
        o->source.bytes = before;
        return FOCI_OK;
    }
    const foci_status status = translate(model, o, t);
    o->text = (foci_string){ t->text ? t->text : "", t->text ? t->bytes : 0 };
    return status;
}

/*
 * What is read
 */

static void note_cut(const struct args *a, const foci_reading_side *s, const char *what,
                     int64_t most, int64_t context)
{
    if (s->whole <= s->n) return;
    if (most < context)
        note(a,
             "the %s has %lld tokens, of which the first %lld are read: --tokens "
             "takes up to %d, and the model up to %lld",
             what, (long long)s->whole, (long long)s->n, READING_MOST,
             (long long)context);
    else
        note(a,
             "the %s has %lld tokens, of which the first %lld are read: that is all "
             "that the model takes, its context",
             what, (long long)s->whole, (long long)s->n);
}

static int read_all(const struct args *a, foci_ctx *ctx, foci_model *model,
                    const foci_tokenizer *tokenizer, foci_string text,
                    foci_reading **reading)
{
    foci_model_config      c = { FOCI_SIZED(foci_model_config) };
    foci_reading_options   o = { FOCI_SIZED(foci_reading_options), .text = text,
                                 .most = opt_int(a, "tokens", 256) };
    struct own_translation t = { .tokenizer = tokenizer };
    foci_status            status = FOCI_OK;

    foci_model_get_config(model, &c);
    if (c.task == FOCI_MODEL_TRANSLATE) status = read_pair(model, &o, &t);
    if (!status) status = foci_reading_create(model, tokenizer, &o, reading);
    free(t.text);
    if (status) return library_error(a, ctx, status, a->words[0]);
    note_cut(a, &(*reading)->sides[0], "text", o.most, c.context);
    note_cut(a, &(*reading)->sides[1], "source", o.most, c.source_context);
    return EXIT_OK;
}

int reading_open(const struct args *a, foci_ctx *ctx, foci_model *model,
                 const foci_tokenizer *tokenizer, foci_reading **reading)
{
    struct text_lines file = { 0 };
    foci_string       text = { "", 0 };

    int code = find_text(a, &file, &text);
    if (!code && !tokenizer)
        code = failure(a, "%s has no tokenizer: it was trained on a generator",
                       a->words[0]);
    if (!code) code = read_all(a, ctx, model, tokenizer, text, reading);
    text_lines_free(&file);
    return code;
}
