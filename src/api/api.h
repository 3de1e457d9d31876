/* api.h -- what the calls of foci.h share: making plans and checking executions. */
#ifndef FOCI_API_H
#define FOCI_API_H

#include "device/device.h"
#include "engine/engine.h"

/* plan.c: make the stages of a plan whose spec, problem and parameters are set; then add up
 * their sizes and cost. */
foci_status plan_make_stages(foci_plan *plan);
void        plan_free_stages(foci_plan *plan);
foci_status plan_add_up(foci_plan *plan);

/* routes.c: the plans of the routes of a stage, which share groups and parameters with the
 * plan they are part of. */
foci_status routes_make(foci_plan *plan, struct stage *s);
void        routes_free(foci_plan *plan, struct stage *s);

#endif
