/* exact_source.c -- score sources other than q.k: geometry, memory, and weights of
 * sources. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_pack.h"

/* Sums of values, of all folded sequences, that stay in the cache. */
enum { FOLD_BYTES = 256 << 10 };

/*
 * Widths and memory
 */

void exact_source_shape(const foci_mech *m, foci_role role, int64_t shape[2])
{
    const int t = mech_tensor(m, role);

    assert(t >= 0 && "planning has found the tensors of all sources");
    shape[0] = shape[1] = 0;
    m->def->tensors[t].shape(m, m->arg, shape);
}

/* Where the tensor begins among the parameters; -1: there is none. */
static int64_t offset_of(const struct exact *x, foci_role role)
{
    const struct plan_group *g = x->stage->group;
    const int                t = mech_tensor(&g->mech, role);
    return t < 0 ? -1 : g->param0[t];
}

/* The roles of the tensors of a net follow that of its W1. */
static struct source_net net_at(const struct exact *x, foci_role w1)
{
    const foci_mech *m = &x->stage->group->mech;
    int64_t          one[2], two[2];

    exact_source_shape(m, w1, one);
    exact_source_shape(m, w1 + 2, two);
    return (struct source_net){
        offset_of(x, w1),     offset_of(x, w1 + 1), offset_of(x, w1 + 2),
        offset_of(x, w1 + 3), (int)one[0],          (int)one[1],
        (int)two[1],
    };
}

void exact_source_geometry(struct exact *x)
{
    const foci_mech *m = &x->stage->group->mech;
    const unsigned   kinds = mech_sources(m);
    struct sources  *s = &x->source;
    int64_t          shape[2];

    *s = (struct sources){ .qk = kinds & FOCI_SOURCE_QK,
                           .kinds = kinds & ~(unsigned)FOCI_SOURCE_QK };
    if (!s->kinds) return;
    s->r = offset_of(x, FOCI_ROLE_R);
    s->r1 = offset_of(x, FOCI_ROLE_R1);
    s->r2 = offset_of(x, FOCI_ROLE_R2);
    s->mix = offset_of(x, FOCI_ROLE_MIX);
    s->tiles = div_up(x->p->len_k, TILE);
    s->ldx = (int)round_up(x->p->dim_x, 16);
    if (s->kinds & FOCI_SOURCE_TABLE) {
        const foci_tensor_def *r = &m->def->tensors[mech_tensor(m, FOCI_ROLE_R)];
        exact_source_shape(m, FOCI_ROLE_R, shape);
        s->max = shape[1];
        s->frozen = r->keep != FOCI_KEEP_TRAINED || (r->frozen && r->frozen(m, m->arg));
    }
    if (s->kinds & FOCI_SOURCE_FACTORS) {
        exact_source_shape(m, FOCI_ROLE_R1, shape);
        s->rank = (int)shape[1];
    }
    if (s->kinds & FOCI_SOURCE_NET) s->net = net_at(x, FOCI_ROLE_W1);
    if (s->kinds & FOCI_SOURCE_OUTER) {
        s->a = net_at(x, FOCI_ROLE_W1A);
        s->b = net_at(x, FOCI_ROLE_W1B);
    }
    s->w = s->rank + s->net.hidden;
    s->w_pad = (int)round_up(s->w, x->bf16 ? x->k->depth : 1);
    s->ldw = (int)round_up(s->w, x->granule);
    s->size = (size_t)(x->bf16 ? s->w_pad * 2 : s->ldw * (int)sizeof(float)) * TILE;
}

/* Multiply-adds of a row in a net. */
static double net_work(const struct source_net *n, bool second)
{
    return (double)n->hidden * ((double)n->x + (second ? (double)n->out : 0));
}

void exact_source_cost(const struct exact *x, double pairs, foci_cost *c)
{
    const struct sources *s = &x->source;
    const double          heads = (double)x->heads, batch = (double)x->p->batch;
    const double          rows = batch * heads * (double)x->p->len_q;
    const double          net =
        net_work(&s->net, false) + net_work(&s->a, true) + net_work(&s->b, true);
    const double tables = (double)div_up(x->p->batch, exact_fold_max(x));

    if (!s->kinds) return;
    c->forward_flops += 2 * (batch * heads * pairs * (double)s->w + rows * net);
    c->backward_flops +=
        2 * (batch * heads * pairs * 3 * (double)s->w + rows * 3 * net);
    if (!(s->kinds & FOCI_SOURCE_TABLE)) return;
    c->forward_bytes += tables * heads * pairs * sizeof(float);
    c->backward_bytes += tables * heads * pairs * 3 * sizeof(float);
}

void exact_source_carve(struct exact *x, struct arena *a, bool back)
{
    struct sources *s = &x->source;
    const int64_t   pieces = exact_source_tiles(x);

    if (!s->kinds) return;
    s->weight = arena_alloc(a, x->heads, sizeof *s->weight);
    s->keys = arena_alloc(a, pieces, s->size);
    s->sum = back && x->bf16 ? arena_alloc(a, pieces, s->size) : NULL;
    s->nonfinite = arena_alloc(a, pieces, 1);
}

struct source_scratch exact_source_scratch(const struct exact *x, bool back,
                                           struct arena *a)
{
    const struct sources *s = &x->source;
    const int             in = exact_source_nets(x) ? s->ldx : 0;
    const int64_t hidden = max64(s->net.hidden, max64(s->a.hidden, s->b.hidden));
    const int64_t wide =
        round_up(max64(hidden, max64(s->a.out, s->b.out)), 16); /* rows of gradients */
    const bool per_block = back && s->kinds & FOCI_SOURCE_TABLE && x->max.seqs > 1;
    struct source_scratch r;

    r.rows = arena_alloc(a, LANES * (int64_t)s->ldw, sizeof(float));
    r.q = arena_alloc(a, LANES * (int64_t)s->ldw, sizeof(float));
    r.x = arena_alloc(a, LANES * (int64_t)in, sizeof(float));
    r.xt = arena_alloc(a, LANES * (int64_t)in, sizeof(float));
    r.h = arena_alloc(a, LANES * hidden, sizeof(float));
    r.ab = arena_alloc(a, LANES * (int64_t)(s->a.out + s->b.out), sizeof(float));
    r.tile = arena_alloc(a, s->kinds ? (int64_t)LANES * TILE : 0, sizeof(float));
    r.ds = arena_alloc(a, s->kinds && back ? (int64_t)LANES * TILE : 0, sizeof(float));
    r.d_out = arena_alloc(a, back ? LANES * wide : 0, sizeof(float));
    r.transposed = arena_alloc(a, back ? LANES * wide : 0, sizeof(float));
    r.strip = arena_alloc(a, back ? LANES * wide : 0, sizeof(float));
    r.hidden = arena_alloc(a, back ? LANES * wide : 0, sizeof(float));
    r.columns = arena_alloc(a, per_block ? x->per_kv * s->tiles * TILE * LANES : 0,
                            sizeof(float));
    return r;
}

bool exact_source_nets(const struct exact *x)
{
    return x->source.kinds & (FOCI_SOURCE_NET | FOCI_SOURCE_OUTER);
}

bool exact_source_scores(const struct exact *x)
{
    return x->source.kinds && !x->source.qk;
}

bool exact_source_biases(const struct exact *x)
{
    return x->source.kinds && x->source.qk;
}

int64_t exact_source_tiles(const struct exact *x)
{
    return x->source.w ? x->heads * x->source.tiles : 0;
}

/*
 * Weights of sources
 */

double exact_source_weight(const struct exact *x, int64_t h, int source)
{
    return x->source.weight ? x->source.weight[h][source] : 1;
}

/* One source has weight 1; several, the softmax of their logits. */
void exact_source_weights(unsigned from, const float *mix, double weight[N_SOURCES])
{
    double top = -INFINITY, sum = 0;
    int    n = 0;

    for (int s = 0; s < N_SOURCES; s++) {
        weight[s] = from >> s & 1 ? (mix ? (double)mix[n++] : 0) : -INFINITY;
        top = fmax(top, weight[s]);
    }
    for (int s = 0; s < N_SOURCES; s++) {
        weight[s] = from >> s & 1 ? exp(weight[s] - top) : 0;
        sum += weight[s];
    }
    for (int s = 0; s < N_SOURCES; s++)
        weight[s] /= sum;
}

void exact_source_prepare(const struct exact *x)
{
    const struct sources *s = &x->source;
    const unsigned        from = s->kinds | (s->qk ? FOCI_SOURCE_QK : 0);
    const int             n = __builtin_popcount(from);

    for (int64_t h = 0; s->kinds && h < x->heads; h++)
        exact_source_weights(from, s->mix < 0 ? NULL : x->io->params + s->mix + h * n,
                             s->weight[h]);
}

/*
 * Sequences that share their weights
 */

bool exact_shares_weights(const struct exact *x)
{
    const unsigned shared = FOCI_SOURCE_TABLE | FOCI_SOURCE_FACTORS;

    return x->source.kinds && !x->source.qk && !(x->source.kinds & ~shared);
}

int64_t exact_fold_max(const struct exact *x)
{
    const foci_problem *p = x->p;
    const bool own = p->flags & (FOCI_FLAG_MASK | FOCI_FLAG_BIAS) && p->mask_batch > 1;
    const int64_t bytes = (int64_t)sizeof(float) * x->d.ldv * LANES;

    if (!exact_shares_weights(x) || x->dropout.on || own || p->max_docs) return 1;
    return max64(1, min64(p->batch, FOLD_BYTES / max64(bytes, 1)));
}

int64_t exact_find_fold(const struct exact *x)
{
    if (x->exec.gates) return 1;
    for (int64_t i = 1; i < x->n.seqs; i++)
        if (x->seqs[i].s.nk != x->seqs[0].s.nk) return 1;
    return min64(exact_fold_max(x), max64(1, x->n.seqs));
}
