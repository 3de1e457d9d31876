/* landmarks_forward.c -- means, B V, Z (B V), and what queries take of that. */
#include <math.h>
#include <string.h>

#include "engine/landmarks.h"

/*
 * Means
 */

static void mean_rows(const struct landmarks *x, const void *base, const foci_layout *l,
                      int64_t b, foci_range rows, int64_t head, float *to,
                      struct mark_room *r)
{
    const double n = (double)(rows.end - rows.begin);

    for (int c = 0; c < x->ldq; c++)
        r->sum[c] = 0;
    for (int64_t i = rows.begin; i < rows.end; i += LANES) {
        const int m = (int)min64(LANES, rows.end - i);

        landmarks_load(x, base, l, b, i, head, m, x->dq, x->ldq, r->q);
        for (int t = 0; t < m; t++)
            for (int c = 0; c < x->ldq; c++)
                r->sum[c] += (double)r->q[t * x->ldq + c];
    }
    for (int c = 0; c < x->ldq; c++)
        to[c] = (float)(r->sum[c] / n);
}

static foci_range shifted(foci_range r, int64_t by)
{
    return (foci_range){ r.begin + by, r.end + by };
}

/* Heads of queries first, then of keys. */
static void mean_job(void *arg, int64_t i, int thread)
{
    const struct landmarks  *x = arg;
    const struct mark_chunk *c = &x->runs.chunk[i / (x->heads + x->kv_heads)];
    const struct mark_seq   *s = &x->seqs[c->seq];
    const int64_t            head = i % (x->heads + x->kv_heads), kv = head - x->heads;
    struct mark_room         r;

    landmarks_room(x, thread, &r);
    for (int64_t t = c->first; t < c->first + c->n; t++)
        if (kv < 0)
            mean_rows(x, x->io->q, &x->p->q, s->s.b,
                      shifted(landmarks_run(s, t, s->s.nq), s->s.q0), x->head0 + head,
                      x->mq + (marks_at(x, s, head) + t) * x->ldq, &r);
        else
            mean_rows(x, x->io->k, &x->p->k, s->s.b,
                      shifted(landmarks_run(s, t, s->s.nk), s->s.k0), x->kv0 + kv,
                      x->mk + (marks_at(x, s, kv) + t) * x->ldq, &r);
}

/*
 * B V
 */

void landmarks_lanes(const struct landmarks *x, const struct mark_seq *s, int64_t h,
                     int64_t t, int n, struct mark_room *r)
{
    const float *rows = x->mq + (marks_at(x, s, h) + t) * x->ldq;

    memcpy(r->q, rows, (size_t)n * (size_t)x->ldq * sizeof *rows);
    x->k->pack_cols_f32(r->qt, r->q, x->ldq, n, x->dq);
}

struct many landmarks_tile(const struct landmarks *x, const struct mark_seq *s,
                           int64_t kv, int64_t j, int n, struct mark_room *r)
{
    landmarks_load(x, x->io->k, &x->p->k, s->s.b, s->s.k0 + j, x->kv0 + kv, n, x->dq,
                   x->ldq, r->k);
    landmarks_load(x, x->io->v, &x->p->v, s->s.b, s->s.k0 + j, x->kv0 + kv, n, x->dv,
                   x->ldv, r->v);
    return (struct many){ .keys = r->k,
                          .values = r->v,
                          .n = n,
                          .d = x->dq,
                          .dv = x->dv,
                          .ldk = x->ldq,
                          .ldv = x->ldv };
}

/* 64 landmarks and the keys of a chunk, to its sums. */
static void gather(const struct landmarks *x, const struct mark_chunk *c, int64_t h,
                   int64_t t, struct mark_room *r)
{
    const struct mark_seq  *s = &x->seqs[c->seq];
    const int               n = (int)min64(LANES, s->m - t);
    const int64_t           at = h * x->keys.max_sums + c->at + t;
    const struct lanes_sums sums = { r->vec[0], r->vec[1], r->ot };

    landmarks_lanes(x, s, h, t, n, r);
    lanes_clear(&sums, x->dv);
    for (int64_t j = c->first; j < c->first + c->n; j += LANES) {
        const int         keys = (int)min64(LANES, c->first + c->n - j);
        const struct many tile = landmarks_tile(x, s, h / x->per_kv, j, keys, r);
        lanes_gather(x->k, &tile, x->f, r->qt, n, r->s, &sums);
    }
    for (int i = 0; i < LANES; i++)
        r->vec[2][i] = 1;
    x->k->store_cols(x->part_v + at * x->ldv, x->ldv, FOCI_F32, r->ot, r->vec[2], n,
                     x->dv);
    memcpy(x->part_m + at, sums.m, (size_t)n * sizeof(float));
    memcpy(x->part_l + at, sums.l, (size_t)n * sizeof(float));
}

static void gather_job(void *arg, int64_t i, int thread)
{
    const struct landmarks  *x = arg;
    const struct mark_chunk *c = &x->keys.chunk[i / x->heads];
    struct mark_room         r;

    landmarks_room(x, thread, &r);
    for (int64_t t = 0; t < x->seqs[c->seq].m; t += LANES)
        gather(x, c, i % x->heads, t, &r);
}

/* The sums of `chunks` chunks, `step` rows apart, of one landmark. */
static void join(const struct landmarks *x, int64_t at, int64_t chunks, int64_t step,
                 int64_t to, struct mark_room *r)
{
    double top = -INFINITY, sum = 0;
    float *bv = x->bv + to * x->ldv, *out = r->rows;

    for (int64_t c = 0; c < chunks; c++)
        top = fmax(top, (double)x->part_m[at + c * step]);
    memset(out, 0, (size_t)x->ldv * sizeof *out);
    for (int64_t c = 0; c < chunks; c++) {
        const int64_t row = at + c * step;
        const double  by = top == -INFINITY ? 1 : exp2((double)x->part_m[row] - top);

        sum += by * (double)x->part_l[row];
        for (int e = 0; e < x->dv; e++)
            out[e] += (float)by * x->part_v[row * x->ldv + e];
    }
    for (int e = 0; e < x->ldv; e++)
        bv[e] = e < x->dv && sum != 0 ? (float)((double)out[e] / sum) : 0;
    x->norm[to] = sum != 0 ? (float)(top + log2(sum)) : INFINITY;
}

static void join_job(void *arg, int64_t i, int thread)
{
    const struct landmarks  *x = arg;
    const struct mark_chunk *run = &x->runs.chunk[i / x->heads];
    const struct mark_seq   *s = &x->seqs[run->seq];
    const int64_t            h = i % x->heads;
    struct mark_room         r;

    landmarks_room(x, thread, &r);
    for (int64_t t = run->first; t < run->first + run->n; t++)
        join(x, h * x->keys.max_sums + s->k_sums + t, div_up(s->s.nk, MARK_CHUNK), s->m,
             marks_at(x, s, h) + t, &r);
}

/*
 * Z (B V)
 */

struct few landmarks_few(const struct landmarks *x, const struct mark_seq *s, int64_t h)
{
    return (struct few){ .keys = x->mk + marks_at(x, s, h / x->per_kv) * x->ldq,
                         .values = x->y + marks_at(x, s, h) * x->ldv,
                         .n = (int)s->m,
                         .d = x->dq,
                         .dv = x->dv,
                         .ldk = x->ldq,
                         .ldv = x->ldv };
}

/* C from row 64 i on. */
static void weights_job(void *arg, int64_t i, int thread)
{
    const struct mark_head *a = arg;
    const struct landmarks *x = a->x;
    const struct few        few = landmarks_few(x, a->s, a->h);
    const int64_t           t = i * LANES;
    const int               n = (int)min64(LANES, few.n - t), ld = a->all.inverse.ld;
    struct mark_room        r;

    landmarks_room(x, thread, &r);
    landmarks_lanes(x, a->s, a->h, t, n, &r);
    lanes_read(x->k, &few, x->f, r.qt, n, r.s, NULL, r.vec[0]);
    x->k->shrink(r.s, few.n, r.vec[0]);
    for (int row = 0; row < n; row++)
        for (int j = 0; j < few.n; j++)
            a->all.inverse.c[(t + row) * ld + j] = r.s[j * LANES + row];
}

static void apply_job(void *arg, int64_t i, int thread)
{
    const struct mark_head *a = arg;
    const struct landmarks *x = a->x;
    const int64_t           at = marks_at(x, a->s, a->h), t = i * LANES;
    const int               m = (int)a->s->m, ld = a->all.inverse.ld;

    (void)thread;
    x->k->gemm_f32(x->y + (at + t) * x->ldv, x->ldv, a->z + t * ld, ld, 1,
                   x->bv + at * x->ldv, x->ldv, (int)min64(LANES, m - t), x->ldv, m, 0);
}

void landmarks_invert(struct mark_head *a)
{
    landmarks_blocks(a, weights_job);
    a->z = inverse_make(&a->all.inverse);
}

static void invert_job(void *arg, int64_t i, int thread)
{
    const struct landmarks *x = arg;
    struct mark_head a = landmarks_head(x, i / x->heads, i % x->heads, thread, false);

    if (!a.s->m) return;
    landmarks_invert(&a);
    landmarks_blocks(&a, apply_job);
}

/*
 * Reading
 */

void landmarks_queries(const struct landmarks *x, const struct mark_seq *s, int64_t h,
                       int64_t i, int n, struct mark_room *r)
{
    landmarks_load(x, x->io->q, &x->p->q, s->s.b, s->s.q0 + i, x->head0 + h, n, x->dq,
                   x->ldq, r->q);
    x->k->pack_cols_f32(r->qt, r->q, x->ldq, n, x->dq);
}

static void read_block(const struct landmarks *x, const struct mark_seq *s, int64_t h,
                       int64_t i, int n, struct mark_room *r)
{
    const struct few few = landmarks_few(x, s, h);
    float           *share = r->vec[0];
    void *o = landmarks_place(x, x->io->o, &x->p->o, s->s.b, s->s.q0 + i, x->head0 + h);

    landmarks_queries(x, s, h, i, n, r);
    lanes_read(x->k, &few, x->f, r->qt, n, r->s, r->ot, share);
    if (!x->l.width) {
        x->k->store_cols(o, x->p->o.row, (int)x->p->dtype, r->ot, share, n, x->dv);
        return;
    }
    x->k->store_cols(r->rows, x->ldv, FOCI_F32, r->ot, share, n, x->dv);
    landmarks_conv(x, s, h, i, n, r->rows, r);
    x->k->store_rows(o, x->p->o.row, (int)x->p->dtype, r->rows, x->ldv, 1.0f, n, x->dv);
}

static void read_job(void *arg, int64_t i, int thread)
{
    const struct landmarks  *x = arg;
    const struct mark_chunk *c = &x->queries.chunk[i / x->heads];
    struct mark_room         r;

    landmarks_room(x, thread, &r);
    for (int64_t q = c->first; q < c->first + c->n; q += LANES)
        read_block(x, &x->seqs[c->seq], i % x->heads, q,
                   (int)min64(LANES, c->first + c->n - q), &r);
}

void landmarks_forward(struct landmarks *x)
{
    const int64_t      both = x->heads + x->kv_heads;
    const struct phase before[] = {
        { x->runs.n * both, 1, mean_job, x },
        { x->keys.n * x->heads, 1, gather_job, x },
        { x->runs.n * x->heads, 1, join_job, x },
    };
    const struct phase invert = { x->n_seqs * x->heads, 1, invert_job, x };
    const struct phase after = { x->queries.n * x->heads, 1, read_job, x };
    const int          threads = x->plan->ctx->threads;

    phases_run(x->k, x->plan->shared, threads, before,
               (int)(sizeof before / sizeof *before));
    landmarks_heads(x, &invert);
    phases_run(x->k, x->plan->shared, threads, &after, 1);
}
