/* positional_step_token.c -- one token of a head, by the patterns and by taps. */
#include <string.h>

#include "engine/positional/positional_step.h"
#include "engine/positional/positional_taps.h"

/* The mean takes in v as number m, from 1. */
static void add_to_mean(const struct positional_token *t, const double *v, int64_t m)
{
    const double a = positional_mean_factor(m);

    for (int c = 0; c < t->x->ldv; c++)
        t->row[MEAN][c] += a * (v[c] - t->row[MEAN][c]);
}

/* o = v; NULL: zero. */
static void output(const struct positional_token *t, const double *v)
{
    for (int c = 0; c < t->x->ldv; c++)
        t->o[c] = v ? (float)v[c] : 0;
}

static void copy_row(const struct positional_token *t, double *to, const double *from)
{
    memcpy(to, from, (size_t)t->x->ldv * sizeof *to);
}

/* A row that sees nothing takes itself or zero. */
static void output_empty(const struct positional_token *t, const double *self)
{
    output(t, t->kind.self ? self : NULL);
}

void positional_token(const struct positional_token *t)
{
    double      *v = t->r->offset;
    struct cubes f;

    for (int c = 0; c < t->x->ldv; c++)
        v[c] = (double)t->v[c];
    switch (t->kind.pattern) {
    case FOCI_PATTERN_CURRENT: output(t, v); break;
    case FOCI_PATTERN_PREVIOUS:
        if (t->n)
            output(t, t->row[BEFORE]);
        else
            output_empty(t, v);
        copy_row(t, t->row[BEFORE], v);
        break;
    case FOCI_PATTERN_LEFT:
        if (t->n >= 2) {
            add_to_mean(t, t->row[BEFORE2], t->n - 1);
            output(t, t->row[MEAN]);
        } else {
            output_empty(t, v);
        }
        copy_row(t, t->row[BEFORE2], t->row[BEFORE]);
        copy_row(t, t->row[BEFORE], v);
        break;
    case FOCI_PATTERN_END:
        add_to_mean(t, v, t->n + 1);
        output(t, t->row[MEAN]);
        break;
    case FOCI_PATTERN_START:
        positional_cubes(&f, t->n, 1);
        t->x->k->cube_rows(t->o, t->x->ldv, t->v, t->x->ldv, 1, t->x->ldv, &f,
                           t->row[MEAN]);
        break;
    default: output_empty(t, v); break;
    }
}

/* A new word starts: the word before it is complete. */
static void end_word(const struct positional_token *t, int64_t word)
{
    struct cubes f;

    switch (t->kind.pattern) {
    case FOCI_PATTERN_LEFT:
        if (word >= 2) add_to_mean(t, t->row[BEFORE], word - 1);
        copy_row(t, t->row[BEFORE], t->row[WORD]);
        break;
    case FOCI_PATTERN_PREVIOUS: copy_row(t, t->row[BEFORE], t->row[WORD]); break;
    case FOCI_PATTERN_END: add_to_mean(t, t->row[WORD], word); break;
    case FOCI_PATTERN_START:
        positional_cubes(&f, word - 1, 1);
        for (int c = 0; c < t->x->ldv; c++)
            t->r->tile[c] = (float)t->row[WORD][c];
        t->x->k->cube_rows(t->r->tile, t->x->ldv, t->r->tile, t->x->ldv, 1, t->x->ldv,
                           &f, t->row[MEAN]);
        break;
    default: break;
    }
}

/* o = by u + f . the n means, with u the mean of the word so far. */
static void output_means(const struct positional_token *t, double by, const double *f,
                         int n)
{
    const int ld = t->x->ldv;

    for (int c = 0; c < ld; c++) {
        double sum = by * t->row[WORD][c];
        for (int p = 0; p < n; p++)
            sum += f[p] * t->row[MEAN][p * ld + c];
        t->o[c] = (float)sum;
    }
}

void positional_word_token(const struct positional_token *t, int64_t word)
{
    struct last_word *last = t->state;
    struct cubes      f;
    double            a, rest;

    if (!last->tokens || word != last->number) {
        if (last->tokens) end_word(t, word);
        *last = (struct last_word){ .number = word };
    }
    last->tokens++;
    for (int c = 0; c < t->x->ldv; c++)
        t->row[WORD][c] = last->tokens == 1
                              ? (double)t->v[c]
                              : t->row[WORD][c] + ((double)t->v[c] - t->row[WORD][c]) /
                                                      (double)last->tokens;
    switch (t->kind.pattern) {
    case FOCI_PATTERN_CURRENT: output(t, t->row[WORD]); break;
    case FOCI_PATTERN_PREVIOUS:
        if (word > 0)
            output(t, t->row[BEFORE]);
        else
            output_empty(t, t->row[WORD]);
        break;
    case FOCI_PATTERN_LEFT:
        if (word > 1)
            output(t, t->row[MEAN]);
        else
            output_empty(t, t->row[WORD]);
        break;
    case FOCI_PATTERN_END:
        a = positional_mean_factor(word + 1);
        rest = 1 - a;
        output_means(t, a, &rest, 1);
        break;
    case FOCI_PATTERN_START:
        positional_cubes(&f, word, 1);
        output_means(t, f.in[3], f.from + 6, 4);
        break;
    default: output_empty(t, t->row[WORD]); break;
    }
}

/* Number t of the logits of a token's taps. */
static double tap_logit(const struct positional *x, const float *w, int64_t t,
                        const float *x_row)
{
    const int64_t d = x->p->dim_x;
    double        z = 0;

    if (!positional_taps_of_x(x)) return (double)w[t];
    for (int64_t e = 0; e < d; e++)
        z += (double)w[t * d + e] * (double)x_row[e];
    return z;
}

/* o of run `part` of head h: the taps by the values kept, and the last tap by this
 * one. */
static void output_taps(const struct positional_token *t, const float *w, int64_t h,
                        int64_t part)
{
    const struct positional *x = t->x;
    const foci_positional   *kind = &x->kind;
    const int64_t width = kind->width, first = (h * kind->parts + part) * width;
    const int64_t each = x->dv / kind->parts;
    const float  *values = t->state;
    float        *taps = t->r->taps;

    for (int64_t i = 0; i < width; i++)
        taps[i] = (float)tap_logit(x, w, first + i, t->r->x_rows);
    positional_softmax(taps, (int)width);
    for (int64_t c = part * each; c < (part + 1) * each; c++) {
        float sum = taps[width - 1] * t->v[c];
        for (int64_t i = 0; i < width - 1; i++)
            sum += taps[i] * values[i * x->ldv + c];
        t->o[c] = sum;
    }
}

void positional_taps_token(const struct positional_token *t, const float *params,
                           int64_t h, bool attend)
{
    const struct positional *x = t->x;
    const int64_t            kept = x->kind.width - 1;
    const size_t             row = (size_t)x->ldv * sizeof(float);
    float                   *values = t->state;

    for (int64_t part = 0; attend && part < x->kind.parts; part++)
        output_taps(t, params + x->stage->group->param0[0], h, part);
    if (!kept) return;
    memmove(values, values + x->ldv, (size_t)(kept - 1) * row);
    memcpy(values + (kept - 1) * x->ldv, t->v, row);
}
