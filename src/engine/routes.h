/* routes.h -- what passes and steps of a mixture of attentions share. */
#ifndef FOCI_ROUTES_H
#define FOCI_ROUTES_H

#include "plan/plan.h"

enum { MAX_ROUTES = 64 };

/* gate[routes] of head h of the stage for the hidden state x. */
void routes_gates(const foci_plan *plan, const struct stage *s, const float *params,
                  const char *x, int64_t h, double *gate);

#endif
