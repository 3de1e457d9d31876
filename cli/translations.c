/* translations.c -- text to text through a model of task translate. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/translations.h"

/*
 * Lines
 */

static int read_all(const struct args *a, foci_reader *in, struct text_lines *l)
{
    size_t *const bytes = &l->bytes;
    size_t        cap = 1 << 16;
    int64_t       n;

    l->text = need(cap, 1);
    while ((n = in->read(in->user, l->text + *bytes, (int64_t)(cap - *bytes - 1))) > 0) {
        *bytes += (size_t)n;
        if (*bytes + 1 < cap) continue;
        char *more = need(2 * cap, 1);
        memcpy(more, l->text, *bytes);
        free(l->text);
        l->text = more;
        cap *= 2;
    }
    return n < 0 ? failure(a, "%s: %s", in->name, in->error(in->user)) : EXIT_OK;
}

static void split(struct text_lines *l)
{
    const size_t bytes = l->bytes;
    int64_t      n = bytes > 0 && l->text[bytes - 1] != '\n';

    for (size_t i = 0; i < bytes; i++)
        n += l->text[i] == '\n';
    l->line = need((size_t)n + 1, sizeof *l->line);
    for (char *p = l->text, *end = l->text + bytes; p < end; l->n++) {
        char   *stop = memchr(p, '\n', (size_t)(end - p));
        int64_t len = (stop ? stop : end) - p;
        if (stop && len && stop[-1] == '\r') len--;
        l->line[l->n] = (foci_string){ p, len };
        p = stop ? stop + 1 : end;
    }
}

int text_lines_read(const struct args *a, const char *path, struct text_lines *l)
{
    foci_reader in;

    *l = (struct text_lines){ 0 };
    if (text_open(a, path, &in)) return EXIT_FAILED;
    const int code = read_all(a, &in, l);
    foci_reader_close(&in);
    if (code == EXIT_OK) split(l);
    return code;
}

void text_lines_free(struct text_lines *l)
{
    free(l->line);
    free(l->text);
}

/*
 * Translating
 */

struct telling {
    const foci_tokenizer *tokenizer;
    translation_told     *told;
    void                 *user;
    struct progress      *progress;
    char                 *text;
    int64_t               cap;
    foci_status           status;
};

static int tell(void *user, int64_t sentence, const int32_t *ids, int64_t n,
                double score)
{
    struct telling *t = user;
    foci_decoder    none = { FOCI_SIZED(foci_decoder) }, d = none;
    int64_t         bytes = 0;
    const unsigned  flags = FOCI_DECODE_END | FOCI_DECODE_REPLACE;

    t->status = foci_decode(t->tokenizer, &d, ids, n, flags, t->text, t->cap, &bytes);
    if (!t->status && bytes > t->cap) {
        free(t->text);
        t->cap = 2 * bytes;
        t->text = need((size_t)t->cap, 1);
        d = none;
        t->status =
            foci_decode(t->tokenizer, &d, ids, n, flags, t->text, t->cap, &bytes);
    }
    if (t->status) return 1;
    for (int64_t i = 0; i < bytes; i++) /* a translation is one line */
        if (t->text[i] == '\n') t->text[i] = ' ';
    while (bytes && t->text[bytes - 1] == ' ')
        bytes--;
    t->told(t->user, sentence, t->text, bytes, score);
    progress_tick(t->progress, sentence + 1, "translating");
    return 0;
}

/* Ids of all lines, each with the end that training gave it, cut to the context. */
static int encode(const struct args *a, foci_ctx *ctx, const foci_tokenizer *tokenizer,
                  const foci_string *lines, int64_t n, int64_t most, int32_t **ids,
                  int64_t *lens)
{
    const int32_t eos = foci_tokenizer_special(tokenizer, FOCI_SPECIAL_EOS);
    foci_encoder *encoder = NULL;

    if (foci_encoder_create(tokenizer, &encoder))
        return failure(a, "%s", foci_errmsg(ctx));
    const int64_t cap = foci_encoder_most(encoder, lines, n) + n;
    int32_t      *raw = need((size_t)cap + 1, sizeof *raw);
    int64_t      *offsets = need((size_t)n + 1, sizeof *offsets);
    *ids = need((size_t)cap + 1, sizeof **ids);
    const foci_status status = foci_encode(encoder, lines, n, 0, raw, cap, offsets);
    int64_t           at = 0;
    for (int64_t i = 0; i < n && !status; i++) {
        int64_t len = offsets[i + 1] - offsets[i];
        if (len > most - 1) {
            note(a, "line %lld is cut to %lld tokens", (long long)i + 1,
                 (long long)most - 1);
            len = most - 1;
        }
        memcpy(*ids + at, raw + offsets[i], (size_t)len * sizeof **ids);
        if (eos >= 0) (*ids)[at + len++] = eos;
        lens[i] = len;
        at += len;
    }
    foci_encoder_free(encoder);
    free(raw);
    free(offsets);
    return status ? library_error(a, ctx, status, NULL) : EXIT_OK;
}

int translations_run(const struct args *a, foci_ctx *ctx, foci_model *model,
                     const foci_tokenizer *tokenizer, const foci_string *lines,
                     int64_t n, translation_told *told, void *user)
{
    foci_model_config            c = { FOCI_SIZED(foci_model_config) };
    const foci_translate_options o = {
        FOCI_SIZED(foci_translate_options),
        .beam = opt_int(a, "beam", 1),
        .penalty = opt_text(a, "length-penalty") && opt_real(a, "length-penalty", 0) == 0
                       ? -1
                       : opt_real(a, "length-penalty", 0),
        .tokenizer = tokenizer,
    };
    struct progress progress;
    struct telling  t = {
         .tokenizer = tokenizer, .told = told, .user = user, .progress = &progress
    };
    int32_t *ids = NULL;
    int64_t *lens = need((size_t)n + 1, sizeof *lens);

    foci_model_get_config(model, &c);
    progress_begin(&progress, a, "sentences", n);
    int code = encode(a, ctx, tokenizer, lines, n, c.source_context, &ids, lens);
    if (!code) {
        foci_status status = foci_translate(model, n, ids, lens, &o, tell, &t);
        if (!status) status = t.status;
        if (status) code = library_error(a, ctx, status, NULL);
    }
    progress_end(&progress);
    free(t.text);
    free(ids);
    free(lens);
    return code;
}

/*
 * Judging
 */

struct judging {
    foci_ctx           *ctx;
    const foci_string  *references;
    int64_t             first; /* line of the file */
    translation_judged *told;
    void               *user;
    foci_bleu_counts    bleu;
    foci_chrf_counts    chrf;
};

static void add_counts(int64_t *sum, const int64_t *x, int n)
{
    for (int i = 0; i < n; i++)
        sum[i] += x[i];
}

static void judge_line(void *user, int64_t line, const char *text, int64_t bytes,
                       double score)
{
    struct judging    *j = user;
    const foci_string  said = { text, bytes }, right = j->references[line];
    struct translation t = {
        .line = j->first + line, .text = text, .bytes = bytes, .score = score
    };

    (void)foci_bleu_add(j->ctx, said, right, &t.bleu);
    (void)foci_chrf_add(j->ctx, said, right, &t.chrf);
    add_counts(j->bleu.match, t.bleu.match, 4);
    add_counts(j->bleu.total, t.bleu.total, 4);
    j->bleu.length += t.bleu.length;
    j->bleu.reference += t.bleu.reference;
    add_counts(j->chrf.translation, t.chrf.translation, 6);
    add_counts(j->chrf.reference, t.chrf.reference, 6);
    add_counts(j->chrf.match, t.chrf.match, 6);
    if (j->told) j->told(j->user, &t);
}

/* Lines that begin in the part of the text that is used, as foci_data_options says. */
static void take_part(const struct text_lines *l, const struct train_source *from,
                      int64_t *begin, int64_t *end)
{
    const double  bytes = (double)l->bytes;
    const int64_t from_byte = (int64_t)(bytes * from->begin);
    const int64_t to_byte =
        from->end > 0 && from->end < 1 ? (int64_t)(bytes * from->end) : INT64_MAX;

    *begin = 0;
    while (*begin < l->n && l->line[*begin].text - l->text < from_byte)
        ++*begin;
    *end = *begin;
    while (*end < l->n && l->line[*end].text - l->text < to_byte)
        ++*end;
}

/* Lines SOURCE<TAB>TARGET apart. */
static int split_columns(const struct args *a, const char *path, struct text_lines *l,
                         int64_t begin, int64_t end, bool reverse,
                         foci_string *references)
{
    for (int64_t i = begin; i < end; i++) {
        foci_string *s = &l->line[i];
        const char  *tab = memchr(s->text, '\t', (size_t)s->bytes);
        if (!tab)
            return failure(a, "%s: line %lld has no tab between two columns", path,
                           (long long)i + 1);
        foci_string first = { s->text, tab - s->text };
        foci_string second = { tab + 1, s->bytes - first.bytes - 1 };
        *s = reverse ? second : first;
        references[i] = reverse ? first : second;
    }
    return EXIT_OK;
}

int translations_judge(const struct args *a, foci_ctx *ctx, foci_model *model,
                       const foci_tokenizer *tokenizer, const struct train_source *from,
                       translation_judged *told, void *user,
                       struct translation_scores *scores)
{
    struct text_lines source = { 0 }, target = { 0 };
    struct judging    j = { .ctx = ctx, .told = told, .user = user };
    foci_bleu         bleu = { FOCI_SIZED(foci_bleu) };
    foci_string      *references = NULL;
    int64_t           end = 0;

    int code = text_lines_read(a, from->text, &source);
    if (!code && from->target) code = text_lines_read(a, from->target, &target);
    if (!code && from->target && target.n != source.n)
        code = failure(a, "%s has %lld lines and %s %lld", from->text,
                       (long long)source.n, from->target, (long long)target.n);
    if (!code) take_part(&source, from, &j.first, &end);
    if (!code && !from->target) {
        references = need((size_t)source.n + 1, sizeof *references);
        code = split_columns(a, from->text, &source, j.first, end, from->reverse,
                             references);
    }
    if (!code) {
        j.references = (references ? references : target.line) + j.first;
        code = translations_run(a, ctx, model, tokenizer, source.line + j.first,
                                end - j.first, judge_line, &j);
    }
    if (!code && foci_bleu_score(&j.bleu, 0, &bleu))
        code = failure(a, "%s", foci_errmsg(ctx));
    *scores = (struct translation_scores){ bleu.score, bleu.brevity,
                                           foci_chrf_score(&j.chrf) };
    text_lines_free(&source);
    text_lines_free(&target);
    free(references);
    return code;
}
