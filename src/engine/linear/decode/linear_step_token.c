/* linear_step_token.c -- one token: add its key and value to the sums, then answer its
 * queries from them. */
#include <math.h>
#include <string.h>

#include "engine/linear/decode/linear_step.h"

static const char *row_at(const struct linear_step *s, const void *base, int64_t row,
                          int64_t d)
{
    return (const char *)base + (size_t)(row * d) * foci_dtype_bytes(s->x.plan->p.dtype);
}

/* Key/value head kv of token t of the sequence among the rows of k and v. */
static int64_t kv_row(const struct linear_step *s, const struct linear_step_item *i,
                      int64_t t)
{
    const struct state_step *step = s->step;
    const int64_t            head = step->kv0 + (s->x.kv0 + i->kv) * step->kv_step;

    return (i->seq->row0 + t) * s->x.plan->p.kv_heads + head;
}

static int64_t q_row(const struct linear_step *s, const struct linear_step_item *i,
                     int64_t t, int64_t h)
{
    return (i->seq->row0 + t) * s->x.plan->p.heads + s->x.head0 + h;
}

static void load(const struct linear_step *s, const void *base, int64_t row, int d,
                 int64_t ld, float *out)
{
    s->x.k->load_rows(out, ld, row_at(s, base, row, d), d, (int)s->x.plan->p.dtype, 1,
                      d);
}

void linear_step_retain(const struct linear_step *s, double by,
                        const struct linear_step_scratch *r)
{
    for (int i = 0; i < s->layout.m_full; i++)
        r->retain[i] = by;
}

/* r->max_log: logs of the key, and of RoPE pairs the larger of the two. */
static void pair_max_logs(const struct linear_step         *s,
                          const struct linear_step_scratch *r)
{
    const bool half = s->x.stage->score.rope_half;
    const int  m = s->x.m;

    memcpy(r->max_log, r->key, (size_t)s->layout.m_full * sizeof *r->max_log);
    for (int t = 0; s->x.rope && t < m / 2; t++) {
        const int   a = half ? t : 2 * t, b = half ? t + m / 2 : 2 * t + 1;
        const float most = r->key[a] > r->key[b] ? r->key[a] : r->key[b];
        r->max_log[a] = r->max_log[b] = most;
    }
}

/* Logs of the key to features in units of the sums, which grow where the key is
 * larger. */
static void rescale_key(const struct linear_step *s, const struct linear_step_item *i,
                        const struct linear_step_scratch *r)
{
    pair_max_logs(s, r);
    if (!s->x.k->log_key(r->key, i->sums.max_log, r->shrink, r->max_log,
                         s->layout.m_full))
        return;
    for (int t = 0; t < s->x.m; t++)
        r->retain[t] = (double)r->shrink[t];
}

/* The same for TRIG, with one log for all features.  It may be exceeded by e^8, so that
 * sums are rarely rescaled. */
static void rescale_trig_key(const struct linear_step      *s,
                             const struct linear_step_item *i, float log,
                             const struct linear_step_scratch *r)
{
    float *max_log = i->sums.max_log;

    if (log > *max_log + 8) {
        linear_step_retain(s, exp((double)*max_log - (double)log), r);
        *max_log = log;
    }
    const float by = expf(log - *max_log);
    for (int t = 0; t < s->x.m; t++)
        r->key[t] *= by;
}

static void rotate(const struct linear_step *s, const float *f, float *out,
                   const struct linear_step_scratch *r)
{
    if (!s->x.rope) return;
    memcpy(out, f, (size_t)s->x.m * sizeof *out);
    s->x.k->rotate(out, s->x.m, r->angles, s->x.m, 1, s->x.m,
                   s->x.stage->score.rope_half, 0);
}

static void map_key(const struct linear_step *s, const struct linear_step_item *i,
                    int64_t t, bool query, const struct linear_step_scratch *r)
{
    const int64_t pos = i->seq->state->len - i->seq->tokens + t;

    load(s, s->step->io->k, kv_row(s, i, t), s->x.dq, s->ldx, r->rows);
    if (linear_step_projects(&s->x)) {
        if (query)
            load(s, s->step->io->q, q_row(s, i, t, i->h), s->x.dq, s->ldx,
                 r->rows + s->ldx);
        const float log = linear_step_project(s, i->h, query, r);
        if (s->x.lane_logs) rescale_trig_key(s, i, log, r);
    } else
        linear_step_map(s, true, pos, r);
    if (s->x.logs) rescale_key(s, i, r);
    rotate(s, r->key, r->rotated_key, r);
}

/* z = retain z + g */
static void add_total(const struct linear_step *s, const struct linear_step_item *i,
                      const struct linear_step_scratch *r)
{
    for (int t = 0; s->layout.has_total && t < s->x.m; t++)
        i->sums.total[t] = r->retain[t] * i->sums.total[t] + (double)r->key[t];
}

/* FOCI_LINEAR_NORM_FEATURE: softmax over the features of the query, each divided by its
 * sum. */
static void divide_features(const struct linear_step         *s,
                            const struct linear_step_item    *i,
                            const struct linear_step_scratch *r)
{
    double sum = 0;

    memset(r->max_log, 0, (size_t)s->layout.m_full * sizeof *r->max_log);
    (void)s->x.k->log_query(r->query, r->max_log, s->layout.m_full);
    for (int t = 0; t < s->x.m; t++)
        sum += (double)r->query[t];
    for (int t = 0; t < s->x.m; t++) {
        const double total = i->sums.total[t];
        r->query[t] = total != 0 ? (float)((double)r->query[t] / (sum * total)) : 0;
    }
}

static double read_total(const struct linear_step *s, const struct linear_step_item *i,
                         const struct linear_step_scratch *r)
{
    enum { SIDE = 4 };
    double sum[SIDE] = { 0 };
    int    t = 0;

    for (; t + SIDE <= s->x.m; t += SIDE)
        for (int c = 0; c < SIDE; c++)
            sum[c] += (double)r->query[t + c] * i->sums.total[t + c];
    for (; t < s->x.m; t++)
        sum[0] += (double)r->query[t] * i->sums.total[t];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* 1 / divisor of a row whose weights sum to `den` and that sees n keys; 0: it is
 * empty. */
static double factor_of(const struct linear_step *s, const struct linear_step_item *i,
                        double den, int64_t n)
{
    const foci_linear *l = s->x.l;
    const double       least = linear_signed(l) ? 1e-30 : 0;

    switch (l->norm) {
    case FOCI_LINEAR_NORM_COUNT: return 1 / (double)n;
    case FOCI_LINEAR_NORM_SUM: den += l->eps; return fabs(den) <= least ? 0 : 1 / den;
    case FOCI_LINEAR_NORM_RETNET: {
        const double t = sqrt(linear_geometric_sum(i->lam, n));
        return 1 / fmax(fabs(den), t);
    }
    default: return 1;
    }
}

/* The query of head h reads the sums.  Kernel `recur` also adds the token to them, for
 * the first head that reads them. */
static void read_sums(const struct linear_step *s, const struct linear_step_item *i,
                      int64_t t, int64_t h, const struct linear_step_scratch *r)
{
    const struct linear *x = &s->x;
    const int64_t        n = i->seq->state->len - i->seq->tokens + t + 1;

    if (!linear_step_projects(x)) {
        load(s, s->step->io->q, q_row(s, i, t, h), x->dq, s->ldx, r->rows + s->ldx);
        linear_step_map(s, false, n - 1, r);
    }
    if (x->l->norm == FOCI_LINEAR_NORM_FEATURE)
        divide_features(s, i, r);
    else if (x->logs)
        (void)x->k->log_query(r->query, i->sums.max_log, s->layout.m_full);
    const double den = x->divides ? read_total(s, i, r) : 0;
    rotate(s, r->query, r->rotated_query, r);

    memset(r->o, 0, (size_t)s->layout.lds * sizeof *r->o);
    x->k->recur(i->sums.rows, s->layout.lds, r->retain,
                h == i->h ? r->rotated_key : NULL, r->v, r->o, r->rotated_query, x->m);
    const double factor = factor_of(s, i, den, n);
    for (int c = 0; c < x->dv; c++)
        r->out[c] = factor != 0 ? (float)(r->o[c] * factor) : 0;
    x->k->store_rows((char *)s->step->io->o + (size_t)(q_row(s, i, t, h) * x->dv) *
                                                  foci_dtype_bytes(x->plan->p.dtype),
                     x->dv, (int)x->plan->p.dtype, r->out, s->layout.lds, 1.0f, 1,
                     x->dv);
}

/* Cosines and sines of this token; those of the next follow by the addition theorem. */
static void set_angles(const struct linear_step *s, const struct linear_step_scratch *r)
{
    const bool    half = s->x.stage->score.rope_half;
    const int     m = s->x.m;
    const double *one =
        ((const struct linear_pool *)s->step->pool->own[s->g])->rotation;

    for (int64_t t = 0; t < m / 2; t++) {
        const double c = r->rotation[2 * t], n = r->rotation[2 * t + 1];

        r->angles[half ? t : 2 * t] = (float)c;
        r->angles[half ? t + m / 2 : 2 * t + 1] = (float)n;
        r->rotation[2 * t] = c * one[2 * t] - n * one[2 * t + 1];
        r->rotation[2 * t + 1] = c * one[2 * t + 1] + n * one[2 * t];
    }
}

void linear_step_token(const struct linear_step *s, const struct linear_step_item *i,
                       int64_t t, bool attend, const struct linear_step_scratch *r)
{
    if (s->x.rope) set_angles(s, r);
    load(s, s->step->io->v, kv_row(s, i, t), s->x.dv, s->layout.lds, r->v);
    map_key(s, i, t, attend, r);
    add_total(s, i, r);
    for (int64_t h = i->h; attend && h < i->h + i->heads; h++)
        read_sums(s, i, t, h, r);
    if (!attend)
        s->x.k->recur(i->sums.rows, s->layout.lds, r->retain, r->rotated_key, r->v,
                      NULL, NULL, s->x.m);
    if (s->x.logs || s->x.lane_logs) linear_step_retain(s, 1, r);
}

void linear_step_rotation(const struct linear_step *s, const struct step_seq *seq,
                          int64_t t, double *rotation)
{
    const double pos = (double)(seq->state->len - seq->tokens + t);

    for (int64_t c = 0; s->x.rope && c < s->x.m / 2; c++) {
        rotation[2 * c] = cos(pos * s->x.maps.speeds[c]);
        rotation[2 * c + 1] = sin(pos * s->x.maps.speeds[c]);
    }
}
