/* sources.c -- logits that do not come from pairs of q and k, and the way back.
 *
 *     table    R[i][j]
 *     factors  R1[i].R2[j]
 *     net      (relu(x_i W1 + b1) W2 + b2)[j]
 *     outer    a_i[floor(j/n)] b_i[j mod n], both such nets, b as long as n
 *
 * Of several, q.k one of them, logits are the sum of mix_t B_t, mix the softmax of learned
 * numbers.  A gradient d of the logits brings mix_t d to source t and <d, B_t> to mix_t.
 */
#include "ref/ref.h"

/* Roles of the tensors of a net, counted from that of its W1. */
enum { FIRST, FIRST_BIAS, SECOND, SECOND_BIAS };

static const unsigned flag_of[REF_SOURCES] = { FOCI_SOURCE_QK, FOCI_SOURCE_TABLE,
                                               FOCI_SOURCE_FACTORS, FOCI_SOURCE_NET,
                                               FOCI_SOURCE_OUTER };

static bool has(const struct ref_head *h, int source)
{
    return h->sources & flag_of[source];
}

/* Numbers of a tensor, as products read them. */
static double number(const struct ref_head *h, int64_t at)
{
    return ref_rounded(h->rounds, h->p->call->params[at]);
}

/* The offset of this head's part of a tensor; -1: there is none. */
static int64_t start_of(const struct ref_head *h, foci_role role)
{
    const int t = mech_tensor(h->p->mech, role);
    return t < 0 ? -1 : ref_tensor(h->p, -1, (size_t)t);
}

static int64_t columns(const struct ref_head *h, foci_role role)
{
    int64_t shape[3];
    ref_shape(h->p, -1, (size_t)mech_tensor(h->p->mech, role), shape);
    return shape[1];
}

/*
 * Nets: what is inside, then what comes out
 */

static int64_t inside(const struct ref_head *h, foci_role net)
{
    return columns(h, net + FIRST);
}

static int64_t outside(const struct ref_head *h, foci_role net)
{
    return columns(h, net + SECOND);
}

static void net_fill(const struct ref_head *h, foci_role net, int64_t i, double *y)
{
    const int64_t w1 = start_of(h, net + FIRST), b1 = start_of(h, net + FIRST_BIAS);
    const int64_t w2 = start_of(h, net + SECOND), b2 = start_of(h, net + SECOND_BIAS);
    const int64_t hidden = inside(h, net), n = outside(h, net);
    const int64_t dim = h->p->call->plan->p.dim_x;
    const double *x = h->p->x + i * dim, *params = h->p->call->params;
    double       *out = y + hidden;

    for (int64_t c = 0; c < hidden; c++) {
        double sum = params[b1 + c];
        for (int64_t t = 0; t < dim; t++)
            sum += ref_rounded(h->rounds, x[t]) * number(h, w1 + t * hidden + c);
        y[c] = ref_rounded(h->rounds, sum > 0 ? sum : 0);
    }
    for (int64_t j = 0; j < n; j++) {
        out[j] = params[b2 + j];
        for (int64_t c = 0; c < hidden; c++)
            out[j] += y[c] * number(h, w2 + c * n + j);
    }
}

/* From what net_fill() made and the gradient that follows the hidden part of dy. */
static void net_back(const struct ref_head *h, foci_role net, int64_t i,
                     const double *y, double *dy)
{
    const int64_t w1 = start_of(h, net + FIRST), b1 = start_of(h, net + FIRST_BIAS);
    const int64_t w2 = start_of(h, net + SECOND), b2 = start_of(h, net + SECOND_BIAS);
    const int64_t hidden = inside(h, net), n = outside(h, net);
    const int64_t dim = h->p->call->plan->p.dim_x;
    const double *x = h->p->x + i * dim, *dout = dy + hidden;
    double       *dx = h->p->dx + i * dim, *dparams = h->p->dparams;

    for (int64_t j = 0; j < n; j++)
        dparams[b2 + j] += dout[j];
    for (int64_t c = 0; c < hidden; c++) {
        dy[c] = 0;
        for (int64_t j = 0; j < n; j++) {
            const double d = ref_rounded(h->rounds, dout[j]);
            dy[c] += d * number(h, w2 + c * n + j);
            dparams[w2 + c * n + j] += d * y[c];
        }
        if (y[c] <= 0) continue;
        dparams[b1 + c] += dy[c];
        for (int64_t t = 0; t < dim; t++) {
            const double d = ref_rounded(h->rounds, dy[c]);
            dparams[w1 + t * hidden + c] += d * x[t];
            dx[t] += d * number(h, w1 + t * hidden + c);
        }
    }
}

static int64_t net_scratch(const struct ref_head *h, foci_role net)
{
    return inside(h, net) + outside(h, net);
}

int64_t ref_sources_scratch(const struct ref_head *h)
{
    if (h->sources & FOCI_SOURCE_OUTER)
        return net_scratch(h, FOCI_ROLE_W1A) + net_scratch(h, FOCI_ROLE_W1B);
    return h->sources & FOCI_SOURCE_NET ? net_scratch(h, FOCI_ROLE_W1) : 0;
}

/*
 * One row
 */

/* Queries are counted as keys are. */
static int64_t place_of(const struct ref_head *h, int64_t i)
{
    return i + h->nk - h->nq;
}

static void table_fill(const struct ref_head *h, int64_t i, double *to)
{
    const int64_t at =
        start_of(h, FOCI_ROLE_R) + place_of(h, i) * columns(h, FOCI_ROLE_R);
    for (int64_t j = 0; j < h->nk; j++)
        to[j] = h->p->call->params[at + j];
}

static void table_back(const struct ref_head *h, int64_t i, const double *d)
{
    const int64_t at =
        start_of(h, FOCI_ROLE_R) + place_of(h, i) * columns(h, FOCI_ROLE_R);
    for (int64_t j = 0; j < h->nk; j++)
        h->p->dparams[at + j] += d[j];
}

static void factors_fill(const struct ref_head *h, int64_t i, double *to)
{
    const int64_t rank = columns(h, FOCI_ROLE_R1);
    const int64_t r1 = start_of(h, FOCI_ROLE_R1) + place_of(h, i) * rank;
    const int64_t r2 = start_of(h, FOCI_ROLE_R2);

    for (int64_t j = 0; j < h->nk; j++) {
        to[j] = 0;
        for (int64_t c = 0; c < rank; c++)
            to[j] += number(h, r1 + c) * number(h, r2 + j * rank + c);
    }
}

static void factors_back(const struct ref_head *h, int64_t i, const double *d)
{
    const int64_t rank = columns(h, FOCI_ROLE_R1);
    const int64_t r1 = start_of(h, FOCI_ROLE_R1) + place_of(h, i) * rank;
    const int64_t r2 = start_of(h, FOCI_ROLE_R2);

    for (int64_t j = 0; j < h->nk; j++)
        for (int64_t c = 0; c < rank; c++) {
            const double by = ref_rounded(h->rounds, d[j]);
            h->p->dparams[r1 + c] += by * number(h, r2 + j * rank + c);
            h->p->dparams[r2 + j * rank + c] += by * number(h, r1 + c);
        }
}

static void outer_fill(const struct ref_head *h, int64_t i, double *to)
{
    double       *second = h->net + net_scratch(h, FOCI_ROLE_W1A);
    const double *a = h->net + inside(h, FOCI_ROLE_W1A);
    const double *b = second + inside(h, FOCI_ROLE_W1B);
    const int64_t n = outside(h, FOCI_ROLE_W1B);

    net_fill(h, FOCI_ROLE_W1A, i, h->net);
    net_fill(h, FOCI_ROLE_W1B, i, second);
    for (int64_t j = 0; j < h->nk; j++)
        to[j] = a[j / n] * b[j % n];
}

static void outer_back(const struct ref_head *h, int64_t i, const double *d)
{
    const int64_t next = net_scratch(h, FOCI_ROLE_W1A), n = outside(h, FOCI_ROLE_W1B);
    const int64_t a = inside(h, FOCI_ROLE_W1A), b = next + inside(h, FOCI_ROLE_W1B);

    for (int64_t t = 0; t < ref_sources_scratch(h); t++)
        h->dnet[t] = 0;
    for (int64_t j = 0; j < h->nk; j++) {
        h->dnet[a + j / n] += d[j] * h->net[b + j % n];
        h->dnet[b + j % n] += d[j] * h->net[a + j / n];
    }
    net_back(h, FOCI_ROLE_W1A, i, h->net, h->dnet);
    net_back(h, FOCI_ROLE_W1B, i, h->net + next, h->dnet + next);
}

static void dense_fill(const struct ref_head *h, int64_t i, double *to)
{
    net_fill(h, FOCI_ROLE_W1, i, h->net);
    for (int64_t j = 0; j < h->nk; j++)
        to[j] = h->net[inside(h, FOCI_ROLE_W1) + j];
}

static void dense_back(const struct ref_head *h, int64_t i, const double *d)
{
    const int64_t hidden = inside(h, FOCI_ROLE_W1);

    for (int64_t j = 0; j < outside(h, FOCI_ROLE_W1); j++)
        h->dnet[hidden + j] = j < h->nk ? d[j] : 0;
    net_back(h, FOCI_ROLE_W1, i, h->net, h->dnet);
}

/* By the numbers of flag_of; q.k is made elsewhere. */
static void (*const fill_of[REF_SOURCES])(const struct ref_head *, int64_t,
                                          double *) = { NULL, table_fill, factors_fill,
                                                        dense_fill, outer_fill };
static void (*const back_of[REF_SOURCES])(const struct ref_head *, int64_t,
                                          const double *) = { NULL, table_back,
                                                              factors_back, dense_back,
                                                              outer_back };

void ref_sources_fill(const struct ref_head *h, int64_t i)
{
    for (int s = 1; s < REF_SOURCES; s++)
        if (has(h, s)) fill_of[s](h, i, h->given + s * h->nk);
}

double ref_sources_sum(const struct ref_head *h, int64_t j)
{
    double sum = 0;

    for (int s = 1; s < REF_SOURCES; s++)
        if (has(h, s)) sum += h->mix[s] * h->given[s * h->nk + j];
    return sum;
}

double ref_sources_pairs(const struct ref_head *h)
{
    if (h->sources == FOCI_SOURCE_QK) return 1;
    return has(h, 0) ? h->mix[0] : 0;
}

void ref_sources_back(const struct ref_head *h, int64_t i)
{
    for (int s = 1; s < REF_SOURCES; s++) {
        double *b = h->given + s * h->nk;
        if (!has(h, s)) continue;
        for (int64_t j = 0; j < h->nk; j++) {
            h->dmix[s] += h->dgiven[j] * b[j];
            b[j] = h->mix[s] * h->dgiven[j];
        }
        back_of[s](h, i, b);
    }
}

/*
 * Mixtures
 */

void ref_sources_open(struct ref_head *h)
{
    const int64_t at = start_of(h, FOCI_ROLE_MIX);
    int           n = 0;

    if (h->sources == FOCI_SOURCE_QK) return;
    for (int s = 0; s < REF_SOURCES; s++)
        if (has(h, s)) h->mix[n] = at < 0 ? 0 : h->p->call->params[at + n], n++;
    ref_softmax(h->mix, n);
    for (int s = REF_SOURCES; s-- > 0;)
        h->mix[s] = has(h, s) ? h->mix[--n] : 0;
}

void ref_sources_close(const struct ref_head *h)
{
    const int64_t at = start_of(h, FOCI_ROLE_MIX);
    int           n = 0;

    if (h->sources == FOCI_SOURCE_QK || at < 0) return;
    ref_softmax_back(h->mix, h->dmix, REF_SOURCES);
    for (int s = 0; s < REF_SOURCES; s++)
        if (has(h, s)) h->p->dparams[at + n++] += h->dmix[s];
}
