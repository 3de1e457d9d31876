/* walk.c -- every sequence and head of an execution in turn.
 *
 * Gradients of what heads share (keys and values, x, a given bias) are summed in double
 * over all of a sequence, or of the execution, and rounded once.
 */
#include <math.h>
#include <stdlib.h>

#include "ref/ref.h"

struct ref_walk {
    const struct ref_call   *call;
    const foci_problem      *p;
    const struct seq        *s;
    const struct plan_group *group;
    unsigned                 reads; /* what its heads do; other rows may not be there */
    int64_t                  head;

    double *q, *k, *v, *g, *o, *dq; /* of a head, packed */
    double *dk, *dv;                /* of all key/value heads, [head][row][dim] */
    double *x, *dx;                 /* [row][dim_x] */
    double *dparams, *dbias;        /* of the execution */
};

/* n * size zeros, or NULL. */
static double *doubles(int64_t n, int64_t size)
{
    size_t count;
    if (!mul_size((size_t)n, (size_t)size, &count)) return NULL;
    return calloc(count ? count : 1, sizeof(double));
}

static void walk_free(struct ref_walk *w)
{
    double *const all[] = { w->q,  w->k,  w->v, w->g,  w->o,       w->dq,
                            w->dk, w->dv, w->x, w->dx, w->dparams, w->dbias };
    for (size_t t = 0; t < sizeof all / sizeof *all; t++)
        free(all[t]);
}

static int64_t count_pairs(const foci_problem *p)
{
    return max64(p->mask_batch, 1) * max64(p->mask_heads, 1) * p->len_q * p->len_k;
}

static bool walk_alloc(struct ref_walk *w)
{
    const foci_problem *p = w->p;
    const bool          dbias = w->call->grads && w->call->grads->dbias;
    const int64_t       back = w->call->grads != NULL, dim_v = ref_dim_v(w->call);
    const struct {
        double **to;
        int64_t  n, size;
    } wants[] = {
        { &w->q, p->len_q, p->dim_qk },
        { &w->k, p->len_k, p->dim_qk },
        { &w->v, p->len_k, dim_v },
        { &w->g, p->len_q, dim_v },
        { &w->o, p->len_q, dim_v },
        { &w->dq, p->len_q, p->dim_qk },
        { &w->dk, back * p->kv_heads * p->len_k, p->dim_qk },
        { &w->dv, back * p->kv_heads * p->len_k, p->dim_v },
        { &w->x, p->len_q, p->dim_x },
        { &w->dx, p->len_q, p->dim_x },
        { &w->dparams, w->call->plan->n_floats, 1 },
        { &w->dbias, dbias ? count_pairs(p) : 0, 1 },
    };
    bool ok = true;
    for (size_t t = 0; t < sizeof wants / sizeof *wants; t++) {
        *wants[t].to = doubles(wants[t].n, wants[t].size);
        ok = ok && *wants[t].to;
    }
    return ok;
}

static void zero(double *x, int64_t n)
{
    for (int64_t t = 0; t < n; t++)
        x[t] = 0;
}

/* n rows of a tensor from row `first` of head h, to packed doubles. */
static void gather(const struct ref_walk *w, const void *from, foci_layout l,
                   int64_t first, int64_t h, int64_t n, int64_t d, double *to)
{
    for (int64_t i = 0; from && i < n; i++)
        for (int64_t t = 0; t < d; t++)
            to[i * d + t] =
                ref_load(w->call->type, from,
                         w->s->b * l.batch + (first + i) * l.row + h * l.head + t);
}

static void scatter(const struct ref_walk *w, void *to, foci_layout l, int64_t first,
                    int64_t h, int64_t n, int64_t d, const double *from)
{
    for (int64_t i = 0; to && i < n; i++)
        for (int64_t t = 0; t < d; t++)
            ref_store(w->call->type, to,
                      w->s->b * l.batch + (first + i) * l.row + h * l.head + t,
                      from[i * d + t]);
}

/* All rows of a tensor of the problem, those beyond a length too. */
static void clear(const struct ref_call *c, void *to, foci_layout l, int64_t heads,
                  int64_t rows, int64_t d)
{
    const foci_problem *p = &c->plan->p;

    for (int64_t b = 0; to && b < p->batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < rows; i++)
                for (int64_t t = 0; t < d; t++)
                    ref_store(c->type, to, b * l.batch + i * l.row + h * l.head + t, 0);
}

/* Element (first query, first key) of the head in a given mask or bias. */
static int64_t pair_offset(const struct ref_walk *w)
{
    const foci_problem *p = w->p;
    const int64_t       mh = p->mask_heads > 1 ? p->mask_heads : 1;
    const int64_t       b = p->mask_batch > 1 ? w->s->b : 0;

    return ((b * mh + (mh > 1 ? w->head : 0)) * p->len_q + w->s->q0) * p->len_k +
           w->s->k0;
}

/* The rows of the sequence that are computed; of packed documents those that begin the slice. */
static foci_range rows_of(const struct ref_walk *w)
{
    const struct ref_slice *slice = w->call->slice;
    foci_range              rows = { 0, w->s->nq };

    if (!slice) return rows;
    const int64_t first = slice->rows.begin - w->s->q0;
    rows.begin = first < 0 ? round_up(-first, slice->step) + first : first;
    rows.end = min64(slice->rows.end - w->s->q0, w->s->nq);
    return rows;
}

static struct ref_part part_of(const struct ref_walk *w)
{
    const struct ref_call   *c = w->call;
    const struct plan_group *g = w->group;
    const int64_t            pairs = pair_offset(w);
    const foci_range         rows = rows_of(w);
    const int64_t row = (w->s->b * w->p->heads + w->head) * w->p->len_q + w->s->q0;
    const int64_t to =
        c->slice ? (w->s->q0 + rows.begin - c->slice->rows.begin) / c->slice->step
                 : row;

    return (struct ref_part){
        .call = c,
        .seq = w->s,
        .mech = &g->mech,
        .param0 = g->param0,
        .mod_param = g->mod_param,
        .row = w->head - g->head0,
        .head = w->head,
        .index = w->head - g->head0,
        .heads = g->heads,
        .q = w->q,
        .k = w->k,
        .v = w->v,
        .x = w->x,
        .word_of = c->io->words ? c->io->words + w->s->b * w->p->len_q + w->s->q0 : NULL,
        .g = c->grads ? w->g : NULL,
        .o = w->o,
        .lse = c->lse ? c->lse + row : NULL,
        .rows = rows,
        .step = c->slice ? c->slice->step : 1,
        .weights = c->weights && rows.begin < rows.end
                       ? c->weights + to * w->p->len_k + w->s->k0
                       : NULL,
        .dq = w->dq,
        .dx = w->dx,
        .dparams = w->dparams,
        .mask = c->io->mask ? c->io->mask + pairs : NULL,
        .bias = c->io->bias ? c->io->bias + pairs : NULL,
        .dbias = c->grads && c->grads->dbias && c->io->bias ? w->dbias + pairs : NULL,
    };
}

/* Keys and values of route j of the head.  Neighbouring heads share all their sets. */
static void pick(void *user, int64_t j, struct ref_part *part)
{
    const struct ref_walk   *w = user;
    const struct plan_group *g = w->group;
    const foci_problem      *p = w->p;
    const foci_mech_def     *def = g->mech.def;
    const int64_t            sets = def->routes ? def->routes(&g->mech) : 1;
    const int64_t            share = g->heads * sets / g->kv_heads;
    const int64_t            kv = g->kv0 + (w->head - g->head0) / share * sets + j;

    if (w->reads & FOCI_READ_K)
        gather(w, w->call->io->k, p->k, w->s->k0, kv, w->s->nk, p->dim_qk, w->k);
    if (w->reads & FOCI_READ_V && !w->call->slice)
        gather(w, w->call->io->v, p->v, w->s->k0, kv, w->s->nk, p->dim_v, w->v);
    if (!w->call->grads) return;
    part->dk = w->dk + kv * p->len_k * p->dim_qk;
    part->dv = w->dv + kv * p->len_k * p->dim_v;
}

static foci_status run_head(struct ref_walk *w)
{
    const foci_mech *m = &w->group->mech;
    struct ref_part  part = part_of(w);

    if (m->def->engine != FOCI_ENGINE_ROUTED) {
        pick(w, 0, &part);
        return ref_part_run(&part);
    }
    return ref_routes_run(&(struct ref_routes){ .part = part,
                                                .inner = m->inner,
                                                .param0 = w->group->inner_param,
                                                .mod_param = w->group->inner_mod,
                                                .n = m->def->routes(m),
                                                .dim_x = w->p->dim_x,
                                                .top = mech_top_routes(m),
                                                .x = w->x,
                                                .dx = w->dx,
                                                .pick = pick,
                                                .user = w });
}

static foci_status one_head(struct ref_walk *w)
{
    const struct ref_call *c = w->call;
    const struct seq      *s = w->s;
    const foci_problem    *p = w->p;

    if (w->reads & FOCI_READ_Q)
        gather(w, c->io->q, p->q, s->q0, w->head, s->nq, p->dim_qk, w->q);
    if (c->grads) {
        gather(w, c->grads->d_o, p->o, s->q0, w->head, s->nq, p->dim_v, w->g);
        for (int64_t t = 0; t < s->nq * p->dim_v; t++)
            w->g[t] = ref_round(ref_operand_type(c), w->g[t]);
        zero(w->dq, s->nq * p->dim_qk);
    }
    TRY(run_head(w));
    if (c->grads)
        scatter(w, c->grads->dq, p->q, s->q0, w->head, s->nq, p->dim_qk, w->dq);
    else
        scatter(w, c->io->o, p->o, s->q0, w->head, s->nq, p->dim_v, w->o);
    return FOCI_OK;
}

/* Whether a slice leaves the head out. */
static bool left_out(const struct ref_walk *w)
{
    const struct ref_slice *slice = w->call->slice;

    return slice && (slice->head != w->head || slice->batch != w->s->b);
}

static foci_status one_seq(struct ref_walk *w)
{
    const struct ref_call *c = w->call;
    const struct seq      *s = w->s;
    const foci_problem    *p = w->p;
    const struct spec     *spec = &c->plan->spec;

    if (c->grads) {
        zero(w->dk, p->kv_heads * p->len_k * p->dim_qk);
        zero(w->dv, p->kv_heads * p->len_k * p->dim_v);
        zero(w->dx, p->len_q * p->dim_x);
    }
    gather(w, c->io->x, p->x, s->q0, 0, s->nq, p->dim_x, w->x);
    for (int g = 0; g < spec->n_groups; g++) {
        foci_group group = { FOCI_SIZED(foci_group) };
        TRY(foci_plan_group(c->plan, g, &group));
        w->group = &spec->groups[g];
        w->reads = group.reads;
        for (int64_t h = 0; h < group.heads; h++) {
            w->head = group.head0 + h;
            if (!left_out(w)) TRY(one_head(w));
        }
    }
    if (!c->grads) return FOCI_OK;

    for (int64_t kv = 0; kv < p->kv_heads; kv++) {
        scatter(w, c->grads->dk, p->k, s->k0, kv, s->nk, p->dim_qk,
                w->dk + kv * p->len_k * p->dim_qk);
        scatter(w, c->grads->dv, p->v, s->k0, kv, s->nk, p->dim_v,
                w->dv + kv * p->len_k * p->dim_v);
    }
    scatter(w, c->grads->dx, p->x, s->q0, 0, s->nq, p->dim_x, w->dx);
    return FOCI_OK;
}

static void clear_results(const struct ref_call *c)
{
    const foci_problem *p = &c->plan->p;
    int64_t             rows = p->batch * p->heads * p->len_q;

    if (c->grads) {
        clear(c, c->grads->dq, p->q, p->heads, p->len_q, p->dim_qk);
        clear(c, c->grads->dk, p->k, p->kv_heads, p->len_k, p->dim_qk);
        clear(c, c->grads->dv, p->v, p->kv_heads, p->len_k, p->dim_v);
        clear(c, c->grads->dx, p->x, 1, p->len_q, p->dim_x);
        return;
    }
    clear(c, c->io->o, p->o, p->heads, p->len_q, p->dim_v);
    for (int64_t t = 0; c->lse && t < rows; t++)
        c->lse[t] = -INFINITY;
    if (c->slice)
        rows = div_up(c->slice->rows.end - c->slice->rows.begin, c->slice->step);
    for (int64_t t = 0; c->weights && t < rows * p->len_k; t++)
        c->weights[t] = 0;
}

/* What the whole execution added up: of parameters, those that are trained. */
static void give_sums(const struct ref_walk *w)
{
    const struct ref_call *c = w->call;
    const foci_plan       *plan = c->plan;

    for (int t = 0; c->dparams && t < plan->n_params; t++) {
        const struct param *p = &plan->params[t];
        for (int64_t i = p->offset; i < p->offset + p->count; i++)
            if (p->keep == FOCI_KEEP_TRAINED) c->dparams[i] += w->dparams[i];
    }
    for (int64_t i = 0; c->grads->dbias && i < count_pairs(w->p); i++)
        c->grads->dbias[i] = (float)w->dbias[i];
}

foci_status ref_run(const struct ref_call *call)
{
    const foci_plan *plan = call->plan;
    struct ref_walk  w = { .call = call, .p = &plan->p };
    struct seq      *seqs = calloc((size_t)plan_max_seqs(plan) + 1, sizeof *seqs);
    foci_status      status = FOCI_OK;

    if (walk_alloc(&w) && seqs) {
        const int64_t n = plan_seqs(plan, call->io, seqs);
        clear_results(call);
        for (w.s = seqs; w.s < seqs + n && !status; w.s++)
            status = one_seq(&w);
        if (!status && call->grads) give_sums(&w);
    } else {
        status = FOCI_ERR_MEMORY;
    }
    walk_free(&w);
    free(seqs);
    return status ? ctx_fail(plan->ctx, status, "the judge cannot compute this: %s",
                             foci_status_text(status))
                  : FOCI_OK;
}
