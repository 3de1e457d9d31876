/* analyse.h -- between the files of `foci analyse`. */
#ifndef FOCI_CLI_ANALYSE_H
#define FOCI_CLI_ANALYSE_H

#include "cli/cli.h"

enum { MAX_DIM = 512, MAX_VALUES = 16 };

struct values {
    double x[MAX_VALUES];
    int    n;
};

/* "0.25,0.5,1", of the option or, where that is not given, of `preset`. */
int read_values(const struct args *a, const char *name, const char *preset, double min,
                double max, struct values *v);

/* analyse_error.c: --error, how far outputs are from those of softmax. */
enum keys { KEYS_GAUSSIAN, KEYS_CLUSTERED, N_KEYS };

struct curve {
    const char *spec;
    enum keys   keys;
    double      errors[MAX_VALUES]; /* at each spread */
};

struct errors {
    const struct args *a;
    foci_ctx          *ctx;
    int64_t            dim, length;
    uint64_t           seed;
    bool               draws[N_KEYS]; /* which keys */
    struct values      spreads;
    struct curve      *curves; /* spec by spec */
    int                n;
};

int analyse_error(const struct args *a);

/* analyse_plot.c: the curves as a picture. */
foci_status errors_draw(const struct errors *e, const char *path);

/* analyse_orthogonality.c: --orthogonality, what frozen projections keep. */
int analyse_orthogonality(const struct args *a);

#endif
