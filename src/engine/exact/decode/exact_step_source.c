/* exact_step_source.c -- decoding: logits of new tokens from score sources other than
 * q.k.
 *
 * The nets of a row are evaluated once for a bundle.  A tile of its logits is then a
 * piece of a row of R, and products with rows of parameters in place.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/exact/decode/exact_step.h"

/* Elements of a sum that kernels take at a time, padded with zeros. */
enum { CHUNK = 64 };

/* Elements of a row: R1 times its weight, then the hidden values of the net times
 * theirs. */
static int64_t padded_rank(const struct sources *s) { return round_up(s->rank, 16); }

static int64_t row_floats(const struct sources *s)
{
    return padded_rank(s) + round_up(s->net.hidden, CHUNK);
}

static int64_t max_hidden(const struct sources *s)
{
    return round_up(max64(s->net.hidden, max64(s->a.hidden, s->b.hidden)), CHUNK);
}

/* Elements of a or b, padded for the kernels. */
static int64_t padded_out(const struct source_net *n) { return round_up(n->out, 32); }

struct step_source step_source_scratch(const struct exact_step *x, struct arena *a)
{
    const struct sources *s = &x->e.source;
    const int64_t         both = padded_out(&s->a) + padded_out(&s->b);
    const int64_t         in = exact_source_nets(&x->e) ? x->e.plan->p.dim_x : 0;
    struct step_source    r;

    r.rows = arena_alloc(a, x->bundle * row_floats(s), sizeof *r.rows);
    r.ab = arena_alloc(a, x->bundle * both, sizeof *r.ab);
    r.weight = arena_alloc(a, s->kinds ? x->bundle : 0, sizeof *r.weight);
    r.x = arena_alloc(a, round_up(in, CHUNK), sizeof *r.x);
    r.h = arena_alloc(a, max_hidden(s), sizeof *r.h);
    r.logits = arena_alloc(a, s->kinds ? LANES : 0, sizeof *r.logits);
    r.more = arena_alloc(a, s->kinds ? LANES : 0, sizeof *r.more);
    return r;
}

/* out[round_up(n_out, 32)] = in W + b, with in[n_in] padded to chunks. */
static void layer(const struct exact_step *x, const float *w, const float *b,
                  const float *in, int64_t n_in, int64_t n_out, float *out)
{
    memcpy(out, b, (size_t)n_out * sizeof *out);
    for (int64_t c = 0; c < n_in; c += CHUNK)
        x->e.k->sums_f32(out, round_up(n_out, 32), in + c, 1, w + c * n_out, n_out,
                         FOCI_F32, (int)min64(CHUNK, n_in - c), (int)n_out);
}

/* h = relu(x W1 + b1), padded with zeros to chunks. */
static void net_hidden(const struct exact_step *x, const struct source_net *n,
                       int64_t head, const float *in, float *h)
{
    const float *params = x->step->io->params;

    layer(x, params + n->w1 + head * n->x * n->hidden,
          params + n->b1 + head * n->hidden, in, n->x, n->hidden, h);
    for (int c = 0; c < n->hidden; c++)
        h[c] = h[c] <= 0 ? 0 : h[c];
    for (int64_t c = n->hidden; c < round_up(n->hidden, CHUNK); c++)
        h[c] = 0;
}

static void net_out(const struct exact_step *x, const struct source_net *n,
                    int64_t head, const float *in, float *h, float *out)
{
    const float *params = x->step->io->params;

    net_hidden(x, n, head, in, h);
    layer(x, params + n->w2 + head * n->hidden * n->out, params + n->b2 + head * n->out,
          h, n->hidden, n->out, out);
}

static void load_x(const struct exact_step *x, const struct step_piece *p, int row,
                   float *to)
{
    const int64_t token = p->b->seq->row0 + (p->b->row0 + row) / x->per_kv;
    const int64_t d = x->e.plan->p.dim_x;

    x->e.k->load_rows(to, round_up(d, CHUNK),
                      (const char *)x->step->io->x + (size_t)(token * d) * x->el, d,
                      (int)x->e.plan->p.dtype, 1, (int)d);
}

static const float *factors(const struct exact_step *x, int64_t at, int64_t head,
                            int64_t pos)
{
    const foci_mech *m = &x->e.stage->group->mech;
    int64_t          shape[2];

    exact_source_shape(m, FOCI_ROLE_R1, shape);
    return x->step->io->params + at + (head * shape[0] + pos) * shape[1];
}

static unsigned all_of(const struct sources *s)
{
    return s->kinds | (s->qk ? FOCI_SOURCE_QK : 0);
}

/* Make row number `row` of a bundle. */
static void load_row(const struct exact_step *x, struct step_piece *p, int row)
{
    const struct sources     *s = &x->e.source;
    const struct step_source *r = &p->rows.source;
    const int64_t             h = head_of(x, p, row);
    float                    *to = r->rows + row * row_floats(s);
    float       *ab = r->ab + row * (padded_out(&s->a) + padded_out(&s->b));
    const float *mix = x->step->io->params + s->mix + h * __builtin_popcount(all_of(s));

    exact_source_weights(all_of(s), s->mix < 0 ? NULL : mix, r->weight[row]);
    if (exact_source_nets(&x->e)) load_x(x, p, row, r->x);
    memset(to, 0, (size_t)row_floats(s) * sizeof *to);
    for (int c = 0; c < s->rank; c++)
        to[c] = (float)r->weight[row][SOURCE_FACTORS] *
                factors(x, s->r1, h, position_of(x, p->b, row))[c];
    if (s->net.hidden) net_hidden(x, &s->net, h, r->x, to + padded_rank(s));
    for (int c = 0; c < s->net.hidden; c++)
        to[padded_rank(s) + c] *= (float)r->weight[row][SOURCE_NET];
    if (!s->a.out) return;
    net_out(x, &s->a, h, r->x, r->h, ab);
    for (int c = 0; c < s->a.out; c++)
        ab[c] *= (float)r->weight[row][SOURCE_OUTER];
    net_out(x, &s->b, h, r->x, r->h, ab + padded_out(&s->a));
}

void step_source_load(const struct exact_step *x, struct step_piece *p)
{
    for (int i = 0; x->e.source.kinds && i < p->b->rows; i++)
        load_row(x, p, i);
}

/* Add products with rows of R2 and with columns of W2. */
static void add_products(const struct exact_step *x, int64_t h, int64_t j0, int n,
                         const float *row, float weight, const struct step_source *r)
{
    const struct sources *s = &x->e.source;
    const float          *params = x->step->io->params;
    const int64_t         max = s->net.out;

    if (s->rank) {
        x->e.k->dots_f32(r->more, row, padded_rank(s), 1, factors(x, s->r2, h, j0),
                         s->rank, FOCI_F32, n, s->rank);
        for (int j = 0; j < n; j++)
            r->logits[j] += r->more[j];
    }
    if (!s->net.hidden) return;
    for (int j = 0; j < n; j++)
        r->logits[j] += weight * params[s->net.b2 + h * max + j0 + j];
    for (int c = 0; c < s->net.hidden; c += CHUNK)
        x->e.k->sums_f32(r->logits, LANES, row + padded_rank(s) + c, 1,
                         params + s->net.w2 + (h * s->net.hidden + c) * max + j0, max,
                         FOCI_F32, (int)min64(CHUNK, s->net.hidden - c), n);
}

const float *step_source(const struct exact_step *x, const struct step_piece *p,
                         int row, int64_t j0, int n)
{
    const struct sources     *s = &x->e.source;
    const struct step_source *r = &p->rows.source;
    const int64_t             h = head_of(x, p, row), pos = position_of(x, p->b, row);
    const int64_t             half = padded_out(&s->a);
    const float              *ab = r->ab + row * (half + padded_out(&s->b)),
                *params = x->step->io->params;
    const float table = (float)r->weight[row][SOURCE_TABLE];

    memset(r->logits, 0, LANES * sizeof *r->logits);
    for (int j = 0; s->kinds & FOCI_SOURCE_TABLE && j < n; j++)
        r->logits[j] = table * params[s->r + (h * s->max + pos) * s->max + j0 + j];
    for (int j = 0; s->a.out && j < n; j++)
        r->logits[j] += ab[(j0 + j) / s->b.out] * ab[half + (j0 + j) % s->b.out];
    add_products(x, h, j0, n, r->rows + row * row_floats(s),
                 (float)r->weight[row][SOURCE_NET], r);
    return r->logits;
}

int64_t step_source_longest(const foci_plan *plan, const struct stage *stage)
{
    const foci_mech      *m = &stage->group->mech;
    struct exact          x;
    const struct sources *s = &x.source;
    int64_t               n = INT64_MAX, shape[2];

    if (mech_sources(m) == FOCI_SOURCE_QK) return n;
    exact_geometry(&x, plan, stage);
    if (s->kinds & FOCI_SOURCE_TABLE) n = min64(n, s->max);
    if (s->kinds & FOCI_SOURCE_FACTORS) {
        exact_source_shape(m, FOCI_ROLE_R1, shape);
        n = min64(n, shape[0]);
    }
    if (s->kinds & FOCI_SOURCE_NET) n = min64(n, s->net.out);
    if (s->kinds & FOCI_SOURCE_OUTER) n = min64(n, (int64_t)s->a.out * s->b.out);
    return n;
}

bool step_source_refuses(const struct stage *stage, int64_t len, char *why, size_t cap)
{
    foci_mech m = stage->group->mech;

    if (mech_sources(&m) == FOCI_SOURCE_QK || !m.def->refuse) return false;
    m.dims.planned = m.dims.len = m.dims.len_q = len;
    return m.def->refuse(&m, why, cap);
}
