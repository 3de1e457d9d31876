/* floors.h -- what rules reach on a generated task that have learned nothing. */
#ifndef FOCI_CLI_FLOORS_H
#define FOCI_CLI_FLOORS_H

#include "cli/cli.h"
#include "foci/data.h"

struct floors {
    foci_floor *floor; /* [n] */
    int         n;
};

/* Count all floors of the data over `count` examples; other data have none.  EXIT_OK, or a
 * status with the message printed; floors_free() in both cases. */
int  floors_read(const struct args *a, foci_ctx *ctx, foci_data *data, int64_t count,
                 struct floors *floors);
void floors_free(struct floors *floors);

#endif
