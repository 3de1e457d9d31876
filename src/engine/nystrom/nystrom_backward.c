/* nystrom_backward.c -- gradients: through the queries, the inverse, the keys, the
 * means.
 *
 * The queries give dY (Y = Z B V), the gradients of the landmarks of keys and part of
 * dq.  dY gives those of the inverse, of C and of B V.  These give dk and dv, now
 * complete, and the gradients of the landmarks of queries, of which every query takes
 * its share.
 */
#include <math.h>
#include <string.h>

#include "engine/nystrom/nystrom.h"

static void clear(float *rows, int64_t n, int64_t ld)
{
    memset(rows, 0, (size_t)(n * ld) * sizeof *rows);
}

/*
 * Queries
 */

static float *dq_row(const struct nystrom *x, const struct nystrom_seq *s, int64_t h,
                     int64_t i)
{
    const int64_t all = x->p->batch * x->p->len_q;
    return x->dq_rows + (h * all + s->s.b * x->p->len_q + s->s.q0 + i) * x->ldq;
}

static double *dw_of(const struct nystrom *x, int64_t h, int64_t chunk)
{
    return x->dw + (h * x->queries.max + chunk) * x->l.width;
}

static void query_block(const struct nystrom *x, const struct nystrom_chunk *c,
                        int64_t h, int64_t i, int n, struct nystrom_scratch *r)
{
    const struct nystrom_seq *s = &x->seqs[c->seq];
    const struct few_keys     few = nystrom_few_keys(x, s, h);
    const struct few_block    b = { r->q, r->g, r->qt, r->gt, n };
    const int64_t             at = h * x->queries.max_sums + c->at;

    nystrom_queries(x, s, h, i, n, r);
    nystrom_load(x, x->g->d_o, &x->p->o, s->s.b, s->s.q0 + i, x->head0 + h, n, x->dv,
                 x->ldv, r->g);
    x->k->pack_cols_f32(r->gt, r->g, x->ldv, n, x->dv);
    few_keys_backward(x->k, &few, x->f, x->scale, &b, r->s, r->ds,
                      x->part_k + at * x->ldq, x->part_v + at * x->ldv, r->dqt);
    for (int t = 0; t < LANES; t++)
        r->vec[0][t] = 1;
    x->k->store_cols(dq_row(x, s, h, i), x->ldq, FOCI_F32, r->dqt, r->vec[0], n, x->dq);
    if (x->l.width && x->g->dparams)
        nystrom_conv_dw(x, s, h, i, dw_of(x, h, c - x->queries.chunk), r);
}

static void query_job(void *arg, int64_t i, int thread)
{
    const struct nystrom       *x = arg;
    const struct nystrom_chunk *c = &x->queries.chunk[i / x->heads];
    const int64_t               h = i % x->heads, m = x->seqs[c->seq].m;
    const int64_t               at = h * x->queries.max_sums + c->at;
    struct nystrom_scratch      r;

    nystrom_thread_scratch(x, thread, &r);
    clear(x->part_k + at * x->ldq, m, x->ldq);
    clear(x->part_v + at * x->ldv, m, x->ldv);
    if (x->l.width)
        memset(dw_of(x, h, i / x->heads), 0, (size_t)x->l.width * sizeof *x->dw);
    for (int64_t q = c->first; q < c->first + c->n; q += LANES)
        query_block(x, c, h, q, (int)min64(LANES, c->first + c->n - q), &r);
}

/* Sums of `chunks` chunks, `step` rows apart, added to m rows. */
static void add_chunks(float *to, const float *part, int64_t chunks, int64_t m,
                       int64_t ld)
{
    for (int64_t c = 0; c < chunks; c++)
        for (int64_t t = 0; t < m * ld; t++)
            to[t] += part[c * m * ld + t];
}

/*
 * Landmarks
 */

/* Rows 64 i on of dZ = dY (B V)^T and of dBV = Z^T dY; dots for the weights of B. */
static void before_job(void *arg, int64_t i, int thread)
{
    const struct nystrom_head *a = arg;
    const struct nystrom      *x = a->x;
    const int64_t              at = nystrom_row(x, a->s, a->h), t = i * LANES;
    const int                  m = (int)a->s->m, ld = a->all.inverse.ld, ldv = x->ldv;
    const int                  n = (int)min64(LANES, m - t);
    const float               *dy = x->dy + at * ldv, *bv = x->bv + at * ldv;
    struct nystrom_scratch     r;

    nystrom_thread_scratch(x, thread, &r);
    for (int64_t j = 0; j < m; j += LANES) {
        const int cols = (int)min64(LANES, m - j);

        memcpy(r.g, bv + j * ldv, (size_t)cols * (size_t)ldv * sizeof *bv);
        x->k->pack_cols_f32(r.gt, r.g, ldv, cols, x->dv);
        x->k->gemm_f32(a->all.dz + t * ld + j, ld, dy + t * ldv, ldv, 1, r.gt, LANES, n,
                       (int)round_up(cols, 16), x->dv, 0);
    }
    float *dbv = x->dbv + (at + t) * ldv;
    x->k->gemm_f32(dbv, ldv, a->z + t, 1, ld, dy, ldv, n, ldv, m, 0);
    x->k->row_dot(x->delta + at + t, dbv, bv + t * ldv, ldv, n, x->dv);
}

/* Through the softmax of C, rows 64 i on, and to the means of queries. */
static void rows_job(void *arg, int64_t i, int thread)
{
    const struct nystrom_head *a = arg;
    const struct nystrom      *x = a->x;
    const int                  m = (int)a->s->m, ld = a->all.inverse.ld;
    const int64_t              from = i * LANES, to = min64(m, from + LANES);
    const float *mk = x->mk + nystrom_row(x, a->s, a->h / x->per_kv) * x->ldq;

    (void)thread;
    for (int64_t t = from; t < to; t++) {
        const float *c = a->all.inverse.c + t * ld;
        float       *dc = a->all.dc + t * ld;
        double       along = 0;

        for (int j = 0; j < m; j++)
            along += (double)c[j] * (double)dc[j];
        for (int j = 0; j < m; j++)
            dc[j] = x->scale * c[j] * (dc[j] - (float)along);
    }
    x->k->gemm_f32(x->dmq + (nystrom_row(x, a->s, a->h) + from) * x->ldq, x->ldq,
                   a->all.dc + from * ld, ld, 1, mk, x->ldq, (int)(to - from), x->ldq,
                   m, 0);
}

/* And through C to the landmarks of keys. */
static void columns_job(void *arg, int64_t i, int thread)
{
    const struct nystrom_head *a = arg;
    const struct nystrom      *x = a->x;
    const int64_t              at = nystrom_row(x, a->s, a->h), from = i * LANES;
    const int                  m = (int)a->s->m, ld = a->all.inverse.ld;

    (void)thread;
    x->k->gemm_f32(x->dmk + (at + from) * x->ldq, x->ldq, a->all.dc + from, 1, ld,
                   x->mq + at * x->ldq, x->ldq, (int)min64(LANES, m - from), x->ldq, m,
                   1);
}

static void landmark_job(void *arg, int64_t i, int thread)
{
    const struct nystrom *x = arg;
    struct nystrom_head   a = nystrom_head(x, i / x->heads, i % x->heads, thread, true);
    const int64_t         m = a.s->m, at = nystrom_row(x, a.s, a.h);
    const int64_t         sums = a.h * x->queries.max_sums + a.s->q_sums;
    const int64_t         chunks = div_up(a.s->s.nq, NYSTROM_CHUNK);

    if (!m) return;
    clear(x->dmk + at * x->ldq, m, x->ldq);
    clear(x->dy + at * x->ldv, m, x->ldv);
    add_chunks(x->dmk + at * x->ldq, x->part_k + sums * x->ldq, chunks, m, x->ldq);
    add_chunks(x->dy + at * x->ldv, x->part_v + sums * x->ldv, chunks, m, x->ldv);
    nystrom_invert(&a);
    nystrom_blocks(&a, before_job);
    inverse_backward(&a.all.inverse, a.all.dz, a.all.dc);
    nystrom_blocks(&a, rows_job);
    nystrom_blocks(&a, columns_job);
}

/*
 * Keys
 */

/* Gradients that the landmarks of a head give to the n keys of a tile. */
static void add_head(const struct nystrom *x, const struct nystrom_chunk *c, int64_t h,
                     const struct key_tile *tile, float *dk, float *dv,
                     struct nystrom_scratch *r)
{
    const struct nystrom_seq *s = &x->seqs[c->seq];
    float                    *norm = r->vec[0], *delta = r->vec[1];

    for (int64_t t = 0; t < s->m; t += LANES) {
        const int              n = (int)min64(LANES, s->m - t);
        const int64_t          at = nystrom_row(x, s, h) + t;
        const struct few_block b = { r->q, x->dbv + at * x->ldv, r->qt, r->gt, n };

        nystrom_lanes(x, s, h, t, n, r);
        memcpy(r->g, b.g, (size_t)n * (size_t)x->ldv * sizeof *r->g);
        x->k->pack_cols_f32(r->gt, r->g, x->ldv, n, x->dv);
        for (int i = 0; i < LANES; i++) {
            norm[i] = i < n ? x->norm[at + i] : INFINITY;
            delta[i] = i < n ? x->delta[at + i] : 0;
        }
        few_queries_backward(x->k, tile, x->f, x->scale, &b, norm, delta, r->s, r->ds,
                             dk, dv,
                             x->part_q + (h * x->keys.max_sums + c->at + t) * x->ldq);
    }
}

/* Add to n rows from row j on their share of the gradients of the landmarks. */
static void add_means(const struct nystrom *x, const struct nystrom_seq *s,
                      int64_t rows, int64_t j, int n, const float *dmeans, float *to)
{
    int64_t t = (j * s->m) / rows;

    for (int i = 0; s->m && i < n; i++) {
        while (j + i >= nystrom_run(s, t, rows).end)
            t++;
        const foci_range run = nystrom_run(s, t, rows);
        const float      share = 1 / (float)(run.end - run.begin);
        for (int e = 0; e < x->dq; e++)
            to[i * x->ldq + e] += share * dmeans[t * x->ldq + e];
    }
}

/* Keys of the memory take no gradient. */
static void store_keys(const struct nystrom *x, const struct nystrom_seq *s, int64_t kv,
                       int64_t j, int n, float *dk, float *dv)
{
    const int     dtype = (int)x->p->dtype;
    const int64_t held = max64(0, min64(n, x->stage->memory - j)), row = s->s.k0 + j;

    clear(dk, held, x->ldq);
    clear(dv, held, x->ldv);
    if (x->g->dk)
        x->k->store_rows(
            nystrom_address(x, x->g->dk, &x->p->k, s->s.b, row, x->kv0 + kv),
            x->p->k.row, dtype, dk, x->ldq, 1.0f, n, x->dq);
    if (x->g->dv)
        x->k->store_rows(
            nystrom_address(x, x->g->dv, &x->p->v, s->s.b, row, x->kv0 + kv),
            x->p->v.row, dtype, dv, x->ldv, 1.0f, n, x->dv);
}

static void key_tile(const struct nystrom *x, const struct nystrom_chunk *c, int64_t kv,
                     int64_t j, int n, struct nystrom_scratch *r)
{
    const struct nystrom_seq *s = &x->seqs[c->seq];
    const struct key_tile     tile = nystrom_key_tile(x, s, kv, j, n, r);
    float                    *dk = r->dqt, *dv = r->rows;

    clear(dk, n, x->ldq);
    clear(dv, n, x->ldv);
    for (int64_t h = kv * x->per_kv; h < (kv + 1) * x->per_kv; h++) {
        add_head(x, c, h, &tile, dk, dv, r);
        add_means(x, s, s->s.nk, j, n, x->dmk + nystrom_row(x, s, h) * x->ldq, dk);
        if (x->l.width) nystrom_conv_dv(x, s, h, j, n, dv, r);
    }
    store_keys(x, s, kv, j, n, dk, dv);
}

static void key_job(void *arg, int64_t i, int thread)
{
    const struct nystrom       *x = arg;
    const struct nystrom_chunk *c = &x->keys.chunk[i / x->kv_heads];
    const int64_t               kv = i % x->kv_heads, m = x->seqs[c->seq].m;
    struct nystrom_scratch      r;

    nystrom_thread_scratch(x, thread, &r);
    for (int64_t h = kv * x->per_kv; h < (kv + 1) * x->per_kv; h++)
        clear(x->part_q + (h * x->keys.max_sums + c->at) * x->ldq, m, x->ldq);
    for (int64_t j = c->first; j < c->first + c->n; j += LANES)
        key_tile(x, c, kv, j, (int)min64(LANES, c->first + c->n - j), &r);
}

/*
 * Means of queries
 */

static void sum_job(void *arg, int64_t i, int thread)
{
    const struct nystrom     *x = arg;
    const struct nystrom_seq *s = &x->seqs[i / x->heads];
    const int64_t             h = i % x->heads;

    (void)thread;
    if (!s->m) return;
    add_chunks(x->dmq + nystrom_row(x, s, h) * x->ldq,
               x->part_q + (h * x->keys.max_sums + s->k_sums) * x->ldq,
               div_up(s->s.nk, NYSTROM_CHUNK), s->m, x->ldq);
}

static void share_job(void *arg, int64_t i, int thread)
{
    const struct nystrom       *x = arg;
    const struct nystrom_chunk *c = &x->queries.chunk[i / x->heads];
    const struct nystrom_seq   *s = &x->seqs[c->seq];
    const int64_t               h = i % x->heads;

    (void)thread;
    for (int64_t q = c->first; q < c->first + c->n; q += LANES) {
        const int n = (int)min64(LANES, c->first + c->n - q);
        float    *rows = dq_row(x, s, h, q);

        add_means(x, s, s->s.nq, q, n, x->dmq + nystrom_row(x, s, h) * x->ldq, rows);
        x->k->store_rows(
            nystrom_address(x, x->g->dq, &x->p->q, s->s.b, s->s.q0 + q, x->head0 + h),
            x->p->q.row, (int)x->p->dtype, rows, x->ldq, 1.0f, n, x->dq);
    }
}

static void tap_job(void *arg, int64_t i, int thread)
{
    const struct nystrom *x = arg;
    const int64_t         h = i / x->l.width, t = i % x->l.width;
    double                sum = 0;

    (void)thread;
    for (int64_t c = 0; c < x->queries.n; c++)
        sum += dw_of(x, h, c)[t];
    x->g->dparams[x->stage->group->param0[0] + i] += (float)sum;
}

void nystrom_backward(struct nystrom *x)
{
    const bool    taps = x->l.width && x->g->dparams;
    const int64_t per_seq = x->n_seqs * x->heads, per_chunk = x->queries.n * x->heads;
    const struct phase first = { per_chunk, 1, query_job, x };
    const struct phase landmark = { per_seq, 1, landmark_job, x };
    const struct phase last[] = {
        { x->keys.n * x->kv_heads, 1, key_job, x },
        { per_seq, 1, sum_job, x },
        { x->g->dq ? per_chunk : 0, 1, share_job, x },
        { taps ? x->heads * x->l.width : 0, (int)max64(x->l.width, 1), tap_job, x },
    };
    const int threads = x->plan->ctx->threads;

    phases_run(x->k, x->exec.shared, threads, &first, 1);
    nystrom_heads(x, &landmark);
    phases_run(x->k, x->exec.shared, threads, last, (int)(sizeof last / sizeof *last));
}
