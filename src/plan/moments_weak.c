/* moments_weak.c -- stands in for moments.c until that is there. */
#include <math.h>

#include "plan/moments.h"

__attribute__((weak)) int64_t moments_room(int64_t d)
{
    (void)d;
    return 0;
}

__attribute__((weak)) void moments_solve(foci_moments kind, const struct moments *m,
                                         double *room, struct exponents *e)
{
    (void)kind;
    (void)room;
    e->a[0] = NAN * (double)m->d;
}
