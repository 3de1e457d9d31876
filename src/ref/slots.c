/* slots.c -- slots: means, copies or learned sums of runs of keys and values.
 *
 *     kbar_t = sum of uk_j / n,       vbar_t = sum of v_j / n,       j in the run
 *     kbar_t = sum of E_tc uk_(j+c),  vbar_t = sum of F_tc v_(j+c),  j its first
 *
 * A copy is the mean of a run of one.  Sums are of keys as the logits read them.
 */
#include "ref/ref.h"

/* Whether key j is one of the last `take` keys of its run, which are slots as they are. */
static bool copied(const foci_slots *s, int64_t j)
{
    return j % s->run_len >= s->run_len - s->tail;
}

/* Slots of n keys: copies of some of them, or one, or several learned ones, a run. */
static int64_t count(const foci_slots *s, int64_t n)
{
    int64_t slots = 0;

    for (int64_t j = 0; j < n; j++)
        if (s->tail)
            slots += copied(s, j);
        else if (j % s->run_len == 0)
            slots += s->learned ? s->learned : 1;
    return slots;
}

void ref_slots_count(struct ref_head *h)
{
    const foci_mech *m = &h->mech;

    h->n_levels = m->def->slots ? m->def->slots(m, h->levels) : 0;
    h->two_pass = m->def->two_pass && m->def->two_pass(m);
    h->first[0] = h->nk;
    for (int l = 0; l < h->n_levels; l++)
        h->first[l + 1] = h->first[l] + count(&h->levels[l], h->nk);
    h->cols = h->first[h->n_levels];
}

int ref_slot_level(const struct ref_head *h, int64_t column)
{
    int l = 0;
    while (column >= h->first[l + 1])
        l++;
    return l;
}

foci_range ref_slot_keys(const struct ref_head *h, int64_t column)
{
    const int         l = ref_slot_level(h, column);
    const foci_slots *s = &h->levels[l];
    int64_t           left = column - h->first[l], j = 0;

    if (s->tail) {
        while (!copied(s, j) || left--)
            j++;
        return (foci_range){ j, j + 1 };
    }
    j = left / (s->learned ? s->learned : 1) * s->run_len;
    return (foci_range){ j, j + s->run_len < h->nk ? j + s->run_len : h->nk };
}

/* The parameter that key j, or its value, has in a learned slot; -1: the slot is a
 * mean.  Without a tensor of their own values take that of keys. */
static int64_t learned_at(const struct ref_head *h, bool value, int64_t column,
                          int64_t j)
{
    const int         l = ref_slot_level(h, column);
    const foci_slots *s = &h->levels[l];

    if (!s->learned) return -1;
    const int64_t own = ref_tensor(h->p, -1, value);
    const int64_t at = own < 0 ? ref_tensor(h->p, -1, 0) : own;
    const int64_t row = (column - h->first[l]) % s->learned;
    return at + row * s->run_len + j % s->run_len;
}

double ref_slot_share(const struct ref_head *h, bool value, int64_t column, int64_t j)
{
    const foci_range keys = ref_slot_keys(h, column);
    const int64_t    at = learned_at(h, value, column, j);

    if (at < 0) return 1 / (double)(keys.end - keys.begin);
    return ref_rounded(h->rounds, h->p->call->params[at]);
}

static void round_rows(const struct ref_head *h, double *x, int64_t n)
{
    for (int64_t t = 0; t < n; t++)
        x[t] = ref_rounded(h->rounds, x[t]);
}

/* Row `at` of x is the sum of its keys' rows. */
static void sum_up(const struct ref_head *h, bool value, double *x, int64_t dim,
                   int64_t at)
{
    const foci_range of = ref_slot_keys(h, at);

    for (int64_t t = 0; t < dim; t++)
        x[at * dim + t] = 0;
    for (int64_t j = of.begin; j < of.end; j++) {
        const double share = ref_slot_share(h, value, at, j);
        for (int64_t t = 0; t < dim; t++)
            x[at * dim + t] += share * x[j * dim + t];
    }
}

/* And so are gradients shared out. */
static void share_out(const struct ref_head *h, bool value, const double *x, double *dx,
                      int64_t dim, int64_t at)
{
    const foci_range to = ref_slot_keys(h, at);

    if (h->levels[ref_slot_level(h, at)].learned) round_rows(h, dx + at * dim, dim);
    for (int64_t j = to.begin; j < to.end; j++) {
        const double  share = ref_slot_share(h, value, at, j);
        const int64_t param = learned_at(h, value, at, j);
        for (int64_t t = 0; t < dim; t++) {
            dx[j * dim + t] += share * dx[at * dim + t];
            if (param >= 0) h->p->dparams[param] += dx[at * dim + t] * x[j * dim + t];
        }
    }
}

/* Where sums are learned, their terms are rounded. */
void ref_slots_fill(struct ref_head *h)
{
    if (h->n_levels && h->levels[0].learned) {
        round_rows(h, h->uk, h->nk * h->du);
        round_rows(h, h->v, h->nk * h->dv);
    }
    for (int64_t c = h->nk; c < h->cols; c++) {
        sum_up(h, false, h->uk, h->du, c);
        if (!h->two_pass) sum_up(h, true, h->v, h->dv, c);
    }
}

void ref_slots_fold(struct ref_head *h)
{
    for (int64_t c = h->nk; c < h->cols; c++) {
        share_out(h, false, h->uk, h->duk, h->du, c);
        if (!h->two_pass) share_out(h, true, h->v, h->dv_cols, h->dv, c);
    }
}
