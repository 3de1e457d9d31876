/* overlap.c -- refusal of outputs of an execution that overlap inputs or other outputs.
 *
 * Mechanisms read inputs after they have written some of the output, each in its own order,
 * so such calls are refused.  Tensors are compared by the memory from their first element to
 * their last.  If these ranges overlap, tensors may still be columns of the same rows, as in
 * one buffer [row][q, k, v, o]: then the parts of a row that each has are compared.
 */
#include <inttypes.h>
#include <stdio.h>

#include "api/api.h"
#include "api/check.h"
#include "plan/layout.h"

struct overlap_tensor {
    const char        *name;
    const char        *data; /* NULL: it is not there */
    const foci_layout *l;
    struct extents     e;
};

/* The heads from the first to the last that are read or, of gradients, written. */
static foci_range heads_used(const foci_plan *plan, unsigned input, bool kv)
{
    foci_range used = { INT64_MAX, 0 };

    for (int i = 0; i < plan->spec.n_groups; i++) {
        const struct plan_group *g = &plan->spec.groups[i];
        const int64_t            begin = kv ? g->kv0 : g->head0;

        if (!(stage_reads(&plan->stages[i]) & input)) continue;
        used.begin = min64(used.begin, begin);
        used.end = max64(used.end, begin + (kv ? g->kv_heads : g->heads));
    }
    return used;
}

/* A tensor of some heads of those it has. */
static struct overlap_tensor part_of(const char *name, const void *data,
                                     const foci_layout *l, struct extents e,
                                     foci_range heads, size_t el)
{
    struct overlap_tensor t = { name, data, l, e };

    if (!data || heads.begin >= heads.end)
        return (struct overlap_tensor){ .name = name };
    t.data += (size_t)(heads.begin * l->head) * el;
    t.e.heads = heads.end - heads.begin;
    return t;
}

/* Whether two tensors with rows equally far apart share no column of them.  All is in
 * bytes, from the first byte of `a`, modulo the distance of rows. */
static bool columns_apart(const struct overlap_tensor *a,
                          const struct overlap_tensor *b, size_t el)
{
    const int64_t  row = a->l->row, size = (int64_t)el;
    const int64_t  width_a = a->e.dim + a->l->head * (a->e.heads - 1);
    const int64_t  width_b = b->e.dim + b->l->head * (b->e.heads - 1);
    const intptr_t apart = (intptr_t)b->data - (intptr_t)a->data;

    if (row < 1 || b->l->row != row || width_a > row || width_b > row) return false;
    if ((a->e.batch > 1 && a->l->batch % row) || (b->e.batch > 1 && b->l->batch % row))
        return false;
    const int64_t at = ((int64_t)apart % (row * size) + row * size) % (row * size);
    return at >= width_a * size && at + width_b * size <= row * size;
}

static bool meet(const struct overlap_tensor *a, const struct overlap_tensor *b,
                 size_t el)
{
    if (!a->data || !b->data) return false;
    const uintptr_t from_a = (uintptr_t)a->data, from_b = (uintptr_t)b->data;
    const uintptr_t end_a = from_a + (size_t)layout_span(a->l, a->e) * el;
    const uintptr_t end_b = from_b + (size_t)layout_span(b->l, b->e) * el;

    return from_a < end_b && from_b < end_a && !columns_apart(a, b, el);
}

static foci_status refuse(const struct overlap_tensor *a,
                          const struct overlap_tensor *b, char *text, size_t cap)
{
    snprintf(text, cap, "%s overlaps %s: outputs need memory of their own", a->name,
             b->name);
    return FOCI_ERR_ARG;
}

/* Outputs against inputs and against the outputs before them. */
static foci_status check(const struct overlap_tensor *outs, int n_outs,
                         const struct overlap_tensor *ins, int n_ins, size_t el,
                         char *text, size_t cap)
{
    for (int o = 0; o < n_outs; o++) {
        for (int i = 0; i < n_ins; i++)
            if (meet(&outs[o], &ins[i], el))
                return refuse(&outs[o], &ins[i], text, cap);
        for (int i = 0; i < o; i++)
            if (meet(&outs[o], &outs[i], el))
                return refuse(&outs[o], &outs[i], text, cap);
    }
    return FOCI_OK;
}

foci_status overlap_check(const foci_plan *plan, const foci_io *io,
                          const foci_grads *grads, char *text, size_t cap)
{
    const foci_problem         *p = &plan->p;
    const size_t                el = foci_dtype_bytes(p->dtype);
    const bool                  all = grads && !grads->skip_unread;
    const foci_range            heads = { 0, p->heads }, kv_heads = { 0, p->kv_heads };
    const foci_range            one = { 0, p->dim_x ? 1 : 0 };
    const foci_range            q = heads_used(plan, FOCI_READ_Q, false);
    const foci_range            k = heads_used(plan, FOCI_READ_K, true);
    const foci_range            v = heads_used(plan, FOCI_READ_V, true);
    const struct overlap_tensor ins[] = {
        part_of("io.q", io->q, &p->q, extents_q(p), q, el),
        part_of("io.k", io->k, &p->k, extents_k(p), k, el),
        part_of("io.v", io->v, &p->v, extents_v(p), v, el),
        part_of("io.x", io->x, &p->x, extents_x(p), one, el),
        part_of("io.o", io->o, &p->o, extents_o(p), heads, el),
        part_of("grads.d_o", grads ? grads->d_o : NULL, &p->o, extents_o(p), heads, el),
    };
    enum { N_READ = 4, N_ALL = sizeof ins / sizeof *ins };

    if (!grads) return check(&ins[N_READ], 1, ins, N_READ, el, text, cap);
    const struct overlap_tensor outs[] = {
        part_of("grads.dq", grads->dq, &p->q, extents_q(p), all ? heads : q, el),
        part_of("grads.dk", grads->dk, &p->k, extents_k(p), all ? kv_heads : k, el),
        part_of("grads.dv", grads->dv, &p->v, extents_v(p), all ? kv_heads : v, el),
        part_of("grads.dx", grads->dx, &p->x, extents_x(p), one, el),
    };
    enum { N_WRITTEN = sizeof outs / sizeof *outs };

    for (int i = 0; i < N_WRITTEN; i++)
        if (outs[i].data && layout_overlaps(outs[i].l, outs[i].e)) {
            snprintf(text, cap,
                     "%s is wanted, and its rows overlap: strides %" PRId64 ", %" PRId64
                     ", %" PRId64 " of batch, row and head",
                     outs[i].name, outs[i].l->batch, outs[i].l->row, outs[i].l->head);
            return FOCI_ERR_ARG;
        }
    return check(outs, N_WRITTEN, ins, N_ALL, el, text, cap);
}
