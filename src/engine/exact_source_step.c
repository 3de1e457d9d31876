/* exact_source_step.c -- logits of new tokens that do not come from pairs of q and k.
 *
 * What a row needs of its nets is made once for a bundle; a tile of its logits is then a
 * piece of a row of R, and products with rows of tensors as they are.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/exact_step.h"

/* Kernels take so many elements of a sum at a time, padded with zeros. */
enum { CHUNK = 64 };

/* Elements of a row: R1 with its weight, then the inside of the net with its. */
static int64_t rank_room(const struct sources *s) { return round_up(s->rank, 16); }

static int64_t row_room(const struct sources *s)
{
    return rank_room(s) + round_up(s->net.inside, CHUNK);
}

static int64_t inside_most(const struct sources *s)
{
    return round_up(max64(s->net.inside, max64(s->a.inside, s->b.inside)), CHUNK);
}

/* Of a and of b, each as the kernels fill it. */
static int64_t ab_room(const struct source_net *n) { return round_up(n->out, 32); }

struct step_source step_source_take(const struct stepping *x, struct arena *a)
{
    const struct sources *s = &x->e.from;
    const int64_t         both = ab_room(&s->a) + ab_room(&s->b);
    const int64_t         in = exact_source_nets(&x->e) ? x->plan->p.dim_x : 0;
    struct step_source    r;

    r.rows = arena_take(a, x->bundle * row_room(s), sizeof *r.rows);
    r.ab = arena_take(a, x->bundle * both, sizeof *r.ab);
    r.share = arena_take(a, s->from ? x->bundle : 0, sizeof *r.share);
    r.x = arena_take(a, round_up(in, CHUNK), sizeof *r.x);
    r.h = arena_take(a, inside_most(s), sizeof *r.h);
    r.logits = arena_take(a, s->from ? LANES : 0, sizeof *r.logits);
    r.more = arena_take(a, s->from ? LANES : 0, sizeof *r.more);
    return r;
}

/* out[round_up(n_out, 32)] = in W + b, in[n_in] padded to chunks. */
static void layer(const struct stepping *x, const float *w, const float *b,
                  const float *in, int64_t n_in, int64_t n_out, float *out)
{
    memcpy(out, b, (size_t)n_out * sizeof *out);
    for (int64_t c = 0; c < n_in; c += CHUNK)
        x->k->sums_f32(out, round_up(n_out, 32), in + c, 1, w + c * n_out, n_out,
                       FOCI_F32, (int)min64(CHUNK, n_in - c), (int)n_out);
}

/* relu(x W1 + b1) to h, zero up to whole chunks. */
static void inside(const struct stepping *x, const struct source_net *n, int64_t head,
                   const float *in, float *h)
{
    const float *params = x->step->io->params;

    layer(x, params + n->w1 + head * n->x * n->inside,
          params + n->b1 + head * n->inside, in, n->x, n->inside, h);
    for (int c = 0; c < n->inside; c++)
        h[c] = h[c] <= 0 ? 0 : h[c];
    for (int64_t c = n->inside; c < round_up(n->inside, CHUNK); c++)
        h[c] = 0;
}

static void outside(const struct stepping *x, const struct source_net *n, int64_t head,
                    const float *in, float *h, float *out)
{
    const float *params = x->step->io->params;

    inside(x, n, head, in, h);
    layer(x, params + n->w2 + head * n->inside * n->out, params + n->b2 + head * n->out,
          h, n->inside, n->out, out);
}

static void load_x(const struct stepping *x, const struct piece *p, int row, float *to)
{
    const int64_t token = p->b->seq->row0 + (p->b->row0 + row) / x->per_kv;
    const int64_t d = x->plan->p.dim_x;

    x->k->load_rows(to, round_up(d, CHUNK),
                    (const char *)x->step->io->x + (size_t)(token * d) * x->el, d,
                    (int)x->plan->p.dtype, 1, (int)d);
}

static const float *factors(const struct stepping *x, int64_t at, int64_t head,
                            int64_t place)
{
    const foci_mech *m = &x->stage->group->mech;
    int64_t          shape[2];

    m->def->tensors[FOCI_AT_R1].shape(m, m->arg, shape);
    return x->step->io->params + at + (head * shape[0] + place) * shape[1];
}

static unsigned all_of(const struct sources *s)
{
    return s->from | (s->qk ? FOCI_SOURCE_QK : 0);
}

/* Row number `row` of a bundle. */
static void load_row(const struct stepping *x, struct piece *p, int row)
{
    const struct sources     *s = &x->e.from;
    const struct step_source *r = &p->rows.from;
    const int64_t             h = head_of(x, p, row);
    float                    *to = r->rows + row * row_room(s);
    float                    *ab = r->ab + row * (ab_room(&s->a) + ab_room(&s->b));
    const float *mix = x->step->io->params + s->mix + h * __builtin_popcount(all_of(s));

    exact_source_shares(all_of(s), s->mix < 0 ? NULL : mix, r->share[row]);
    if (exact_source_nets(&x->e)) load_x(x, p, row, r->x);
    memset(to, 0, (size_t)row_room(s) * sizeof *to);
    for (int c = 0; c < s->rank; c++)
        to[c] = (float)r->share[row][OF_FACTORS] *
                factors(x, s->r1, h, place_of(x, p->b, row))[c];
    if (s->net.inside) inside(x, &s->net, h, r->x, to + rank_room(s));
    for (int c = 0; c < s->net.inside; c++)
        to[rank_room(s) + c] *= (float)r->share[row][OF_NET];
    if (!s->a.out) return;
    outside(x, &s->a, h, r->x, r->h, ab);
    for (int c = 0; c < s->a.out; c++)
        ab[c] *= (float)r->share[row][OF_OUTER];
    outside(x, &s->b, h, r->x, r->h, ab + ab_room(&s->a));
}

void step_source_load(const struct stepping *x, struct piece *p)
{
    for (int i = 0; x->e.from.from && i < p->b->rows; i++)
        load_row(x, p, i);
}

/* The products: with rows of R2, and with columns of W2. */
static void add_products(const struct stepping *x, int64_t h, int64_t j0, int n,
                         const float *row, float share, const struct step_source *r)
{
    const struct sources *s = &x->e.from;
    const float          *params = x->step->io->params;
    const int64_t         max = s->net.out;

    if (s->rank) {
        x->k->dots_f32(r->more, row, rank_room(s), 1, factors(x, s->r2, h, j0), s->rank,
                       FOCI_F32, n, s->rank);
        for (int j = 0; j < n; j++)
            r->logits[j] += r->more[j];
    }
    if (!s->net.inside) return;
    for (int j = 0; j < n; j++)
        r->logits[j] += share * params[s->net.b2 + h * max + j0 + j];
    for (int c = 0; c < s->net.inside; c += CHUNK)
        x->k->sums_f32(r->logits, LANES, row + rank_room(s) + c, 1,
                       params + s->net.w2 + (h * s->net.inside + c) * max + j0, max,
                       FOCI_F32, (int)min64(CHUNK, s->net.inside - c), n);
}

const float *step_source(const struct stepping *x, const struct piece *p, int row,
                         int64_t j0, int n)
{
    const struct sources     *s = &x->e.from;
    const struct step_source *r = &p->rows.from;
    const int64_t             h = head_of(x, p, row), place = place_of(x, p->b, row);
    const int64_t             half = ab_room(&s->a);
    const float              *ab = r->ab + row * (half + ab_room(&s->b)),
                *params = x->step->io->params;
    const float table = (float)r->share[row][OF_TABLE];

    memset(r->logits, 0, LANES * sizeof *r->logits);
    for (int j = 0; s->from & FOCI_SOURCE_TABLE && j < n; j++)
        r->logits[j] = table * params[s->r + (h * s->max + place) * s->max + j0 + j];
    for (int j = 0; s->a.out && j < n; j++)
        r->logits[j] += ab[(j0 + j) / s->b.out] * ab[half + (j0 + j) % s->b.out];
    add_products(x, h, j0, n, r->rows + row * row_room(s), (float)r->share[row][OF_NET],
                 r);
    return r->logits;
}

int64_t step_source_longest(const foci_plan *plan, const struct stage *stage)
{
    const foci_mech      *m = &stage->group->mech;
    struct exact          x;
    const struct sources *s = &x.from;
    int64_t               n = INT64_MAX, shape[2];

    if (mech_sources(m) == FOCI_SOURCE_QK) return n;
    exact_geometry(&x, plan, stage);
    if (s->from & FOCI_SOURCE_TABLE) n = min64(n, s->max);
    if (s->from & FOCI_SOURCE_FACTORS) {
        m->def->tensors[FOCI_AT_R1].shape(m, m->arg, shape);
        n = min64(n, shape[0]);
    }
    if (s->from & FOCI_SOURCE_NET) n = min64(n, s->net.out);
    if (s->from & FOCI_SOURCE_OUTER) n = min64(n, (int64_t)s->a.out * s->b.out);
    return n;
}

bool step_source_refuses(const struct stage *stage, int64_t len, char *why, size_t cap)
{
    foci_mech m = stage->group->mech;

    if (mech_sources(&m) == FOCI_SOURCE_QK || !m.def->refuse) return false;
    m.dims.planned = m.dims.len = m.dims.len_q = len;
    return m.def->refuse(&m, why, cap);
}
