/* analyse.h -- between the files of `foci analyse`. */
#ifndef FOCI_CLI_ANALYSE_H
#define FOCI_CLI_ANALYSE_H

#include "cli/cli.h"

enum { MAX_DIM = 512, MAX_VALUES = 256, MOST_KEYS = 1 << 20 };

struct values {
    double x[MAX_VALUES];
    int    n;
};

/* analyse_values.c.
 *
 * "0.25,0.5,1" or "0..1:11", eleven from 0 to 1, or both with commas: of the option or, where
 * that is not given, of `preset`. */
int read_values(const struct args *a, const char *name, const char *preset, double min,
                double max, struct values *v);

/* The same of whole numbers. */
int read_whole(const struct args *a, const char *name, const char *preset, double min,
               double max, struct values *v);

/* The name and the values of --axis NAME=LIST, where FROM..TO:COUNT grows by the same factor, in
 * whole numbers. */
enum { AXIS_NAME = 64 };
int read_named(const struct args *a, char name[AXIS_NAME], struct values *v);

double least_of(const struct values *v);
double most_of(const struct values *v);

/* Refuse an --out that no picture can be written to. */
int check_out(const struct args *a);

/* A number with `format` for people, with all digits in a file; one that is none is a dash, or
 * empty. */
void number_cell(struct output_table *t, const char *format, double x, bool file);

/* JSON knows neither infinity nor NaN. */
json_t *json_number(double x);

/* analyse_estimator.c: --estimator, random features beside what they estimate. */
int analyse_estimator(const struct args *a);

/* analyse_error.c: --error, how far outputs and weights are from those of softmax. */
int analyse_error(const struct args *a);

/* analyse_orthogonality.c: --orthogonality, what frozen projections keep. */
int analyse_orthogonality(const struct args *a);

/* analyse_theory.c: --theory, concentration in closed form. */
int analyse_theory(const struct args *a);

/* analyse_dilution.c: --dilution, one relevant key among many. */
int analyse_dilution(const struct args *a);

/* analyse_weights.c: --weights, matrices of weights; SPEC, heads of tensors. */
int analyse_weights(const struct args *a);
int analyse_tensors(const struct args *a);

/* analyse_model.c: DIR, the heads of a trained model. */
int analyse_model(const struct args *a);

#endif
