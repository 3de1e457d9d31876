/* nystrom_forward.c -- landmarks, B V, Z (B V), and the outputs F Z (B V). */
#include <math.h>
#include <string.h>

#include "engine/nystrom/nystrom.h"

/*
 * Means
 */

static void mean_rows(const struct nystrom *x, const void *base, const foci_layout *l,
                      int64_t b, foci_range rows, int64_t head, float *to,
                      struct nystrom_scratch *r)
{
    const double n = (double)(rows.end - rows.begin);

    for (int c = 0; c < x->ldq; c++)
        r->sum[c] = 0;
    for (int64_t i = rows.begin; i < rows.end; i += LANES) {
        const int m = (int)min64(LANES, rows.end - i);

        nystrom_load(x, base, l, b, i, head, m, x->dq, x->ldq, r->q);
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

/* Landmarks of queries, of all heads, then of keys. */
static void mean_job(void *arg, int64_t i, int thread)
{
    const struct nystrom       *x = arg;
    const struct nystrom_chunk *c = &x->runs.chunk[i / (x->heads + x->kv_heads)];
    const struct nystrom_seq   *s = &x->seqs[c->seq];
    const int64_t          head = i % (x->heads + x->kv_heads), kv = head - x->heads;
    struct nystrom_scratch r;

    nystrom_thread_scratch(x, thread, &r);
    for (int64_t t = c->first; t < c->first + c->n; t++)
        if (kv < 0)
            mean_rows(x, x->io->q, &x->p->q, s->s.b,
                      shifted(nystrom_run(s, t, s->s.nq), s->s.q0), x->head0 + head,
                      x->mq + (nystrom_row(x, s, head) + t) * x->ldq, &r);
        else
            mean_rows(x, x->io->k, &x->p->k, s->s.b,
                      shifted(nystrom_run(s, t, s->s.nk), s->s.k0), x->kv0 + kv,
                      x->mk + (nystrom_row(x, s, kv) + t) * x->ldq, &r);
}

/*
 * B V
 */

void nystrom_lanes(const struct nystrom *x, const struct nystrom_seq *s, int64_t h,
                   int64_t t, int n, struct nystrom_scratch *r)
{
    const float *rows = x->mq + (nystrom_row(x, s, h) + t) * x->ldq;

    memcpy(r->q, rows, (size_t)n * (size_t)x->ldq * sizeof *rows);
    x->k->pack_cols_f32(r->qt, r->q, x->ldq, n, x->dq);
}

struct key_tile nystrom_key_tile(const struct nystrom *x, const struct nystrom_seq *s,
                                 int64_t kv, int64_t j, int n, struct nystrom_scratch *r)
{
    nystrom_load(x, x->io->k, &x->p->k, s->s.b, s->s.k0 + j, x->kv0 + kv, n, x->dq,
                 x->ldq, r->k);
    nystrom_load(x, x->io->v, &x->p->v, s->s.b, s->s.k0 + j, x->kv0 + kv, n, x->dv,
                 x->ldv, r->v);
    return (struct key_tile){ .keys = r->k,
                              .values = r->v,
                              .n = n,
                              .d = x->dq,
                              .dv = x->dv,
                              .ldk = x->ldq,
                              .ldv = x->ldv };
}

/* Softmax sums of 64 landmarks over the keys of a chunk. */
static void add_chunk(const struct nystrom *x, const struct nystrom_chunk *c, int64_t h,
                      int64_t t, struct nystrom_scratch *r)
{
    const struct nystrom_seq *s = &x->seqs[c->seq];
    const int                 n = (int)min64(LANES, s->m - t);
    const int64_t             at = h * x->keys.max_sums + c->at + t;
    const struct few_queries  sums = { r->vec[0], r->vec[1], r->ot };

    nystrom_lanes(x, s, h, t, n, r);
    few_queries_clear(&sums, x->dv);
    for (int64_t j = c->first; j < c->first + c->n; j += LANES) {
        const int             keys = (int)min64(LANES, c->first + c->n - j);
        const struct key_tile tile = nystrom_key_tile(x, s, h / x->per_kv, j, keys, r);
        few_queries_add(x->k, &tile, x->f, r->qt, n, r->s, &sums);
    }
    for (int i = 0; i < LANES; i++)
        r->vec[2][i] = 1;
    x->k->store_cols(x->part_v + at * x->ldv, x->ldv, FOCI_F32, r->ot, r->vec[2], n,
                     x->dv);
    memcpy(x->part_m + at, sums.m, (size_t)n * sizeof(float));
    memcpy(x->part_l + at, sums.l, (size_t)n * sizeof(float));
}

static void add_chunk_job(void *arg, int64_t i, int thread)
{
    const struct nystrom       *x = arg;
    const struct nystrom_chunk *c = &x->keys.chunk[i / x->heads];
    struct nystrom_scratch      r;

    nystrom_thread_scratch(x, thread, &r);
    for (int64_t t = 0; t < x->seqs[c->seq].m; t += LANES)
        add_chunk(x, c, i % x->heads, t, &r);
}

/* Combine the sums of one landmark over `chunks` chunks, which are `step` rows
 * apart. */
static void join(const struct nystrom *x, int64_t at, int64_t chunks, int64_t step,
                 int64_t to, struct nystrom_scratch *r)
{
    double max = -INFINITY, sum = 0;
    float *bv = x->bv + to * x->ldv, *out = r->rows;

    for (int64_t c = 0; c < chunks; c++)
        max = fmax(max, (double)x->part_m[at + c * step]);
    memset(out, 0, (size_t)x->ldv * sizeof *out);
    for (int64_t c = 0; c < chunks; c++) {
        const int64_t row = at + c * step;
        const double  by = max == -INFINITY ? 1 : exp2((double)x->part_m[row] - max);

        sum += by * (double)x->part_l[row];
        for (int e = 0; e < x->dv; e++)
            out[e] += (float)by * x->part_v[row * x->ldv + e];
    }
    for (int e = 0; e < x->ldv; e++)
        bv[e] = e < x->dv && sum != 0 ? (float)((double)out[e] / sum) : 0;
    x->norm[to] = sum != 0 ? (float)(max + log2(sum)) : INFINITY;
}

static void join_job(void *arg, int64_t i, int thread)
{
    const struct nystrom       *x = arg;
    const struct nystrom_chunk *run = &x->runs.chunk[i / x->heads];
    const struct nystrom_seq   *s = &x->seqs[run->seq];
    const int64_t               h = i % x->heads;
    struct nystrom_scratch      r;

    nystrom_thread_scratch(x, thread, &r);
    for (int64_t t = run->first; t < run->first + run->n; t++)
        join(x, h * x->keys.max_sums + s->k_sums + t, div_up(s->s.nk, NYSTROM_CHUNK),
             s->m, nystrom_row(x, s, h) + t, &r);
}

/*
 * Z (B V)
 */

struct few_keys nystrom_few_keys(const struct nystrom *x, const struct nystrom_seq *s,
                                 int64_t h)
{
    return (struct few_keys){ .keys = x->mk + nystrom_row(x, s, h / x->per_kv) * x->ldq,
                              .values = x->y + nystrom_row(x, s, h) * x->ldv,
                              .n = (int)s->m,
                              .d = x->dq,
                              .dv = x->dv,
                              .ldk = x->ldq,
                              .ldv = x->ldv };
}

/* C from row 64 i on. */
static void weights_job(void *arg, int64_t i, int thread)
{
    const struct nystrom_head *a = arg;
    const struct nystrom      *x = a->x;
    const struct few_keys      few = nystrom_few_keys(x, a->s, a->h);
    const int64_t              t = i * LANES;
    const int                  n = (int)min64(LANES, few.n - t), ld = a->all.inverse.ld;
    struct nystrom_scratch     r;

    nystrom_thread_scratch(x, thread, &r);
    nystrom_lanes(x, a->s, a->h, t, n, &r);
    few_keys_attend(x->k, &few, x->f, r.qt, n, r.s, NULL, r.vec[0]);
    x->k->shrink(r.s, few.n, r.vec[0]);
    for (int row = 0; row < n; row++)
        for (int j = 0; j < few.n; j++)
            a->all.inverse.c[(t + row) * ld + j] = r.s[j * LANES + row];
}

static void apply_job(void *arg, int64_t i, int thread)
{
    const struct nystrom_head *a = arg;
    const struct nystrom      *x = a->x;
    const int64_t              at = nystrom_row(x, a->s, a->h), t = i * LANES;
    const int                  m = (int)a->s->m, ld = a->all.inverse.ld;

    (void)thread;
    x->k->gemm_f32(x->y + (at + t) * x->ldv, x->ldv, a->z + t * ld, ld, 1,
                   x->bv + at * x->ldv, x->ldv, (int)min64(LANES, m - t), x->ldv, m, 0);
}

void nystrom_invert(struct nystrom_head *a)
{
    nystrom_blocks(a, weights_job);
    a->z = inverse_make(&a->all.inverse);
}

static void invert_job(void *arg, int64_t i, int thread)
{
    const struct nystrom *x = arg;
    struct nystrom_head a = nystrom_head(x, i / x->heads, i % x->heads, thread, false);

    if (!a.s->m) return;
    nystrom_invert(&a);
    nystrom_blocks(&a, apply_job);
}

/*
 * Outputs
 */

void nystrom_queries(const struct nystrom *x, const struct nystrom_seq *s, int64_t h,
                     int64_t i, int n, struct nystrom_scratch *r)
{
    nystrom_load(x, x->io->q, &x->p->q, s->s.b, s->s.q0 + i, x->head0 + h, n, x->dq,
                 x->ldq, r->q);
    x->k->pack_cols_f32(r->qt, r->q, x->ldq, n, x->dq);
}

static void write_block(const struct nystrom *x, const struct nystrom_seq *s, int64_t h,
                        int64_t i, int n, struct nystrom_scratch *r)
{
    const struct few_keys few = nystrom_few_keys(x, s, h);
    float                *share = r->vec[0];
    void *o = nystrom_address(x, x->io->o, &x->p->o, s->s.b, s->s.q0 + i, x->head0 + h);

    nystrom_queries(x, s, h, i, n, r);
    few_keys_attend(x->k, &few, x->f, r->qt, n, r->s, r->ot, share);
    if (!x->l.width) {
        x->k->store_cols(o, x->p->o.row, (int)x->p->dtype, r->ot, share, n, x->dv);
        return;
    }
    x->k->store_cols(r->rows, x->ldv, FOCI_F32, r->ot, share, n, x->dv);
    nystrom_conv(x, s, h, i, n, r->rows, r);
    x->k->store_rows(o, x->p->o.row, (int)x->p->dtype, r->rows, x->ldv, 1.0f, n, x->dv);
}

static void write_job(void *arg, int64_t i, int thread)
{
    const struct nystrom       *x = arg;
    const struct nystrom_chunk *c = &x->queries.chunk[i / x->heads];
    struct nystrom_scratch      r;

    nystrom_thread_scratch(x, thread, &r);
    for (int64_t q = c->first; q < c->first + c->n; q += LANES)
        write_block(x, &x->seqs[c->seq], i % x->heads, q,
                    (int)min64(LANES, c->first + c->n - q), &r);
}

void nystrom_forward(struct nystrom *x)
{
    const int64_t      both = x->heads + x->kv_heads;
    const struct phase before[] = {
        { x->runs.n * both, 1, mean_job, x },
        { x->keys.n * x->heads, 1, add_chunk_job, x },
        { x->runs.n * x->heads, 1, join_job, x },
    };
    const struct phase invert = { x->n_seqs * x->heads, 1, invert_job, x };
    const struct phase after = { x->queries.n * x->heads, 1, write_job, x };
    const int          threads = x->plan->ctx->threads;

    phases_run(x->k, x->exec.shared, threads, before,
               (int)(sizeof before / sizeof *before));
    nystrom_heads(x, &invert);
    phases_run(x->k, x->exec.shared, threads, &after, 1);
}
