/* linear_back_chunk.c -- gradients of one chunk of linear attention.
 *
 * Decay counts from the ends of a chunk of n positions: sums over keys come with
 * lam^(lane + 1) to a lane and take lam^(n - 1 - key) from a key, and sums over queries
 * take lam^(lane + 1) and give lam^(n - 1 - key); the other way round both change places.
 */
#include <math.h>
#include <string.h>

#include "engine/linear_back.h"

/* Lanes, or keys, by which what is hidden is left out of products: of results, and of
 * what is summed. */
static int cut_of(const struct linear *x)
{
    return x->bf16 && x->k->depth > 16 ? 32 : 16;
}
enum { SUM_CUT = 32 };

/* Factors of lanes by their distance to the chunks before, or after; the slopes of
 * these. */
struct fades {
    _Alignas(64) float before[CHUNK], after[CHUNK];
    _Alignas(64) float before_slope[CHUNK], after_slope[CHUNK];
    float all; /* of the whole chunk */
    float all_slope;
};

static void set_fades(const struct decay *d, int len, struct fades *f)
{
    for (int i = 0; i < CHUNK; i++) {
        const bool has = i < len;
        f->before[i] = has ? d->power[i + 1] : 0;
        f->after[i] = has ? d->power[len - 1 - i] : 0;
        f->before_slope[i] = has ? d->slope[i + 1] : 0;
        f->after_slope[i] = has ? d->slope[len - 1 - i] : 0;
    }
    f->all = d->power[len];
    f->all_slope = d->slope[len];
}

/* The sum of w[lane] f df over features and lanes. */
static double weighed(const struct linear *x, const float *f, const float *df,
                      const float *w)
{
    double sum = 0;

    for (int r = 0; r < x->m; r++)
        for (int i = 0; i < CHUNK; i++)
            sum += (double)w[i] * (double)f[r * CHUNK + i] * (double)df[r * CHUNK + i];
    return sum;
}

/*
 * Pairs inside the chunk
 */

/* What the decay of pairs gives its gradient. */
static void learn_near(const struct back *b, struct back_room *r, const struct chunk *c)
{
    const struct decay *d = back_decay(b, c);

    for (int key = 0; key < c->n; key++)
        for (int lane = b->two ? 0 : key; lane < c->r1; lane++) {
            const int at = key * CHUNK + lane, t = lane > key ? lane - key : key - lane;
            r->d_lam += (double)d->slope[t] * (double)r->a[at] * (double)r->da[at];
        }
}

static void mask_near(const struct back *b, const struct chunk *c, float *a)
{
    const struct linear *x = &b->x;
    const struct decay  *d = back_decay(b, c);
    _Alignas(64) float   sum[CHUNK] = { 0 };

    x->k->near_f32(a, CHUNK, d ? d->near : NULL, b->two, sum);
}

/* a = g^T f, da = v n^T + r, as far as they are seen. */
static void near_pairs(const struct back *b, struct back_room *r, const struct chunk *c)
{
    const struct linear *x = &b->x;
    const int            cut = cut_of(x);
    const struct side    v = back_rows(x, r->left, r->k.v, x->ldv, CHUNK, x->dv_pad);
    const size_t         word = sizeof(uint32_t);

    for (int64_t j = 0; j < CHUNK; j++)
        if (b->apart)
            memset(r->da + j * CHUNK, 0, CHUNK * sizeof *r->da);
        else
            memcpy(r->da + j * CHUNK, r->r, CHUNK * sizeof *r->da);
    for (int j = 0; j < CHUNK; j += cut) {
        const int         lane = b->two ? 0 : j, to = j * CHUNK + lane;
        const struct side rows = { (const char *)v.at + (size_t)(j * v.row) * word,
                                   v.row, 1 };

        linear_meet(x, r->a + to, &r->k.by, j, cut, &r->q.by, lane, CHUNK, 0);
        back_product(x, r->da + to, CHUNK, rows, r->n_cols + (size_t)lane * word, CHUNK,
                     cut, CHUNK - lane, 0, x->dv_pad, 1);
    }
    if (b->learns) learn_near(b, r, c);
    mask_near(b, c, r->a);
    mask_near(b, c, r->da);
}

/* df += g da, dg += f da^T, dv += a n. */
static void near_products(const struct back *b, struct back_room *r)
{
    const struct linear *x = &b->x;
    const size_t         word = sizeof(uint32_t);
    const struct side    g = { x->bf16 ? (const void *)r->k.to.words : r->k.turned,
                            x->bf16 ? CHUNK / 2 : CHUNK, 1 };
    const struct side f = { x->bf16 ? (const void *)r->f_rows : r->q.turned,
                            x->bf16 ? CHUNK / 2 : CHUNK, 1 };
    const char *da = back_pairs(x, r->right, r->da, CHUNK, CHUNK);

    for (int i = 0; i < CHUNK; i += SUM_CUT)
        back_product(x, r->df + i, CHUNK, g, da + (size_t)i * word, CHUNK, x->m_pad,
                     SUM_CUT, 0, b->two ? CHUNK : i + SUM_CUT, 1);
    da = back_cols(x, r->right, r->da, CHUNK, CHUNK);
    for (int j = 0; j < CHUNK; j += SUM_CUT)
        back_product(x, r->dg + j, CHUNK, f, da + (size_t)j * word, CHUNK, x->m_pad,
                     SUM_CUT, b->two ? 0 : j, CHUNK, 1);
    const struct side a = back_rows(x, r->left, r->a, CHUNK, CHUNK, CHUNK);
    for (int j = 0; j < CHUNK; j += SUM_CUT) {
        const struct side rows = { (const char *)a.at + (size_t)(j * a.row) * word,
                                   a.row, 1 };
        back_product(x, r->dv + (int64_t)j * x->ldv, x->ldv, rows, r->n_pairs, x->ldv,
                     SUM_CUT, x->ldv, b->two ? 0 : j, CHUNK, 1);
    }
}

/*
 * Sums
 */

static _Alignas(64) const float ones[CHUNK] = {
#define FOUR    1, 1, 1, 1
#define SIXTEEN FOUR, FOUR, FOUR, FOUR
    SIXTEEN, SIXTEEN, SIXTEEN, SIXTEEN
};

/* out[m][64] = total w[64] + rows cols. */
static void of_sums(const struct back *b, struct back_room *r, struct sums_of s,
                    const void *cols, const float *w, float *out)
{
    const struct linear *x = &b->x;
    const struct side rows = back_rows(x, r->left, s.rows, x->ldv, x->m_pad, x->dv_pad);

    if (!b->apart)
        x->k->gemm_f32(out, CHUNK, s.total, 1, 0, w, CHUNK, x->m_pad, CHUNK, 1, 0);
    back_product(x, out, CHUNK, rows, cols, CHUNK, x->m_pad, CHUNK, 0, x->dv_pad,
                 !b->apart);
}

/* With all keys seen, the gradient of a feature's sum is that of its row. */
void back_finish_features(const struct linear *x, struct sums_of keys,
                          struct sums_of queries)
{
    for (int r = 0; r < x->m; r++) {
        const float *s = keys.rows + (int64_t)r * x->ldv;
        const float *q = queries.rows + (int64_t)r * x->ldv;
        double       dot = 0;

        for (int c = 0; c < x->dv; c++)
            dot += (double)s[c] * (double)q[c];
        queries.total[r] = keys.total[r] == 0 ? 0 : (float)(-dot / keys.total[r]);
    }
}

/* df = what the sums of keys before, and after, give to queries. */
static void df_of_sums(const struct back *b, struct back_room *r, struct meeting m,
                       const struct fades *t)
{
    const struct linear *x = &b->x;

    of_sums(b, r, m.of[KEYS], r->n_cols, r->r, r->df);
    if (!x->decay) return;
    if (b->learns) r->d_lam += weighed(x, r->q.turned, r->df, t->before_slope);
    x->k->shrink(r->df, x->m_pad, t->before);
    if (!b->two) return;
    of_sums(b, r, m.of[KEYS_AFTER], r->n_cols, r->r, r->more);
    if (b->learns) r->d_lam += weighed(x, r->q.turned, r->more, t->after_slope);
    x->k->shrink(r->more, x->m_pad, t->after);
    back_sum(r->df, r->more, (int64_t)x->m_pad * CHUNK);
}

/* dg = what the sums of queries after, and before, give to keys. */
static void dg_of_sums(const struct back *b, struct back_room *r, struct meeting m,
                       const struct fades *t)
{
    const struct linear *x = &b->x;
    const void          *v = back_cols(x, r->right, r->k.v, x->ldv, x->dv_pad);

    of_sums(b, r, m.of[QUERIES], v, ones, r->dg);
    if (!x->decay) return;
    if (b->learns) r->d_lam += weighed(x, r->k.turned, r->dg, t->after_slope);
    x->k->shrink(r->dg, x->m_pad, t->after);
    if (!b->two) return;
    of_sums(b, r, m.of[QUERIES_BEFORE], v, ones, r->more);
    if (b->learns) r->d_lam += weighed(x, r->k.turned, r->more, t->before_slope);
    x->k->shrink(r->more, x->m_pad, t->before);
    back_sum(r->dg, r->more, (int64_t)x->m_pad * CHUNK);
}

/* dv = g^T times the sums of queries. */
static void dv_of_sums(const struct back *b, struct back_room *r, struct meeting m,
                       const struct fades *t)
{
    const struct linear *x = &b->x;
    const void *sums = back_pairs(x, r->right, m.of[QUERIES].rows, x->ldv, x->m_pad);

    back_of_features(x, r->dv, &r->k.by, sums);
    if (!x->decay) return;
    linear_fade_values(x, t->after, r->dv, r->dv);
    if (!b->two) return;
    sums = back_pairs(x, r->right, m.of[QUERIES_BEFORE].rows, x->ldv, x->m_pad);
    back_of_features(x, r->dv_more, &r->k.by, sums);
    linear_fade_values(x, t->before, r->dv_more, r->dv_more);
    back_sum(r->dv, r->dv_more, (int64_t)CHUNK * x->ldv);
}

void back_add_queries(const struct back *b, struct back_room *r, struct sums_of s,
                      float by, const float *fade)
{
    const struct linear *x = &b->x;
    const struct side    f = { x->bf16 ? (const void *)r->f_rows : r->q.turned,
                            x->bf16 ? CHUNK / 2 : CHUNK, 1 };
    const void        *n = r->n_pairs;
    _Alignas(64) float w[CHUNK];

    if (fade) {
        linear_fade_values(x, fade, r->n, r->fade);
        n = back_pairs(x, r->right, r->fade, x->ldv, CHUNK);
    }
    for (int i = 0; i < CHUNK; i++)
        w[i] = r->r[i] * (fade ? fade[i] : 1);
    back_times(x, s, by);
    back_product(x, s.rows, x->ldv, f, n, x->ldv, x->m_pad, x->ldv, 0, CHUNK, 1);
    if (!b->by_feature)
        x->k->row_sums(s.total, r->q.t.f, x->m, w);
    else if (b->near)
        x->k->row_sums(s.total, r->dz, x->m, fade);
}

void back_add_keys(const struct back *b, struct back_room *r, struct sums_of s,
                   float by, const float *fade)
{
    const struct linear *x = &b->x;
    const struct side    g = { x->bf16 ? (const void *)r->k.to.words : r->k.turned,
                            x->bf16 ? CHUNK / 2 : CHUNK, 1 };

    linear_fade_values(x, fade, r->k.v, r->fade);
    back_times(x, s, by);
    back_product(x, s.rows, x->ldv, g, back_pairs(x, r->right, r->fade, x->ldv, CHUNK),
                 x->ldv, x->m_pad, x->ldv, 0, CHUNK, 1);
    x->k->row_sums(s.total, r->k.t.f, x->m, fade);
}

/* Gradients of the decay between chunks, and on to the chunk before. */
static void carry(const struct back *b, struct back_room *r, struct meeting m,
                  const struct fades *t)
{
    const struct linear *x = &b->x;

    if (b->learns) r->d_lam += t->all_slope * back_dot(x, m.of[QUERIES], m.of[KEYS]);
    if (b->learns && b->two)
        r->d_lam += t->all_slope * back_dot(x, m.of[QUERIES_BEFORE], m.of[KEYS_AFTER]);
    for (int i = 0; b->learns && !b->apart && i < x->m; i++) {
        r->d_lam += (double)t->all_slope * (double)m.of[QUERIES].total[i] *
                    (double)m.of[KEYS].total[i];
        if (b->two)
            r->d_lam += (double)t->all_slope * (double)m.of[QUERIES_BEFORE].total[i] *
                        (double)m.of[KEYS_AFTER].total[i];
    }
    back_add_queries(b, r, m.of[QUERIES], x->decay ? t->all : 1,
                     x->decay ? t->before : NULL);
    if (b->two) back_add_keys(b, r, m.of[KEYS_AFTER], t->all, t->before);
}

/*
 * A chunk
 */

static void times(float *restrict to, const float *restrict by)
{
    for (int i = 0; i < CHUNK; i++)
        to[i] *= by[i];
}

/* From gradients of features to those of rows. */
static void to_rows(const struct back *b, struct back_room *r, const struct chunk *c,
                    bool keys)
{
    const struct linear   *x = &b->x;
    const struct features *t = keys ? &r->k.t : &r->q.t;
    float                 *df = keys ? r->dg : r->df;

    for (int64_t i = 0; x->logs && i < x->m_pad; i++)
        times(df + i * CHUNK, t->f + i * CHUNK);
    linear_map_back(x, c, keys, t, df, keys ? r->dk : r->dq);
}

static void give(const struct back *b, struct back_room *r, const struct chunk *c,
                 int64_t from)
{
    if (c->r0 < c->r1) {
        to_rows(b, r, c, false);
        back_store_q(b, r, c);
    }
    back_ask(b, r);
    if (c->n) {
        to_rows(b, r, c, true);
        back_give_k(b, r, c, from);
    }
}

/* Features of numerators turned: those gradients back. */
static void turn_back(const struct back *b, struct back_room *r, const struct chunk *c)
{
    if (!b->x.turns) return;
    linear_turn(&b->x, c, r->df, r->df, true);
    linear_turn(&b->x, c, r->dg, r->dg, true);
}

static void pack_queries(const struct back *b, struct back_room *r)
{
    const struct linear *x = &b->x;

    if (x->bf16) back_rows(x, r->f_rows, r->q.turned, CHUNK, x->m_pad, CHUNK);
    back_cols(x, r->n_cols, r->n, x->ldv, x->dv_pad);
    back_pairs(x, r->n_pairs, r->n, x->ldv, CHUNK);
}

void back_load_queries(const struct back *b, struct back_room *r, const struct chunk *c,
                       const struct meeting *m)
{
    const struct linear *x = &b->x;

    linear_queries(x, c, m->of[KEYS], NULL, &r->q);
    linear_load_q(x, c, b->g->d_o, &x->p->o, x->dv, x->ldv, r->n);
    if (x->lane_logs) back_prefix(b, r, c, m);
    back_load_rows(b, r, c);
    pack_queries(b, r);
}

bool back_load(const struct back *b, struct back_room *r, const struct chunk *c,
               const struct meeting *m, bool whole)
{
    const struct linear *x = &b->x;

    if (!linear_keys(x, c, !whole, m->of[KEYS], &r->k)) return false;
    linear_queries(x, c, m->of[KEYS], x->causal ? &r->k : NULL, &r->q);
    linear_load_q(x, c, b->g->d_o, &x->p->o, x->dv, x->ldv, r->n);
    if (!whole && (!x->k->all_finite(r->q.t.x, (int64_t)CHUNK * x->ldq) ||
                   !x->k->all_finite(r->n, (int64_t)CHUNK * x->ldv)))
        return false;
    if (b->apart || x->lane_logs) back_prefix(b, r, c, m);
    back_load_rows(b, r, c);
    across_pack(x, &r->k.by, x->m_pad);
    beside_pack(x, &r->k.to);
    pack_queries(b, r);
    return true;
}

static void split(const struct back *b, struct back_room *r, const struct chunk *c,
                  struct meeting m, int level, int64_t from)
{
    const struct linear *x = &b->x;
    const int            half = back_length(c) / 2;
    const struct chunk   left = linear_piece(c, 0, half);
    const struct chunk   right = linear_piece(c, half, CHUNK);
    struct meeting       middle = m;

    middle.of[KEYS] = linear_sums_at(x, r->level, level);
    linear_sums_copy(x, middle.of[KEYS], m.of[KEYS]);
    linear_keys(x, &left, false, middle.of[KEYS], &r->k);
    linear_absorb(x, &left, &r->k, middle.of[KEYS]);
    back_chunk(b, r, &right, middle, level + 1, from);
    back_chunk(b, r, &left, m, level + 1, from);
}

void back_chunk(const struct back *b, struct back_room *r, const struct chunk *c,
                struct meeting m, int level, int64_t from)
{
    const struct linear *x = &b->x;
    struct meeting       now = m;
    struct fades         t;

    if (m.of[KEYS].top) {
        now.of[KEYS] = r->now;
        linear_sums_copy(x, now.of[KEYS], m.of[KEYS]);
    }
    if (!back_load(b, r, c, &now, !x->causal || back_length(c) < 2)) {
        split(b, r, c, m, level, from);
        return;
    }
    back_ask(b, r);
    if (x->decay) set_fades(back_decay(b, c), back_length(c), &t);
    back_to_units(x, now.of[QUERIES], now.of[KEYS].top);
    near_pairs(b, r, c);
    back_ask(b, r);
    df_of_sums(b, r, now, &t);
    back_ask(b, r);
    dg_of_sums(b, r, now, &t);
    back_ask(b, r);
    dv_of_sums(b, r, now, &t);
    back_ask(b, r);
    near_products(b, r);
    back_ask(b, r);
    turn_back(b, r, c);
    if (b->apart) back_apart(b, r, c, now);
    carry(b, r, now, &t);
    back_ask(b, r);
    give(b, r, c, from);
}

void back_alone(const struct back *b, struct back_room *r, const struct chunk *c,
                struct meeting m, int64_t from)
{
    const struct fades none = { 0 };

    back_load(b, r, c, &m, true);
    back_ask(b, r);
    df_of_sums(b, r, m, &none);
    back_ask(b, r);
    dg_of_sums(b, r, m, &none);
    back_ask(b, r);
    dv_of_sums(b, r, m, &none);
    back_ask(b, r);
    turn_back(b, r, c);
    if (b->apart) back_apart(b, r, c, m);
    while (r->asked < BACK_PARTS)
        back_ask(b, r);
    give(b, r, c, from);
}
