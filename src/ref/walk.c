/* walk.c -- every sequence, key head and query head of an execution in turn.
 *
 * Query heads that share a key head follow one another, so their gradients of k and
 * v are summed in double and rounded once.
 */
#include <math.h>
#include <stdlib.h>

#include "ref/ref.h"

/* Room for one key head of one sequence. */
struct room {
    double        *q, *k, *v, *g; /* g: gradient of o; all packed */
    double        *uq, *uk, *duq, *duk;
    double        *o, *dq, *dk, *dv;
    double        *da, *dx;          /* [nk] */
    double        *number, *dnumber; /* [n_mods] */
    struct ref_row row;
};

struct walk {
    const struct ref_call *call;
    const foci_problem    *p;
    const struct seq      *s;
    struct room            room;
};

/* n * size doubles, or NULL. */
static double *doubles(int64_t n, int64_t size)
{
    size_t count;
    if (!mul_size((size_t)n, (size_t)size, &count)) return NULL;
    return calloc(count ? count : 1, sizeof(double));
}

static void room_free(struct room *r)
{
    double *const all[] = { r->q,       r->k,       r->v,     r->g,         r->uq,
                            r->uk,      r->duq,     r->duk,   r->o,         r->dq,
                            r->dk,      r->dv,      r->da,    r->dx,        r->number,
                            r->dnumber, r->row.dot, r->row.x, r->row.slope, r->row.a };
    for (size_t t = 0; t < sizeof all / sizeof *all; t++)
        free(all[t]);
    free(r->row.seen);
}

static bool room_make(struct room *r, const foci_plan *plan)
{
    const foci_problem *p = &plan->p;
    size_t              mods = 1;

    for (int g = 0; g < plan->spec.n_groups; g++)
        if (plan->spec.groups[g].mech.n_mods > mods)
            mods = plan->spec.groups[g].mech.n_mods;

    const struct {
        double **to;
        int64_t  n, size;
    } wants[] = {
        { &r->q, p->len_q, p->dim_qk },   { &r->k, p->len_k, p->dim_qk },
        { &r->v, p->len_k, p->dim_v },    { &r->g, p->len_q, p->dim_v },
        { &r->uq, p->len_q, p->dim_qk },  { &r->uk, p->len_k, p->dim_qk },
        { &r->duq, p->len_q, p->dim_qk }, { &r->duk, p->len_k, p->dim_qk },
        { &r->o, p->len_q, p->dim_v },    { &r->dq, p->len_q, p->dim_qk },
        { &r->dk, p->len_k, p->dim_qk },  { &r->dv, p->len_k, p->dim_v },
        { &r->da, p->len_k, 1 },          { &r->dx, p->len_k, 1 },
        { &r->number, (int64_t)mods, 1 }, { &r->dnumber, (int64_t)mods, 1 },
        { &r->row.dot, p->len_k, 1 },     { &r->row.x, p->len_k, 1 },
        { &r->row.slope, p->len_k, 1 },   { &r->row.a, p->len_k, 1 },
    };
    bool ok = true;
    for (size_t t = 0; t < sizeof wants / sizeof *wants; t++) {
        *wants[t].to = doubles(wants[t].n, wants[t].size);
        ok = ok && *wants[t].to;
    }
    r->row.seen = calloc((size_t)p->len_k + 1, 1);
    return ok && r->row.seen;
}

static void round_words(bool words, double *x, int64_t n)
{
    for (int64_t t = 0; t < n; t++)
        x[t] = ref_word(words, x[t]);
}

static void zero(double *x, int64_t n)
{
    for (int64_t t = 0; t < n; t++)
        x[t] = 0;
}

/* n rows of a tensor from row `first` of head h, to packed doubles. */
static void gather(const struct walk *w, const void *from, foci_layout l, int64_t first,
                   int64_t h, int64_t n, int64_t d, double *to)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t t = 0; t < d; t++)
            to[i * d + t] =
                ref_load(w->call->type, from,
                         w->s->b * l.batch + (first + i) * l.row + h * l.head + t);
}

static void scatter(const struct walk *w, void *to, foci_layout l, int64_t first,
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

static const struct group *group_of(const foci_plan *plan, int64_t h)
{
    const struct group *g = plan->spec.groups;
    while (h >= g->head0 + g->heads)
        g++;
    return g;
}

/* Element (first query, first key) of head h in a given mask or bias. */
static int64_t pair_offset(const struct walk *w, int64_t h)
{
    const foci_problem *p = w->p;
    const int64_t       mh = p->mask_heads > 1 ? p->mask_heads : 1;
    const int64_t       b = p->mask_batch > 1 ? w->s->b : 0;

    return ((b * mh + (mh > 1 ? h : 0)) * p->len_q + w->s->q0) * p->len_k + w->s->k0;
}

static struct ref_head head_make(struct walk *w, int64_t h, const struct group *g)
{
    const struct ref_call *c = w->call;
    struct room           *r = &w->room;

    for (size_t t = 0; t < g->mech.n_mods; t++) {
        const bool has = g->mech.mods[t].def->n_tensors > 0;
        r->number[t] = has ? c->params[g->mod_param[t][0] + h - g->head0] : 0;
        r->dnumber[t] = 0;
    }
    struct ref_head head = {
        .mech = &g->mech,
        .causal = (w->p->flags & FOCI_CAUSAL) != 0,
        .nq = w->s->nq,
        .nk = w->s->nk,
        .dqk = w->p->dim_qk,
        .dv = w->p->dim_v,
        .q = r->q,
        .k = r->k,
        .v = r->v,
        .number = r->number,
        .mask = c->io->mask ? c->io->mask + pair_offset(w, h) : NULL,
        .bias = c->io->bias ? c->io->bias + pair_offset(w, h) : NULL,
        .ld = w->p->len_k,
        .words = c->words,
        .uq = r->uq,
        .uk = r->uk,
    };
    ref_prepare(&head);
    return head;
}

/* o_i = sum over the keys seen of a_j v_j */
static void output_row(const struct walk *w, const struct ref_head *head, int64_t i)
{
    const struct ref_row *r = &w->room.row;
    double               *o = w->room.o + i * head->dv;

    zero(o, head->dv);
    for (int64_t j = 0; j < head->nk; j++)
        for (int64_t t = 0; r->seen[j] && t < head->dv; t++)
            o[t] += r->a[j] * head->v[j * head->dv + t];
}

static void report_row(const struct walk *w, int64_t h, int64_t i)
{
    const struct ref_call *c = w->call;
    const struct ref_row  *r = &w->room.row;
    const int64_t          head = w->s->b * w->p->heads + h;
    const int64_t          row = head * w->p->len_q + w->s->q0 + i;

    if (c->lse) c->lse[row] = r->lse;
    for (int64_t j = 0; c->weights && j < w->s->nk; j++)
        c->weights[row * w->p->len_k + w->s->k0 + j] = (float)r->a[j];
}

/* Through o_i = sum_j a_j v_j, the weights and the logits. */
static void backward_row(const struct walk *w, const struct ref_head *head, int64_t i)
{
    const struct room    *r = &w->room;
    const struct ref_row *row = &r->row;
    const double         *g = r->g + i * head->dv, *o = r->o + i * head->dv;
    const int             type = w->call->words ? (int)w->p->dtype : REF_F64;
    double                mean = 0;

    for (int64_t j = 0; j < head->nk; j++) {
        r->da[j] = 0;
        for (int64_t t = 0; row->seen[j] && t < head->dv; t++) {
            r->da[j] += g[t] * head->v[j * head->dv + t];
            r->dv[j * head->dv + t] += row->a[j] * g[t];
        }
    }
    for (int64_t t = 0; t < head->dv; t++)
        mean += g[t] * ref_round(type, o[t]);
    const double dsink = ref_weigh_back(head, row, r->da, mean, r->dx);
    if (head->sink >= 0) r->dnumber[head->sink] += dsink;
    ref_logits_back(head, i, row, r->dx, r->duq, r->duk, r->dnumber);
}

static void one_head(struct walk *w, int64_t h)
{
    const struct ref_call *c = w->call;
    const struct seq      *s = w->s;
    const foci_problem    *p = w->p;
    struct room           *r = &w->room;
    const struct group    *g = group_of(c->plan, h);

    gather(w, c->io->q, p->q, s->q0, h, s->nq, p->dim_qk, r->q);
    const struct ref_head head = head_make(w, h, g);
    if (c->grads) {
        gather(w, c->grads->d_o, p->o, s->q0, h, s->nq, p->dim_v, r->g);
        round_words(c->words, r->g, s->nq * p->dim_v);
        zero(r->duq, s->nq * p->dim_qk);
        zero(r->duk, s->nk * p->dim_qk);
        zero(r->dq, s->nq * p->dim_qk);
    }
    for (int64_t i = 0; i < s->nq; i++) {
        ref_logits(&head, i, &r->row);
        ref_weigh(&head, &r->row);
        for (int64_t j = 0; j < s->nk; j++)
            r->row.a[j] = ref_word(c->words, r->row.a[j]);
        output_row(w, &head, i);
        if (c->grads)
            backward_row(w, &head, i);
        else
            report_row(w, h, i);
    }
    if (!c->grads) {
        scatter(w, c->io->o, p->o, s->q0, h, s->nq, p->dim_v, r->o);
        return;
    }
    ref_prepare_back(&head, s->nq, r->q, r->duq, r->dq);
    ref_prepare_back(&head, s->nk, r->k, r->duk, r->dk);
    scatter(w, c->grads->dq, p->q, s->q0, h, s->nq, p->dim_qk, r->dq);
    for (size_t t = 0; c->dparams && t < g->mech.n_mods; t++)
        if (g->mech.mods[t].def->n_tensors > 0)
            c->dparams[g->mod_param[t][0] + h - g->head0] += r->dnumber[t];
}

/* The query heads of key head kh. */
static void key_head(struct walk *w, int64_t kh)
{
    const struct ref_call *c = w->call;
    const struct seq      *s = w->s;
    const foci_problem    *p = w->p;
    struct room           *r = &w->room;
    const int64_t          share = p->heads / p->kv_heads;

    gather(w, c->io->k, p->k, s->k0, kh, s->nk, p->dim_qk, r->k);
    gather(w, c->io->v, p->v, s->k0, kh, s->nk, p->dim_v, r->v);
    round_words(c->words, r->v, s->nk * p->dim_v);
    zero(r->dk, s->nk * p->dim_qk);
    zero(r->dv, s->nk * p->dim_v);
    for (int64_t h = kh * share; h < (kh + 1) * share; h++)
        one_head(w, h);
    if (!c->grads) return;

    zero(r->dk, min64(p->memory, s->nk) * p->dim_qk);
    zero(r->dv, min64(p->memory, s->nk) * p->dim_v);
    scatter(w, c->grads->dk, p->k, s->k0, kh, s->nk, p->dim_qk, r->dk);
    scatter(w, c->grads->dv, p->v, s->k0, kh, s->nk, p->dim_v, r->dv);
}

static void clear_results(const struct ref_call *c)
{
    const foci_problem *p = &c->plan->p;
    const int64_t       rows = p->batch * p->heads * p->len_q;

    if (c->grads) {
        clear(c, c->grads->dq, p->q, p->heads, p->len_q, p->dim_qk);
        clear(c, c->grads->dk, p->k, p->kv_heads, p->len_k, p->dim_qk);
        clear(c, c->grads->dv, p->v, p->kv_heads, p->len_k, p->dim_v);
        return;
    }
    clear(c, c->io->o, p->o, p->heads, p->len_q, p->dim_v);
    for (int64_t t = 0; c->lse && t < rows; t++)
        c->lse[t] = -INFINITY;
    for (int64_t t = 0; c->weights && t < rows * p->len_k; t++)
        c->weights[t] = 0;
}

foci_status ref_run(const struct ref_call *call)
{
    const foci_plan *plan = call->plan;
    struct walk      w = { .call = call, .p = &plan->p };
    struct seq      *seqs = calloc((size_t)plan_max_seqs(plan) + 1, sizeof *seqs);
    foci_status      status = FOCI_ERR_MEMORY;

    if (room_make(&w.room, plan) && seqs) {
        const int64_t n = plan_seqs(plan, call->io, seqs);
        clear_results(call);
        for (w.s = seqs; w.s < seqs + n; w.s++)
            for (int64_t kh = 0; kh < plan->p.kv_heads; kh++)
                key_head(&w, kh);
        status = FOCI_OK;
    }
    room_free(&w.room);
    free(seqs);
    return status;
}
