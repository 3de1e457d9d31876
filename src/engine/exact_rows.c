/* exact_rows.c -- what a block of queries sees and how its logits are scaled. */
#include <math.h>
#include <string.h>

#include "engine/exact_order.h"

static uint64_t lanes_from(int64_t r)
{
    return r <= 0 ? ~UINT64_C(0) : r >= LANES ? 0 : ~UINT64_C(0) << r;
}

static uint64_t lanes_of(const struct block *b)
{
    return lanes_from(b->r0) & ~lanes_from(b->r1);
}

/* Key tiles that the last query of the block may see, if causal. */
struct walk exact_walk_keys(const struct exact *x, const struct block *b)
{
    struct walk   w = { .limit = b->seq->n_kt };
    const int64_t last = b->pos + b->r1 - 1;

    if (x->p->flags & FOCI_CAUSAL)
        w.limit = min64(w.limit, last < 0 ? 0 : last / TILE + 1);
    /* Blocks are aligned to positions wherever the table is consulted. */
    w.runs = support_row(x->support, b->pos < 0 ? -1 : b->pos / TILE, &w.n_runs);
    return w;
}

struct walk exact_walk_blocks(const struct exact *x, const struct exact_seq *s,
                              int64_t t)
{
    struct walk w = { .limit = s->n_qt };

    w.runs = support_col(x->support, t, &w.n_runs);
    /* The table counts tiles of positions, the caller blocks of the sequence. */
    if (!x->support->all) w.shift = (s->pos0 - s->lead) / LANES;
    if (x->p->flags & FOCI_CAUSAL) {
        const int64_t first = t * TILE - s->pos0 + s->lead; /* that sees a key of it */
        w.next = first <= 0 ? 0 : first / LANES;
    }
    return w;
}

bool exact_next(struct walk *w, int64_t *tile, int32_t *mask)
{
    for (; w->run < w->n_runs; w->run++) {
        const struct tile_run *r = &w->runs[w->run];

        w->next = max64(w->next, r->begin - w->shift);
        if (w->next >= w->limit) return false;
        if (w->next < r->end - w->shift) {
            *tile = w->next++;
            *mask = r->mask;
            return true;
        }
    }
    return false;
}

int64_t exact_given_row(const struct exact *x, const struct exact_seq *s, int64_t h,
                        int64_t i)
{
    const foci_problem *p = x->p;
    const int64_t       batch = p->mask_batch > 1 ? s->s.b : 0;
    const int64_t       head = p->mask_heads > 1 ? h : 0;

    return ((batch * p->mask_heads + head) * p->len_q + s->s.q0 + i) * p->len_k +
           s->s.k0;
}

static int64_t given_row(const struct exact *x, const struct block *b, int r)
{
    return exact_given_row(x, b->seq, b->h, b->i0 + r);
}

bool exact_seen(const struct exact *x, const struct block *b, int64_t t, int32_t mask,
                int n, uint64_t *seen)
{
    const int64_t j0 = t * TILE;
    const bool    causal = x->p->flags & FOCI_CAUSAL && j0 + n - 1 > b->pos + b->r0;
    const bool    given = x->p->flags & FOCI_MASK;

    if (mask < 0 && !causal && !given) return false;

    const uint64_t lanes = lanes_of(b);
    for (int j = 0; j < n; j++) {
        seen[j] = lanes;
        if (mask >= 0) seen[j] &= x->support->masks[mask][j];
        if (causal) seen[j] &= lanes_from(j0 + j - b->pos);
    }
    for (int r = b->r0; given && r < b->r1; r++) {
        const uint8_t *row = x->io->mask + given_row(x, b, r) + j0;
        for (int j = 0; j < n; j++)
            if (!row[j]) seen[j] &= ~(UINT64_C(1) << r);
    }
    return true;
}

bool exact_cut(const struct exact *x, const struct block *b, int64_t t, int n,
               struct cut *c)
{
    const int64_t over = t * TILE - b->pos; /* lanes before the first that sees key 0 */
    const bool    crossed = x->p->flags & FOCI_CAUSAL && over + n - 1 > b->r0;

    c->j += c->m;
    if (c->j >= n) return false;
    c->m = crossed ? (int)min64(x->group, n - c->j) : n;
    const int64_t lane = crossed ? max64(0, over + c->j) : 0;
    if (lane >= LANES) return false;
    c->lane = (int)lane / x->group * x->group;
    return true;
}

void exact_bias(const struct exact *x, const struct block *b, int64_t t, int n,
                float *bias)
{
    memset(bias, 0, (size_t)n * LANES * sizeof *bias);
    for (int r = b->r0; r < b->r1; r++) {
        const float *row = x->io->bias + given_row(x, b, r) + t * TILE;
        for (int j = 0; j < n; j++)
            bias[j * LANES + r] = row[j];
    }
}

bool exact_counts(const struct exact *x, bool backward)
{
    const bool learned = x->score->n_factors || x->score->sink >= 0;
    return x->kind == FOCI_RELU2 || x->score->n_rows || (backward && learned);
}

void exact_visible(const struct exact *x, const struct block *b, int64_t visible[LANES])
{
    const int64_t nk = b->seq->s.nk;

    if (x->support->all && !(x->p->flags & FOCI_MASK)) {
        for (int r = 0; r < LANES; r++)
            visible[r] =
                x->p->flags & FOCI_CAUSAL ? min64(nk, max64(0, b->pos + r + 1)) : nk;
        return;
    }
    struct walk w = exact_walk_keys(x, b);
    int64_t     t;
    int32_t     mask;
    uint64_t    seen[TILE];

    memset(visible, 0, LANES * sizeof *visible);
    while (exact_next(&w, &t, &mask)) {
        const int n = exact_keys_in(b->seq, t);
        if (!exact_seen(x, b, t, mask, n, seen)) {
            for (int r = 0; r < LANES; r++)
                visible[r] += n;
            continue;
        }
        for (int j = 0; j < n; j++)
            for (int r = 0; r < LANES; r++)
                visible[r] += (int64_t)(seen[j] >> r & 1);
    }
    if (x->order) order_add_visible(x, b, visible);
}

void exact_factors(const struct exact *x, const struct block *b, const int64_t *visible,
                   float *plain, float *f, float *mul)
{
    const double head = exact_head_scale(x, b->h);

    for (int r = 0; r < LANES; r++) {
        double row = 1;
        for (int i = 0; i < x->score->n_rows; i++)
            row *= x->score->row[i]->def->row_factor(x->score->row[i], visible[r]);
        plain[r] = (float)(head * row);
        f[r] = (float)(head * row * exact_unit_of(x));
        if (mul) mul[r] = (float)row;
    }
}

void exact_shares(const struct exact *x, const int64_t *visible, float *share)
{
    const foci_mech *m = &x->stage->group->mech;
    const double     fixed = m->def->count ? m->def->count(m) : 0;

    for (int r = 0; r < LANES; r++)
        share[r] =
            visible[r] <= 0 ? 0 : (float)(1 / (fixed > 0 ? fixed : (double)visible[r]));
}
