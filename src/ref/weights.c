/* weights.c -- from the logits x of a row to its weights a, and the way back.
 *
 *     softmax   a_j = e^x_j / (e^sink + sum_t e^x_t)
 *     l2norm    a_j = e^x_j / sqrt(sum_t e^(2 x_t))
 *     relu2     a_j = max(x_j, 0)^2 / n
 *
 * Exponentials are taken relative to the largest, which leaves a as it is.  lse is
 * the log of what weights are divided by: the sum, the root, n.  A row that sees
 * nothing, or whose divisor would be 0, is empty: weights 0, and lse -inf, or the
 * sink's logit where there is one.
 */
#include <math.h>

#include "ref/ref.h"

/* NaN if any is. */
static double largest(const struct ref_head *h, const struct ref_row *r)
{
    double m = -INFINITY;
    for (int64_t j = 0; j < h->cols; j++)
        if (r->times[j] && (r->x[j] > m || isnan(r->x[j]))) m = r->x[j];
    return m;
}

static void softmax(const struct ref_head *h, struct ref_row *r, double m)
{
    const double sink = h->sink < 0 ? -INFINITY : h->p->call->params[h->sink];
    double       sum = 0;

    if (sink > m) m = sink;
    if (m == -INFINITY) return;
    r->a_sink = exp(sink - m);
    for (int64_t j = 0; j < h->cols; j++)
        if (r->times[j]) sum += exp(r->x[j] - m);
    sum += r->a_sink;
    r->a_sink /= sum;
    r->lse = m + log(sum);
    for (int64_t j = 0; j < h->cols; j++)
        if (r->times[j]) r->a[j] = exp(r->x[j] - m) / sum;
}

static void l2norm(const struct ref_head *h, struct ref_row *r, double m)
{
    double sum = 0;

    if (m == -INFINITY) return;
    for (int64_t j = 0; j < h->cols; j++)
        if (r->times[j]) sum += exp(2 * (r->x[j] - m));
    r->lse = m + log(sum) / 2;
    for (int64_t j = 0; j < h->cols; j++)
        if (r->times[j]) r->a[j] = exp(r->x[j] - m) / sqrt(sum);
}

static void relu2(const struct ref_head *h, struct ref_row *r)
{
    if (r->visible == 0) return;
    r->lse = log(r->n);
    for (int64_t j = 0; j < h->cols; j++) {
        if (!r->times[j]) continue;
        const double x = r->x[j] < 0 ? 0 : r->x[j];
        r->a[j] = x * x / r->n;
    }
}

void ref_weigh(const struct ref_head *h, struct ref_row *r)
{
    const double m = largest(h, r);

    r->a_sink = 0;
    r->lse = -INFINITY;
    for (int64_t j = 0; j < h->cols; j++)
        r->a[j] = 0;
    switch (h->mech.def->weigh) {
    case FOCI_WEIGH_SOFTMAX: softmax(h, r, m); break;
    case FOCI_WEIGH_L2NORM: l2norm(h, r, m); break;
    case FOCI_WEIGH_RELU2: relu2(h, r); break;
    }
}

double ref_weigh_back(const struct ref_head *h, const struct ref_row *r, double mean)
{
    if (r->visible == 0) return 0; /* whatever g_i is */

    for (int64_t j = 0; j < h->cols; j++) {
        if (!r->times[j]) continue;
        const double a = r->a[j], da = r->da[j];
        switch (h->mech.def->weigh) {
        case FOCI_WEIGH_SOFTMAX: r->dx[j] = a * (da - mean); break;
        case FOCI_WEIGH_L2NORM: r->dx[j] = a * (da - a * mean); break;
        case FOCI_WEIGH_RELU2:
            r->dx[j] = 2 * (r->x[j] < 0 ? 0 : r->x[j]) * da / r->n;
            break;
        }
    }
    return -r->a_sink * mean;
}
