/* linear_forward_chunk.c -- outputs of one chunk: what the sums before it give and what
 * its own keys give, divided. */
#include <math.h>
#include <string.h>

#include "engine/linear/linear_forward.h"

struct linear_forward_scratch linear_forward_scratch_carve(const struct linear *x,
                                                           struct arena        *a)
{
    const int64_t                 tile = (int64_t)CHUNK * x->ldv;
    const int                     decayed = x->l->decays ? x->m_pad : 0;
    struct linear_forward_scratch r = { .k = linear_keys_carve(x, a),
                                        .q = linear_queries_carve(x, a),
                                        .prefetched = PREFETCH_PARTS };

    r.interleaved = linear_sums_carve(x, MOST_INTERLEAVED, a);
    r.s = r.interleaved;
    r.next = linear_sums_carve(x, 1, a);
    r.after = linear_sums_carve(x, linear_bidirectional(x) ? x->segment : 0, a);
    r.sums_at = linear_operand_at_carve(x, r.s.rows, x->ldv, x->m_pad, x->dv_pad, a);
    r.decayed = arena_alloc(a, round_up(decayed, CHUNK) * CHUNK, sizeof *r.decayed);
    r.decayed_b = linear_operand_b_carve(x, r.decayed, decayed, a);
    r.a = arena_alloc(a, (int64_t)CHUNK * CHUNK, sizeof *r.a);
    r.pairs = arena_alloc(a, x->bf16 ? CHUNK * CHUNK / 2 : 0, sizeof *r.pairs);
    r.ot = arena_alloc(a, tile, sizeof *r.ot);
    r.tile = arena_alloc(a, tile, sizeof *r.tile);
    r.kernel = arena_alloc(a, x->fused ? CHUNK_BYTES : 0, sizeof *r.kernel);
    return r;
}

static void prefetch_part(const struct linear *x, struct linear_forward_scratch *r)
{
    if (r->prefetched < PREFETCH_PARTS)
        linear_prefetch(x, &r->next_chunk, r->prefetched++);
}

/* The parts of the starting chunk that are not prefetched yet are prefetched first. */
void linear_forward_prefetch(const struct linear *x, const struct feature_chunk *next,
                             struct linear_forward_scratch *r)
{
    while (r->prefetched < PREFETCH_PARTS)
        prefetch_part(x, r);
    r->prefetched = next ? 0 : PREFETCH_PARTS;
    if (next) r->next_chunk = *next;
}

int linear_forward_lanes(const struct feature_chunk *c)
{
    return (int)round_up(max64(c->n, c->r1), 16);
}

/* Queries times decay[64], as operand B. */
static const struct linear_operand_b *decay_queries(const struct linear           *x,
                                                    struct linear_forward_scratch *r,
                                                    const float *decay)
{
    memcpy(r->decayed, r->q.rotated, (size_t)x->m_pad * CHUNK * sizeof *r->decayed);
    x->k->shrink(r->decayed, x->m, decay);
    linear_operand_b_pack(x, &r->decayed_b);
    return &r->decayed_b;
}

void linear_forward_inter_chunk(const struct linear           *x,
                                struct linear_forward_scratch *r, struct linear_sums s,
                                bool packed, const float *decay, int end, int add)
{
    _Alignas(64) float             den[CHUNK];
    const struct linear_operand_b *q = decay ? decay_queries(x, r, decay) : &r->q.num;

    r->sums_at.f = s.rows;
    if (!packed) linear_operand_at_pack(x, &r->sums_at, x->m_pad);
    linear_gemm_features(x, r->ot, &r->sums_at, 0, x->bf16 ? x->dv_pad : x->dv, q, 0,
                         end, add);
    if (!x->divides) return;
    x->k->gemm_f32(den, CHUNK, s.total, x->m, 1, r->q.t.f, CHUNK, 1, end, x->m, 0);
    for (int i = 0; i < end; i++)
        r->den[i] = (add ? r->den[i] : 0) + (decay ? decay[i] : 1) * den[i];
}

/* a = g^T f by groups of keys.  Where causal, a group starts at the lane of its first
 * key: no query before that sees any of its keys. */
static void weights(const struct linear *x, const struct linear_operand_at *keys,
                    const struct linear_operand_b *q, int n, int end,
                    struct linear_forward_scratch *r)
{
    for (int j = 0; j < n; j += x->group) {
        const int m = (int)min64(x->group, n - j), lane = x->causal ? j : 0;

        linear_gemm_features(x, r->a + (int64_t)j * CHUNK + lane, keys, j,
                             x->bf16 ? (int)round_up(m, x->k->depth) : m, q, lane, end,
                             0);
        prefetch_part(x, r);
    }
}

/* Apply decay and causality to the weights, sum them over the keys and pack them. */
static void mask_weights(const struct linear *x, const struct feature_chunk *c,
                         struct linear_forward_scratch *r, const float *mask, float *sum)
{
    if (x->bf16)
        x->k->near_bf16(r->a, r->pairs, c->n, r->k.n_pad / 2, mask, !x->causal, sum);
    else
        x->k->near_f32(r->a, c->n, mask, !x->causal, sum);
}

void linear_forward_intra_chunk(const struct linear *x, const struct feature_chunk *c,
                                struct linear_forward_scratch *r)
{
    const float *mask = x->l->decays ? x->decay[c->h].mask : NULL;
    const int    end = linear_forward_lanes(c), n = c->n;
    /* Under RoPE denominators come from features that are not rotated. */
    const bool         separate_den = x->rope && x->divides;
    _Alignas(64) float unused[CHUNK];

    if (separate_den) {
        weights(x, &r->k.den, &r->q.den, n, end, r);
        mask_weights(x, c, r, mask, r->den);
    }
    weights(x, &r->k.num, &r->q.num, n, end, r);
    mask_weights(x, c, r, mask, separate_den ? unused : r->den);
    for (int j = 0; j < n; j += x->group) {
        const int m = (int)min64(x->group, r->k.n_pad - j);
        linear_gemm_values(x, r->ot, &r->k.values,
                           x->bf16 ? (const void *)r->pairs : r->a, j, m,
                           x->causal ? j : 0, end);
        prefetch_part(x, r);
    }
}

/* The divisor of the row in lane i; 0: the row is empty. */
static float divisor(const struct linear *x, const struct feature_chunk *c, int i,
                     float den)
{
    switch (x->l->norm) {
    case FOCI_LINEAR_NORM_NONE: return 1;
    case FOCI_LINEAR_NORM_FEATURE: return linear_visible(x, c, i) > 0 ? 1.0f : 0.0f;
    case FOCI_LINEAR_NORM_COUNT: return (float)linear_visible(x, c, i);
    case FOCI_LINEAR_NORM_RETNET: {
        const float t = (float)sqrt(linear_decay_sum(x, c, i));
        return fabsf(den) > t ? den : t;
    }
    case FOCI_LINEAR_NORM_SUM: den += (float)x->l->eps; break;
    }
    return linear_signed(x->l) && fabsf(den) < LEAST_DIVISOR ? 0 : den;
}

/* What the backward pass needs of a divisor: itself, or L = h + log den. */
static float saved_number(const struct linear                 *x,
                          const struct linear_forward_scratch *r, int i, float by)
{
    if (!x->logs || x->l->norm == FOCI_LINEAR_NORM_FEATURE) return by;
    return by == 0 ? INFINITY : r->q.max_log[i] + logf(by);
}

void linear_forward_store(const struct linear *x, const struct feature_chunk *c,
                          float *saved, struct linear_forward_scratch *r)
{
    float             *out = saved ? saved + linear_saved_at(x, c) : NULL;
    _Alignas(64) float factor[CHUNK] = { 0 };

    for (int i = c->r0; i < c->r1; i++) {
        const float by = divisor(x, c, i, r->den[i]);

        factor[i] =
            by == 0 ? 0 : 1 / (x->l->norm == FOCI_LINEAR_NORM_RETNET ? fabsf(by) : by);
        if (out) out[i] = saved_number(x, r, i, by);
        if (by == 0)
            for (int d = 0; d < x->dv; d++)
                r->ot[d * CHUNK + i] = 0;
    }
    linear_store_q(x, c, x->io->o, &x->p->o, r->ot, x->dv, x->ldv, factor, r->tile);
}

const float *linear_forward_decay_before(const struct linear        *x,
                                         const struct feature_chunk *c, float *decay)
{
    if (!x->l->decays) return NULL;
    for (int i = 0; i < CHUNK; i++)
        decay[i] = x->decay[c->h].power[i + 1];
    return decay;
}

const float *linear_forward_decay_after(const struct linear        *x,
                                        const struct feature_chunk *c, float *decay)
{
    for (int i = 0; i < CHUNK; i++)
        decay[i] = x->decay[c->h].power[CHUNK - i];
    return decay;
}

/* Load the keys of a causal chunk, which rescales r->s, and write the rows of its
 * queries. false: nothing was done, and the chunk has to be split. */
static bool write_rows(const struct linear *x, const struct feature_chunk *c,
                       float *saved, struct linear_forward_scratch *r)
{
    _Alignas(64) float decay[CHUNK];

    if (!linear_load_keys(x, c, c->r0 < c->r1, r->s, &r->k)) return false;
    if (c->r0 < c->r1) {
        linear_pack_keys(x, c, &r->k);
        linear_load_queries(x, c, r->s, &r->k, &r->q);
        linear_forward_inter_chunk(x, r, r->s, false,
                                   linear_forward_decay_before(x, c, decay),
                                   linear_forward_lanes(c), 0);
        linear_forward_intra_chunk(x, c, r);
        linear_forward_store(x, c, saved, r);
    }
    return true;
}

/* Rows and update of the sums by one kernel, which prefetches the next chunk by
 * itself. */
static bool fused_chunk(const struct linear *x, const struct feature_chunk *c,
                        float *saved, struct linear_forward_scratch *r)
{
    const struct feature_chunk *next = r->prefetched ? NULL : &r->next_chunk;

    if (!linear_fused_chunk(x, c, LINEAR_OUTPUTS | LINEAR_UPDATE, r->s, next, saved,
                            r->kernel))
        return false;
    r->prefetched = PREFETCH_PARTS;
    return true;
}

void linear_forward_causal_chunk(const struct linear *x, const struct feature_chunk *c,
                                 float *saved, struct linear_forward_scratch *r)
{
    if (fused_chunk(x, c, saved, r)) return;
    if (!write_rows(x, c, saved, r)) {
        const int                  half = (int)max64(c->n, c->r1) / 2;
        const struct feature_chunk first = linear_subchunk(c, 0, half);
        const struct feature_chunk second = linear_subchunk(c, half, CHUNK);

        linear_forward_causal_chunk(x, &first, saved, r);
        linear_forward_causal_chunk(x, &second, saved, r);
        return;
    }
    linear_sums_update(x, c, &r->k, r->s);
}

struct linear_prefill linear_prefill_carve(const struct linear *x, struct arena *a)
{
    struct linear_forward_scratch *scratch = arena_alloc(a, 1, sizeof *scratch);
    struct linear_forward_scratch  r = linear_forward_scratch_carve(x, a);

    if (scratch) *scratch = r;
    return (struct linear_prefill){ r.s, r.next, scratch };
}

bool linear_prefill_chunk(const struct linear *x, const struct feature_chunk *c,
                          struct linear_prefill *s)
{
    s->scratch->s = s->before;
    return write_rows(x, c, NULL, s->scratch);
}

void linear_prefill_sums(const struct linear *x, const struct feature_chunk *c,
                         struct linear_prefill *s)
{
    linear_sums_clear(x, s->added);
    linear_sums_update(x, c, &s->scratch->k, s->added);
}
