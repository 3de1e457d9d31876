/* eval_outputs.c -- results one by one, for statistics over examples: a file with a line of
 * JSON for each. */
#include <stdlib.h>
#include <string.h>

#include "cli/eval.h"
#include "foci/file.h"

struct output_line {
    int64_t number; /* of the example in its file or split, or of the window */
    char   *text;
};

struct outputs {
    struct output_line *line; /* [n] */
    size_t              n, cap;
};

struct outputs *outputs_open(void)
{
    struct outputs *o = need(1, sizeof *o);
    return o;
}

void outputs_free(struct outputs *o)
{
    for (size_t i = 0; o && i < o->n; i++)
        free(o->line[i].text);
    if (o) free(o->line);
    free(o);
}

static void add(struct outputs *o, int64_t number, json_t *line)
{
    o->line = need_one_more(o->line, o->n, &o->cap, sizeof *o->line);
    o->line[o->n++] =
        (struct output_line){ number,
                              json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) };
    json_decref(line);
}

/* Windows of a text have no numbers: they are counted, those without labels left out. */
static void add_row(struct outputs *o, const foci_batch *b, int64_t row,
                    const struct tally *t)
{
    const int64_t example = b->examples ? b->examples[row] : -1;
    const bool    window = example < 0;
    const int64_t number = window ? (int64_t)o->n : example;

    if (window && !t->labels) return;
    add(o, number,
        json_pack("{s:I, s:I, s:I, s:f}", window ? "window" : "example",
                  (json_int_t)number, window ? "tokens" : "labels",
                  (json_int_t)t->labels, "hits", (json_int_t)t->hits, "nats", t->nats));
}

void outputs_add_rows(struct outputs *o, const foci_batch *b, const float *nats,
                      const int32_t *best)
{
    int64_t at = 0;

    for (int64_t row = 0; row < b->batch; row++) {
        struct tally t = { 0 };
        for (; at < b->n_labels && batch_row(b, at) == row; at++)
            tally_add(&t, best[at] == batch_label(b, at), (double)nats[at]);
        add_row(o, b, row, &t);
    }
}

static json_t *json_counts(const int64_t *x, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(x[i]));
    return list;
}

/* The counts as their structs name them. */
void outputs_add_translation(struct outputs *o, const struct translation *t)
{
    const foci_bleu_counts *b = &t->bleu;
    const foci_chrf_counts *c = &t->chrf;
    json_t                 *said = json_stringn(t->text, (size_t)t->bytes);

    add(o, t->line,
        json_pack("{s:I, s:o, s:f, s:{s:o, s:o, s:I, s:I}, s:{s:o, s:o, s:o}}",
                  "source", (json_int_t)t->line, "hypothesis",
                  said ? said : json_null(), "score", t->score, "bleu", "match",
                  json_counts(b->match, 4), "total", json_counts(b->total, 4), "length",
                  (json_int_t)b->length, "reference", (json_int_t)b->reference, "chrf",
                  "translation", json_counts(c->translation, 6), "reference",
                  json_counts(c->reference, 6), "match", json_counts(c->match, 6)));
}

static int compare(const void *a, const void *b)
{
    const struct output_line *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

int outputs_write(const struct args *a, foci_ctx *ctx, struct outputs *o,
                  const char *path)
{
    size_t bytes = 0, at = 0;

    if (o->n) qsort(o->line, o->n, sizeof *o->line, compare);
    for (size_t i = 0; i < o->n; i++)
        bytes += strlen(o->line[i].text) + 1;
    char *file = need(bytes + 1, 1);
    for (size_t i = 0; i < o->n; i++) {
        const size_t n = strlen(o->line[i].text);
        memcpy(file + at, o->line[i].text, n);
        file[at + n] = '\n';
        at += n + 1;
    }
    hold_signals();
    const foci_status status = foci_file_write(ctx, path, file, bytes);
    release_signals();
    free(file);
    return status ? library_error(a, ctx, status, NULL) : EXIT_OK;
}
