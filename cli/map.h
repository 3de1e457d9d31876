/* map.h -- one map: the weights of a spec on a problem, head by head. */
#ifndef FOCI_CLI_MAP_H
#define FOCI_CLI_MAP_H

#include "cli/run.h"

/* Heads that follow one another and have the same weights. */
struct panel {
    int64_t      first, heads;
    const char  *label;     /* the mechanism, as written */
    const float *weights;   /* [len_q][len_k] */
    int64_t      pairs;     /* that have a weight */
    int64_t      few, many; /* the fewest and the most keys that a query sees */
    int64_t      negative;  /* pairs whose weight is below zero */
    double       low, high; /* the least and the largest size of a weight; 0: none */
};

struct map {
    const struct args *a;
    struct run_verb    run;
    bool               random; /* q and k are standard normal, not all alike */
    float             *weights;
    char             **labels; /* [heads] */
    struct panel      *panels;
    int                n_panels;
};

/* map_label.c: the part of a spec that each head has, to be freed.  `written` as the
 * user wrote it, if its parts can be told apart, else `full`. */
char **map_labels(const char *written, const char *full, int64_t heads);

/* map_draw.c: draw the panels and write them to `path`. */
foci_status map_draw(const struct map *m, const char *path);

#endif
