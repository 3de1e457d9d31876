/* layer_gates.c -- what layers do between their products and their plan.
 *
 *     gau:  v = silu(x Wv),  q = silu(x Wz) gamma_q + beta_q,  k likewise,
 *           y = (silu(x Wu) * o) Wo
 *     conv: v = a * sigmoid(b),  [a, b] = x Wi
 *
 * Hua et al., "Transformer quality in linear time" (2022); Wu et al., "Pay less attention
 * with lightweight and dynamic convolutions" (2019).  And outputs that are dropped, by the
 * hash of drop.c with -1 for the head.
 */
#include <math.h>

#include "ref/layer.h"

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x * sigmoid(x); }

static double silu_slope(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }

/* Element c of row i of entry b, and its gradient. */
struct gate_place {
    double *x, *d;
};

static struct gate_place place_at(const struct ref_pass *x, enum ref_at at, int64_t b,
                                  int64_t i, int64_t c)
{
    const struct ref_place *p = &x->at[at];
    return (struct gate_place){ ref_element(p, p->x, b, i, c),
                                ref_element(p, p->d, b, i, c) };
}

/* One element of v, q or k, of conv and of gau. */
typedef void gate_fn(const struct ref_pass *x, enum ref_at to, int64_t b, int64_t i,
                     int64_t c);

static void every(const struct ref_pass *x, enum ref_at to, gate_fn *gate)
{
    for (int64_t b = 0; b < x->p.batch; b++) {
        const foci_range rows = ref_valid(x, REF_X, b);
        for (int64_t i = rows.begin; i < rows.end; i++)
            for (int64_t c = 0; c < x->at[to].heads * x->at[to].dim; c++)
                gate(x, to, b, i, c);
    }
}

static void glu(const struct ref_pass *x, enum ref_at to, int64_t b, int64_t i,
                int64_t c)
{
    const int64_t n = x->at[to].heads * x->at[to].dim;
    *place_at(x, to, b, i, c).x =
        ref_round(x->place, *place_at(x, REF_U, b, i, c).x *
                                sigmoid(*place_at(x, REF_U, b, i, n + c).x));
}

static void glu_back(const struct ref_pass *x, enum ref_at to, int64_t b, int64_t i,
                     int64_t c)
{
    const int64_t           n = x->at[to].heads * x->at[to].dim;
    const struct gate_place v = place_at(x, REF_U, b, i, c),
                            gate = place_at(x, REF_U, b, i, n + c);
    const double s = sigmoid(*gate.x);
    const double d = ref_round(x->place, *place_at(x, to, b, i, c).d);

    *v.d += d * s;
    *gate.d += d * *v.x * s * (1 - s);
}

static void bend(const struct ref_pass *x, enum ref_at to, int64_t b, int64_t i,
                 int64_t c)
{
    *place_at(x, to, b, i, c).x =
        ref_round(x->place, silu(*place_at(x, REF_W, b, i, c).x));
}

static void bend_back(const struct ref_pass *x, enum ref_at to, int64_t b, int64_t i,
                      int64_t c)
{
    const struct gate_place from = place_at(x, REF_W, b, i, c);
    *from.d += ref_round(x->place, *place_at(x, to, b, i, c).d) * silu_slope(*from.x);
}

static void stretch(const struct ref_pass *x, enum ref_at to, int64_t b, int64_t i,
                    int64_t c)
{
    const double *gamma = x->call->params + x->gamma[to == REF_K];
    const double *beta = x->call->params + x->beta[to == REF_K];

    *place_at(x, to, b, i, c).x =
        ref_round(x->place, silu(*place_at(x, REF_Z, b, i, c).x) * gamma[c] + beta[c]);
}

static void stretch_back(const struct ref_pass *x, enum ref_at to, int64_t b, int64_t i,
                         int64_t c)
{
    const int64_t gamma = x->gamma[to == REF_K] + c, beta = x->beta[to == REF_K] + c;
    const struct gate_place z = place_at(x, REF_Z, b, i, c);
    const double            d = ref_round(x->place, *place_at(x, to, b, i, c).d);

    *z.d += d * x->call->params[gamma] * silu_slope(*z.x);
    if (!x->call->dparams) return;
    x->call->dparams[gamma] += d * silu(*z.x);
    x->call->dparams[beta] += d;
}

void ref_gates_in(const struct ref_pass *x)
{
    if (x->p.kind == FOCI_LAYER_CONV) every(x, REF_V, glu);
    if (x->p.kind != FOCI_LAYER_GAU) return;
    every(x, REF_V, bend);
    if (x->gamma[0] >= 0) every(x, REF_Q, stretch);
    if (x->gamma[1] >= 0) every(x, REF_K, stretch);
}

void ref_gates_in_back(const struct ref_pass *x)
{
    if (x->p.kind == FOCI_LAYER_CONV) every(x, REF_V, glu_back);
    if (x->p.kind != FOCI_LAYER_GAU) return;
    every(x, REF_V, bend_back);
    if (x->gamma[0] >= 0) every(x, REF_Q, stretch_back);
    if (x->gamma[1] >= 0) every(x, REF_K, stretch_back);
}

static void open_gate(const struct ref_pass *x, enum ref_at to, int64_t b, int64_t i,
                      int64_t c)
{
    *place_at(x, to, b, i, c).x =
        ref_round(x->place, silu(*place_at(x, REF_U, b, i, c).x) *
                                *place_at(x, REF_O, b, i, c).x);
}

static void open_gate_back(const struct ref_pass *x, enum ref_at to, int64_t b,
                           int64_t i, int64_t c)
{
    const struct gate_place u = place_at(x, REF_U, b, i, c),
                            o = place_at(x, REF_O, b, i, c);
    const double d = ref_round(x->place, *place_at(x, to, b, i, c).d);

    *u.d += d * *o.x * silu_slope(*u.x);
    *o.d += d * silu(*u.x);
}

void ref_gates_out(const struct ref_pass *x)
{
    if (x->p.kind == FOCI_LAYER_GAU) every(x, REF_G, open_gate);
}

void ref_gates_out_back(const struct ref_pass *x)
{
    if (x->p.kind == FOCI_LAYER_GAU) every(x, REF_G, open_gate_back);
}

static uint64_t hash(uint64_t key, uint64_t number)
{
    uint64_t z = key + UINT64_C(0x9E3779B97F4A7C15) * (number + 1);

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

double ref_keep_out(const struct ref_pass *x, int64_t b, int64_t i, int64_t c)
{
    const double p = x->p.output_dropout;
    uint64_t     key = hash(x->call->io->dropout_seed, (uint64_t)b);

    key = hash(key, UINT64_MAX); /* the head -1 */
    key = hash(key, (uint64_t)i);
    if (p > 0 && (double)(hash(key, (uint64_t)c) >> 11) * 0x1p-53 < p) return 0;
    return 1 / (1 - p);
}
