/* levels.h -- every CPU level that tests can run on (specs.c). */
#ifndef FOCI_LEVELS_H
#define FOCI_LEVELS_H

#include "core/core.h"

/* Contexts of every CPU level there is, the best one last, with the mechanisms that
 * specs_register() makes known; NULL beyond. */
struct levels {
    foci_ctx *ctx[N_LEVELS + 1];
    int       n;
};
struct levels levels_make(int threads);
void          levels_free(struct levels *l);

#endif
