/* part.c -- one mechanism on one head of one sequence: open it, run its rows, and bring
 * the gradients home. */
#include <stdlib.h>

#include "ref/ref.h"

void ref_shape(const struct ref_part *p, int mod, size_t t, int64_t shape[3])
{
    const foci_mech       *m = p->mech;
    const double          *arg = mod < 0 ? m->arg : m->mods[mod].arg;
    const foci_tensor_def *def =
        mod < 0 ? &m->def->tensors[t] : &m->mods[mod].def->tensors[t];

    for (int d = 0; d < 3; d++)
        shape[d] = 1;
    if (def->n_dims) def->shape(m, arg, shape);
}

int64_t ref_tensor(const struct ref_part *p, int mod, size_t t)
{
    const size_t n =
        mod < 0 ? p->mech->def->n_tensors : p->mech->mods[mod].def->n_tensors;
    int64_t shape[3];

    if (t >= n) return -1;
    const int64_t at = mod < 0 ? p->param0[t] : p->mod_param[mod][t];
    if (at < 0) return -1;
    ref_shape(p, mod, t, shape);
    return at + p->row * shape[0] * shape[1] * shape[2];
}

double *ref_doubles(struct arena *a, int64_t rows, int64_t dim)
{
    size_t n;
    if (!mul_size((size_t)rows, (size_t)dim, &n) || n > INT64_MAX) {
        a->used = SIZE_MAX;
        return NULL;
    }
    return arena_alloc(a, (int64_t)n, sizeof(double));
}

static void carve_row(struct ref_row *r, int64_t cols, struct arena *a)
{
    r->times = arena_alloc(a, cols, sizeof *r->times);
    r->held = arena_alloc(a, cols, sizeof *r->held);
    r->s = ref_doubles(a, cols, 1);
    r->x = ref_doubles(a, cols, 1);
    r->slope = ref_doubles(a, cols, 1);
    r->a = ref_doubles(a, cols, 1);
    r->keep = ref_doubles(a, cols, 1);
    r->da = ref_doubles(a, cols, 1);
    r->dx = ref_doubles(a, cols, 1);
}

static void carve_all(struct ref_head *h, struct arena *a)
{
    const int64_t rounds = h->order.rounds;

    h->uq = ref_doubles(a, h->nq, h->du);
    h->duq = ref_doubles(a, h->nq, h->du);
    h->uk = ref_doubles(a, h->cols, h->du);
    h->duk = ref_doubles(a, h->cols, h->du);
    h->v = ref_doubles(a, h->cols, h->dv);
    h->dv_cols = ref_doubles(a, h->cols, h->dv);
    h->maps = ref_doubles(a, REF_MAPS + 3, h->dqk);
    h->far = ref_doubles(a, h->nq + h->nk, 1);
    h->dfar = ref_doubles(a, h->nq + h->nk, 1);
    h->spread = ref_doubles(a, h->nk, 1);
    h->o = ref_doubles(a, h->dv, 1);
    h->g = ref_doubles(a, h->dv, 1);
    carve_row(&h->row, h->cols, a);
    for (int key = 0; h->mech.def->map == FOCI_MAP_PROJECT && key < 2; key++)
        h->project[key] = ref_doubles(a, h->dqk, h->du);
    if (h->order.label) {
        h->label_q = ref_doubles(a, rounds, h->nq);
        h->label_k = ref_doubles(a, rounds, h->nk);
        h->chunk = arena_alloc(a, rounds * h->nk, sizeof *h->chunk);
        h->topk_q = arena_alloc(a, h->n_labels * h->nq, 1);
        h->topk_k = arena_alloc(a, h->n_labels * h->nk, 1);
    }
    if (h->sources != FOCI_SOURCE_QK) {
        h->mix = ref_doubles(a, REF_SOURCES, 1);
        h->dmix = ref_doubles(a, REF_SOURCES, 1);
        h->given = ref_doubles(a, REF_SOURCES, h->nk);
        h->dgiven = ref_doubles(a, h->nk, 1);
        h->net = ref_doubles(a, ref_sources_scratch(h), 1);
        h->dnet = ref_doubles(a, ref_sources_scratch(h), 1);
    }
    if (h->two_pass) {
        h->y = ref_doubles(a, h->nq, h->dv);
        h->dy = ref_doubles(a, h->nq, h->dv);
        if (h->p->weights) h->paths = ref_doubles(a, h->cols - h->nk, h->nk);
    }
}

static void round_all(bool rounds, double *x, int64_t n)
{
    for (int64_t t = 0; rounds && t < n; t++)
        x[t] = ref_rounded(rounds, x[t]);
}

/* Keys of shared rows are their queries. */
static const double *key_row(const struct ref_head *h, int64_t j)
{
    return (h->order.shared_qk ? h->p->q : h->p->k) + j * h->dqk;
}

static void part_fill(struct ref_head *h)
{
    ref_map_open(h);
    for (int64_t i = 0; i < h->nq; i++)
        ref_map(h, false, i + h->nk - h->nq, h->p->q + i * h->dqk, h->uq + i * h->du);
    for (int64_t j = 0; j < h->nk; j++)
        ref_map(h, true, j, key_row(h, j), h->uk + j * h->du);
    for (int64_t t = 0; t < h->nk * h->dv; t++)
        h->v[t] = h->p->v[t];
    ref_slots_fill(h);
    /* With vectors of txl added to them queries round later: see logits.c. */
    round_all(h->rounds && h->txl_r < 0, h->uq, h->nq * h->du);
    round_all(h->rounds, h->uk, h->cols * h->du);
    round_all(h->rounds, h->v, h->cols * h->dv);
    ref_labels_find(h);
    ref_distances(h);
    ref_sources_open(h);
}

int64_t ref_memory(const struct ref_part *p)
{
    const foci_mech    *m = p->mech;
    const foci_problem *all = &p->call->plan->p;

    if (all->flags & FOCI_FLAG_MEMORY_GRADS) return 0;
    return max64(all->memory, m->def->memory ? m->def->memory(m) : 0);
}

static void bring_home(struct ref_head *h)
{
    const struct ref_part *p = h->p;
    double                *dk = h->order.shared_qk ? p->dq : p->dk;
    const int64_t          memory = ref_memory(p);

    ref_slots_fold(h);
    ref_distances_back(h);
    for (int64_t i = 0; i < h->nq; i++)
        ref_map_back(h, false, i + h->nk - h->nq, p->q + i * h->dqk, h->duq + i * h->du,
                     p->dq + i * h->dqk);
    for (int64_t j = 0; j < h->nk; j++)
        ref_map_back(h, true, j, key_row(h, j), h->duk + j * h->du,
                     j < memory ? NULL : dk + j * h->dqk);
    for (int64_t t = memory * h->dv; t < h->nk * h->dv; t++)
        p->dv[t] += h->dv_cols[t];
    ref_sources_close(h);
}

static void part_run(struct ref_head *h)
{
    part_fill(h);
    if (h->two_pass)
        ref_rows_two_pass(h);
    else if (h->order.topk)
        ref_rows_topk(h);
    else
        ref_rows_plain(h);
    if (h->p->g) bring_home(h);
}

static foci_status run_exact(const struct ref_part *p)
{
    const foci_problem *problem = &p->call->plan->p;
    struct ref_head     h = { .p = p,
                              .mech = *p->mech,
                              .causal = (problem->flags & FOCI_FLAG_CAUSAL) != 0,
                              .rounds = p->call->rounds,
                              .nq = p->seq->nq,
                              .nk = p->seq->nk,
                              .dqk = problem->dim_qk,
                              .dv = ref_dim_v(p->call),
                              .ld = problem->len_k };
    struct arena        a = { 0 };

    h.du = mech_width(&h.mech);
    h.sources = mech_sources(&h.mech);
    if (h.mech.def->by_length) {
        h.mech.dims.len = h.nk;
        h.mech.dims.len_q = h.nq;
    }
    ref_slots_count(&h);
    ref_labels_count(&h);
    ref_modifiers(&h);
    if ((h.two_pass || h.order.shared_qk) && h.nq != h.nk) return FOCI_ERR_ARG;

    carve_all(&h, &a);
    if (!arena_ok(&a)) return FOCI_ERR_MEMORY;
    char *memory = calloc(a.used + 1, 1);
    if (!memory) return FOCI_ERR_MEMORY;
    a = (struct arena){ .base = memory };
    carve_all(&h, &a);
    part_run(&h);
    free(memory);
    return FOCI_OK;
}

foci_status ref_part_run(const struct ref_part *p)
{
    switch (p->mech->def->engine) {
    case FOCI_ENGINE_LINEAR: return ref_linear_run(p);
    case FOCI_ENGINE_POSITIONAL: return ref_positional_run(p);
    case FOCI_ENGINE_NYSTROM: return ref_landmarks_run(p);
    case FOCI_ENGINE_MEMFORMER: return ref_recall_run(p);
    default: return run_exact(p);
    }
}
