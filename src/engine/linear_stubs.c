/* linear_stubs.c -- stands in for parts of the engine that are not there yet. */
#include <math.h>

#include "engine/linear.h"

#define WEAK __attribute__((weak))

WEAK size_t linear_forward_bytes(const foci_plan *plan, const struct stage *s)
{
    (void)plan;
    (void)s;
    return 0;
}

WEAK void linear_forward(const foci_plan *plan, const struct stage *s,
                         const foci_io *io, float *saved)
{
    (void)plan;
    (void)s;
    (void)io;
    (void)saved;
}

WEAK size_t linear_backward_bytes(const foci_plan *plan, const struct stage *s)
{
    (void)plan;
    (void)s;
    return 0;
}

WEAK void linear_backward(const foci_plan *plan, const struct stage *s,
                          const foci_io *io, const float *saved, const foci_grads *g)
{
    (void)plan;
    (void)s;
    (void)io;
    (void)saved;
    (void)g;
}

WEAK foci_status linear_advance(const foci_plan *plan, const struct stage *s,
                                const foci_io *io, float *params)
{
    (void)plan;
    (void)s;
    (void)io;
    (void)params;
    return FOCI_OK;
}

WEAK foci_status linear_calibrate(const foci_plan *plan, const struct stage *s,
                                  const foci_io *io, float *params)
{
    return linear_advance(plan, s, io, params);
}

WEAK foci_status linear_check(const foci_plan *plan, const struct stage *s,
                              const foci_io *io, char *text, size_t cap)
{
    (void)plan;
    (void)s;
    (void)io;
    (void)text;
    (void)cap;
    return FOCI_OK;
}

WEAK void linear_random_take(struct linear *x, struct arena *a)
{
    (void)x;
    (void)a;
}

WEAK void linear_turn(const struct linear *x, const struct chunk *c, const float *f,
                      float *out, bool back)
{
    (void)x;
    (void)c;
    (void)f;
    (void)out;
    (void)back;
}

static float plain(foci_feature feature, float v, float scale)
{
    switch (feature) {
    case FOCI_FEATURE_ONE: return 1;
    case FOCI_FEATURE_ELU: return v > 0 ? v + 1 : expf(v);
    case FOCI_FEATURE_RELU: return v > 0 ? v : 0;
    default: return v * scale;
    }
}

WEAK void linear_map(const struct linear *x, const struct chunk *c, bool keys,
                     struct features *t)
{
    const int   r0 = keys ? 0 : c->r0, r1 = keys ? c->n : c->r1;
    const float scale = keys ? 1 : (float)x->scale;

    for (int r = 0; r < x->m_pad; r++)
        for (int i = 0; i < CHUNK; i++) {
            const bool  has = i >= r0 && i < r1 && r < x->m;
            const float v = r < x->dq ? t->x[i * x->ldq + r] : 0;
            t->f[r * CHUNK + i] =
                has ? plain(x->l->feature, v, scale) : (x->logs ? -INFINITY : 0);
        }
}
