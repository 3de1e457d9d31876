/* linear_stubs.c -- stands in for parts of the engine that are not there yet. */
#include "engine/linear.h"

#define WEAK __attribute__((weak))

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
