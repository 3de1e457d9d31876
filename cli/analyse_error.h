/* analyse_error.h -- between the files of `foci analyse --error`. */
#ifndef FOCI_CLI_ANALYSE_ERROR_H
#define FOCI_CLI_ANALYSE_ERROR_H

#include "cli/analyse.h"

struct errors;

/* Queries, keys and values that mechanisms are compared on. */
struct error_source {
    char         name[80];
    bool         drawn, clustered;
    foci_problem p; /* drawn: of the point that was drawn last */
    float       *q0, *k0,
        *v;       /* drawn: for spread 1; given: as they are, and q, k are these */
    float *q, *k; /* drawn: for the spread of the point */
};

/* What the columns are. */
enum error_axis { AXIS_SPREAD, AXIS_LENGTH, AXIS_DIM, AXIS_ARGUMENT, AXIS_NONE };

/* A mechanism on a source, along the axis. */
struct curve {
    const char *spec;
    int         source;
    double      errors[MAX_VALUES], weight_errors[MAX_VALUES];
};

struct errors {
    const struct args   *a;
    foci_ctx            *ctx;
    int64_t              dim, length; /* of drawn tensors, off the axis */
    double               spread;      /* likewise */
    uint64_t             seed;
    enum error_axis      axis;
    char                 name[AXIS_NAME]; /* of the axis */
    struct values        values;
    struct error_source *sources;
    int                  n_sources;
    struct curve        *curves; /* spec by spec, each on all sources */
    int                  n;
    char **untrained; /* of each spec: tensors that training would change, or "" */
};

/* A point of the axis: what it sets. */
struct error_point {
    int64_t length, dim;
    double  spread;
};
struct error_point error_point(const struct errors *e, int i);

/* analyse_error_data.c: find the sources; make the tensors of a point.  EXIT_OK, or a status with
 * the message printed. */
int  error_sources_open(struct errors *e);
void error_sources_close(struct errors *e);
void error_source_set(const struct errors *e, const struct error_point *at,
                      struct error_source *s);

/* analyse_error_show.c: a table, a file, JSON. */
int errors_show(const struct errors *e);
/* What the columns are, for people. */
void errors_axis(const struct errors *e, char *text, size_t cap);
/* What all columns have in common. */
void errors_extents(const struct errors *e, char *text, size_t cap);

/* analyse_plot.c: the curves as a picture. */
foci_status errors_draw(const struct errors *e, const char *path);
enum { ERROR_PANELS = 4 };

#endif
