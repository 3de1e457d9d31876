/* groups.h -- a parsed spec: groups of heads, each with its mechanism and modifiers; and
 * what layers need of a plan beyond the public headers. */
#ifndef FOCI_GROUPS_H
#define FOCI_GROUPS_H

#include "core/core.h"

struct plan_group {
    int64_t   head0, heads; /* heads 0 while the count is open */
    int64_t   kv0, kv_heads;
    int       column; /* in the spec, from 1, for messages */
    foci_mech mech;
    int64_t   param0[FOCI_MAX_TENSORS];     /* offset of each tensor of the mechanism */
    int64_t (*mod_param)[FOCI_MAX_TENSORS]; /* [n_mods] of each tensor of a modifier */
    int64_t *list;                          /* the mechanism's copy of its list */

    /* The same of an inner mechanism.  Its tensors have rows for each route: head h of route
     * r is row r heads + h. */
    int64_t inner_param[FOCI_MAX_TENSORS];
    int64_t (*inner_mod)[FOCI_MAX_TENSORS];
    int64_t *inner_list;
};

struct spec {
    struct plan_group *groups;
    int                n_groups;
};

/* spec.c.  Parse `text`; the heads of a group without count stay 0. */
foci_status spec_parse(foci_ctx *ctx, const char *text, struct spec *spec);
/* spec_share: distribute heads and key/value heads over the groups (choosing their number
 * where it is 0) and fill in dims.  spec_assign: the same, and copy the lists. */
foci_status spec_share(foci_ctx *ctx, struct spec *spec, foci_problem *p);
foci_status spec_assign(foci_ctx *ctx, struct spec *spec, foci_problem *p);
void        spec_free(foci_ctx *ctx, struct spec *spec);
/* Print a spec with every argument spelled out, as snprintf would. */
int spec_print(const struct spec *spec, char *text, size_t cap);

/* params.c: where tensor t of modifier number `mod` of a group begins in the parameters of
 * the plan. */
int64_t plan_mod_tensor(const foci_plan *plan, int group, size_t mod, size_t t);

#endif
