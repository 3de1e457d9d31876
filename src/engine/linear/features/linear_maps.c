/* linear_maps.c -- feature maps that go element by element, and rotations by position.
 *
 * Angles are position times speed.  Positions may be large, so the angle of a chunk's
 * first lane is computed in double, and the other lanes follow from a table of 64
 * offsets by the addition theorem.
 */
#include <math.h>
#include <string.h>

#include "engine/linear/features/linear_features.h"

static const double pi = 3.14159265358979323846;

/*
 * Tables
 */

static void carve_angles(struct linear *x, struct arena *a)
{
    const foci_linear *l = x->l;
    const int          pairs = x->m / 2;

    if (l->cosine) {
        x->maps.step_shared = l->length > 0;
        x->maps.steps = arena_alloc(
            a, (x->maps.step_shared ? 1 : x->max_seqs) * 2 * CHUNK, sizeof(double));
    }
    if (x->rope) {
        x->maps.speeds = arena_alloc(a, pairs, sizeof(double));
        x->maps.offsets = arena_alloc(a, (int64_t)pairs * 2 * CHUNK, sizeof(float));
    }
}

/* cosFormer: the angle of one position, pi/2 in `length` positions. */
static double step_of(const struct linear *x, const struct linear_seq *s)
{
    return pi / 2 / (x->l->length > 0 ? x->l->length : (double)max64(s->s.nk, 1));
}

static void fill_steps(const struct linear *x)
{
    const int64_t n = x->maps.step_shared ? min64(1, x->n_seqs) : x->n_seqs;

    for (int64_t s = 0; s < n; s++)
        for (int i = 0; i < CHUNK; i++) {
            double *const at = x->maps.steps + (s * CHUNK + i) * 2;
            at[0] = cos(i * step_of(x, &x->seqs[s]));
            at[1] = sin(i * step_of(x, &x->seqs[s]));
        }
}

static void fill_offsets(const struct linear *x)
{
    const struct linear_maps *m = &x->maps;

    for (int t = 0; t < x->m / 2; t++) {
        m->speeds[t] = pow(x->stage->score.rope_base, -2 * (double)t / (double)x->m);
        for (int i = 0; i < CHUNK; i++) {
            m->offsets[(2 * t) * CHUNK + i] = (float)cos(i * m->speeds[t]);
            m->offsets[(2 * t + 1) * CHUNK + i] = (float)sin(i * m->speeds[t]);
        }
    }
}

void linear_maps_carve(struct linear *x, struct arena *a)
{
    carve_angles(x, a);
    if (a->base && x->maps.steps) fill_steps(x);
    if (a->base && x->maps.offsets) fill_offsets(x);
    switch (x->l->feature) {
    case FOCI_FEATURE_POWERS:
    case FOCI_FEATURE_PRODUCTS: linear_products_carve(x, a); break;
    default: break;
    }
}

/*
 * Element by element
 */

/* factor[64] = by in lanes that have a row, else 0. */
static void set_lanes(const struct feature_chunk *c, bool keys, float by, float *factor)
{
    int begin, end;

    linear_lanes(c, keys, &begin, &end);
    for (int i = 0; i < CHUNK; i++)
        factor[i] = i >= begin && i < end ? by : 0;
}

/* Cosine and sine of the lanes' angles. */
static void set_cos_sin(const struct linear *x, const struct feature_chunk *c,
                        bool keys, float *cosine, float *sine)
{
    const double *const step =
        x->maps.steps + (x->maps.step_shared ? 0 : c->s) * 2 * CHUNK;
    const double angle = (double)c->pos * step_of(x, c->seq);
    const double re = cos(angle), im = sin(angle);
    int          begin, end;

    linear_lanes(c, keys, &begin, &end);
    memset(cosine, 0, CHUNK * sizeof *cosine);
    memset(sine, 0, CHUNK * sizeof *sine);
    for (int64_t i = begin; i < end; i++) {
        cosine[i] = (float)(re * step[2 * i] - im * step[2 * i + 1]);
        sine[i] = (float)(im * step[2 * i] + re * step[2 * i + 1]);
    }
}

/* ROW features: the scale s of the weights s q.k goes to the queries. */
static float factor_of(const struct linear *x, bool keys)
{
    return x->l->feature == FOCI_FEATURE_ROW && !keys ? (float)x->scale : 1.0f;
}

static void map_elements(const struct linear *x, const struct feature_chunk *c,
                         bool keys, struct features *t)
{
    _Alignas(64) float factor[CHUNK], sine[CHUNK];
    const int          kind = (int)x->l->feature;

    x->k->pack_cols_f32(t->cols, t->x, x->ldq, CHUNK, x->dq);
    if (x->l->cosine)
        set_cos_sin(x, c, keys, factor, sine);
    else
        set_lanes(c, keys, factor_of(x, keys), factor);
    x->k->feature(t->f, t->cols, x->dq, kind, factor);
    if (x->l->cosine)
        x->k->feature(t->f + (int64_t)x->dq * CHUNK, t->cols, x->dq, kind, sine);
}

/* df = cosine df + sine df', where df' are the gradients of the second half. */
static void join_cos_sin(const struct linear *x, const struct feature_chunk *c,
                         bool keys, float *df)
{
    _Alignas(64) float cosine[CHUNK], sine[CHUNK];
    const int64_t      n = (int64_t)x->dq * CHUNK;

    set_cos_sin(x, c, keys, cosine, sine);
    x->k->shrink(df, x->dq, cosine);
    x->k->shrink(df + n, x->dq, sine);
    for (int64_t i = 0; i < n; i++)
        df[i] += df[n + i];
}

static void elements_back(const struct linear *x, const struct feature_chunk *c,
                          bool keys, const struct features *t, float *df, float *dx)
{
    const int          kind = (int)x->l->feature;
    const float       *from = t->f;
    _Alignas(64) float factor[CHUNK];

    if (x->l->cosine) join_cos_sin(x, c, keys, df);
    if (x->l->cosine || x->l->feature == FOCI_FEATURE_COS) {
        x->k->pack_cols_f32(t->cols, t->x, x->ldq, CHUNK, x->dq);
        from = t->cols;
    }
    if (x->l->feature != FOCI_FEATURE_ROW) x->k->feature_back(df, from, x->dq, kind);
    set_lanes(c, keys, factor_of(x, keys), factor);
    x->k->store_cols(dx, x->ldq, FOCI_F32, df, factor, CHUNK, x->dq);
}

/*
 * Softmax
 */

void linear_set_logs(const struct feature_chunk *c, bool keys, float *lane)
{
    int begin, end;

    linear_lanes(c, keys, &begin, &end);
    for (int i = 0; i < CHUNK; i++)
        lane[i] = i >= begin && i < end ? 0 : -INFINITY;
}

static void map_softmax(const struct linear *x, const struct feature_chunk *c,
                        bool keys, struct features *t)
{
    _Alignas(64) float lane[CHUNK];

    x->k->pack_cols_f32(t->f, t->x, x->ldq, CHUNK, x->dq);
    if (!keys) x->k->log_softmax(t->f, x->dq);
    linear_set_logs(c, keys, lane);
    x->k->add_logs(t->f, x->dq, NULL, lane);
}

static void softmax_back(const struct linear *x, const struct feature_chunk *c,
                         bool keys, const struct features *t, float *df, float *dx)
{
    _Alignas(64) float factor[CHUNK];

    if (!keys) {
        x->k->pack_cols_f32(t->cols, t->x, x->ldq, CHUNK, x->dq);
        x->k->log_softmax(t->cols, x->dq);
        x->k->log_softmax_back(df, t->cols, x->dq);
    }
    set_lanes(c, keys, 1, factor);
    x->k->store_cols(dx, x->ldq, FOCI_F32, df, factor, CHUNK, x->dq);
}

/*
 * The maps
 */

void linear_map(const struct linear *x, const struct feature_chunk *c, bool keys,
                struct features *t)
{
    for (int64_t i = (int64_t)x->m * CHUNK; i < (int64_t)x->m_pad * CHUNK; i++)
        t->f[i] = x->logs ? -INFINITY : 0;
    switch (x->l->feature) {
    case FOCI_FEATURE_ONE: set_lanes(c, keys, 1, t->f); break;
    case FOCI_FEATURE_POWERS:
    case FOCI_FEATURE_PRODUCTS: linear_products_map(x, c, keys, t); break;
    case FOCI_FEATURE_ROW:
    case FOCI_FEATURE_ELU:
    case FOCI_FEATURE_RELU:
    case FOCI_FEATURE_COS: map_elements(x, c, keys, t); break;
    case FOCI_FEATURE_SOFTMAX: map_softmax(x, c, keys, t); break;
    case FOCI_FEATURE_EXP:
    case FOCI_FEATURE_TRIG: linear_random_map(x, c, keys, t); break;
    }
}

void linear_map_back(const struct linear *x, const struct feature_chunk *c, bool keys,
                     const struct features *t, float *df, float *dx)
{
    switch (x->l->feature) {
    case FOCI_FEATURE_ONE: memset(dx, 0, (size_t)(CHUNK * x->ldq) * sizeof *dx); break;
    case FOCI_FEATURE_POWERS:
    case FOCI_FEATURE_PRODUCTS: linear_products_back(x, keys, t, df, dx); break;
    case FOCI_FEATURE_ROW:
    case FOCI_FEATURE_ELU:
    case FOCI_FEATURE_RELU:
    case FOCI_FEATURE_COS: elements_back(x, c, keys, t, df, dx); break;
    case FOCI_FEATURE_SOFTMAX: softmax_back(x, c, keys, t, df, dx); break;
    case FOCI_FEATURE_EXP:
    case FOCI_FEATURE_TRIG: linear_random_back(x, c, keys, t, df, dx); break;
    }
}

/* Pairs in blocks, whose angles at the first lane fit on the stack. */
void linear_rope(const struct linear *x, const struct feature_chunk *c, const float *f,
                 float *out, bool back)
{
    enum { BLOCK = 64 };
    const int     pairs = x->m / 2;
    const bool    half = x->stage->score.rope_half;
    const int64_t step = half ? CHUNK : 2 * CHUNK;
    const int64_t second = half ? (int64_t)pairs * CHUNK : CHUNK;

    for (int t0 = 0; t0 < pairs; t0 += BLOCK) {
        const int n = (int)min64(BLOCK, pairs - t0);
        float     base[2 * BLOCK];

        for (int64_t t = 0; t < n; t++) {
            const double angle = (double)c->pos * x->maps.speeds[t0 + t];
            base[2 * t] = (float)cos(angle);
            base[2 * t + 1] = (float)sin(angle);
        }
        x->k->rotate_lanes(out + t0 * step, f + t0 * step, step, second,
                           x->maps.offsets + (int64_t)t0 * 2 * CHUNK, base, n, back);
    }
    if (out != f)
        memset(out + (int64_t)x->m * CHUNK, 0,
               (size_t)(x->m_pad - x->m) * CHUNK * sizeof *out);
}
