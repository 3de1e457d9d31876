/* floors.c -- the accuracy of trivial rules on a generated task. */
#include <stdlib.h>

#include "cli/floors.h"

int floors_read(const struct args *a, foci_ctx *ctx, foci_data *data, int64_t count,
                struct floors *floors)
{
    const int   n = foci_data_floor_count(data);
    foci_status status = FOCI_OK;

    *floors = (struct floors){ .floor = need((size_t)n + 1, sizeof *floors->floor) };
    for (; floors->n < n && !status; floors->n += !status) {
        floors->floor[floors->n].size = sizeof *floors->floor;
        status = foci_data_floor(data, floors->n, count, &floors->floor[floors->n]);
    }
    return status ? library_error(a, ctx, status, NULL) : EXIT_OK;
}

void floors_free(struct floors *floors)
{
    free(floors->floor);
    *floors = (struct floors){ 0 };
}
