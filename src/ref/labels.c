/* labels.c -- labels of queries and keys, by place or by what the rows hold.
 *
 *     nearest   t of the largest x . c_t
 *     angular   t of the largest of [x R_r, -x R_r], in round r
 *     floor     floor((x . a_r + b_r) / width), in round r
 *
 * Ties go to the smaller number.  x is a row as the mechanism's own map leaves it;
 * shared keys have the labels of their queries.
 */
#include <math.h>

#include "ref/ref.h"

void ref_labels_count(struct ref_head *h)
{
    const foci_mech *m = &h->mech;
    int64_t          shape[3];

    if (m->def->order) m->def->order(m, &h->order);
    if (h->order.rounds < 1) h->order.rounds = 1;
    h->n_labels = 0;
    if (!h->order.topk) return;
    ref_shape(h->p, -1, 0, shape);
    h->n_labels = shape[0];
}

/* sum of x_c y[c step] */
static double dot(const double *x, const double *y, int64_t step, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += x[c] * y[c * step];
    return sum;
}

static double nearest(const struct ref_head *h, const double *x)
{
    const double *c = h->p->call->params + ref_tensor(h->p, -1, 0);
    int64_t       shape[3], best = 0;

    ref_shape(h->p, -1, 0, shape);
    for (int64_t t = 1; t < shape[0]; t++)
        if (dot(x, c + t * h->dqk, 1, h->dqk) > dot(x, c + best * h->dqk, 1, h->dqk))
            best = t;
    return (double)best;
}

static double angular(const struct ref_head *h, int64_t round, const double *x)
{
    int64_t shape[3], best = 0;
    double  most = -INFINITY;

    ref_shape(h->p, -1, 0, shape);
    const int64_t n = shape[2];
    const double *r = h->p->call->params + ref_tensor(h->p, -1, 0) + round * h->dqk * n;
    for (int64_t t = 0; t < 2 * n; t++) {
        const double sign = t < n ? 1 : -1;
        const double y = sign * dot(x, r + t % n, n, h->dqk);
        if (y > most) {
            most = y;
            best = t;
        }
    }
    return (double)best;
}

static double stripe(const struct ref_head *h, int64_t round, const double *x)
{
    const double *params = h->p->call->params;
    const double *a = params + ref_tensor(h->p, -1, 1) + round * h->dqk;
    const int64_t b = ref_tensor(h->p, -1, 2);

    return floor((dot(x, a, 1, h->dqk) + (b < 0 ? 0 : params[b + round])) /
                 h->order.width);
}

static double label_of(const struct ref_head *h, int64_t round, const double *x)
{
    double *u = h->maps; /* nothing is mapped meanwhile */

    ref_map_own(h, x, u);
    switch (h->order.label) {
    case FOCI_LABEL_NEAREST: return nearest(h, u);
    case FOCI_LABEL_ANGULAR: return angular(h, round, u);
    case FOCI_LABEL_FLOOR: return stripe(h, round, u);
    default: return 0;
    }
}

/* NaN, which is no label, before the first place. */
static double label_at(const struct ref_head *h, int64_t place)
{
    return place < 0 ? NAN : (double)h->mech.def->place(&h->mech, place);
}

static void find_labels(struct ref_head *h, int64_t round)
{
    const bool place = h->order.label == FOCI_LABEL_PLACE;
    double    *of_q = h->label_q + round * h->nq, *of_k = h->label_k + round * h->nk;

    for (int64_t i = 0; i < h->nq; i++)
        of_q[i] = place ? label_at(h, i + h->nk - h->nq)
                        : label_of(h, round, h->p->q + i * h->dqk);
    for (int64_t j = 0; j < h->nk; j++) {
        if (place)
            of_k[j] = label_at(h, j);
        else if (h->order.shared_qk)
            of_k[j] = of_q[j];
        else
            of_k[j] = label_of(h, round, h->p->k + j * h->dqk);
    }
}

/* The chunk of each row when rows are sorted by label, then place. */
static void find_chunks(struct ref_head *h, int64_t round)
{
    const double *label = h->label_k + round * h->nk;

    for (int64_t j = 0; j < h->nk; j++) {
        int64_t before = 0;
        for (int64_t t = 0; t < h->nk; t++)
            before += label[t] < label[j] || (label[t] == label[j] && t < j);
        h->chunk[round * h->nk + j] = before / h->order.chunk;
    }
}

/* The rows that each label takes: those fewer than `take` others are nearer. */
static void find_topk(const struct ref_head *h, const double *x, int64_t n, double *fit,
                      uint8_t *taken)
{
    const double *c = h->p->call->params + ref_tensor(h->p, -1, 0);

    for (int64_t l = 0; l < h->n_labels; l++) {
        for (int64_t i = 0; i < n; i++) {
            ref_map_own(h, x + i * h->dqk, h->maps);
            fit[i] = dot(h->maps, c + l * h->dqk, 1, h->dqk);
        }
        for (int64_t i = 0; i < n; i++) {
            int64_t nearer = 0;
            for (int64_t t = 0; t < n; t++)
                nearer += fit[t] > fit[i] || (fit[t] == fit[i] && t < i);
            taken[l * n + i] = nearer < h->order.topk;
        }
    }
}

void ref_labels_find(struct ref_head *h)
{
    if (h->order.label == FOCI_LABEL_NONE) return;
    if (h->order.topk) {
        find_topk(h, h->p->q, h->nq, h->label_q, h->topk_q);
        find_topk(h, h->p->k, h->nk, h->label_k, h->topk_k);
        return;
    }
    for (int64_t r = 0; r < h->order.rounds; r++) {
        find_labels(h, r);
        if (h->order.chunk) find_chunks(h, r);
    }
}

uint32_t ref_labels_agree(const struct ref_head *h, int64_t i, int64_t j)
{
    uint32_t agree = 0;

    if (h->order.label == FOCI_LABEL_NONE) return 0;
    for (int64_t r = 0; r < h->order.rounds; r++) {
        const int64_t *chunk = h->chunk + r * h->nk;
        if (h->label_q[r * h->nq + i] != h->label_k[r * h->nk + j]) continue;
        if (h->order.chunk && chunk[j] != chunk[i] && chunk[j] != chunk[i] - 1)
            continue;
        agree++;
    }
    return agree;
}
