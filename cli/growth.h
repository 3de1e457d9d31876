/* growth.h -- costs, such as times, that were measured at several lengths: what to expect at
 * a longer one, and where one curve falls below another.
 *
 * Lengths are positive and increase; a cost that was not measured is NaN.  Between two
 * lengths a cost is taken to grow as a power of the length, a straight line on logarithmic
 * axes.
 */
#ifndef FOCI_CLI_GROWTH_H
#define FOCI_CLI_GROWTH_H

/* The cost to expect at `length`, by the power of the last two costs measured below it; a
 * cost that fell counts as constant.  NaN: fewer than two are known. */
double growth_predict(const double *lengths, const double *costs, int n, double length);

/* The length from which on `costs` are below `others`, up to the last length where both are
 * known.  0: at every such length; INFINITY: not at the last; NaN: there is none. */
double growth_crossing(const double *lengths, const double *costs, const double *others,
                       int n);

/* The lengths at which one of several curves is the lowest. */
struct growth_range {
    int    curve;
    double from, to;
};

/* Lowest curves from left to right; costs are [n_curves][n].  `ranges` has room for
 * n * (n_curves + 1); the result is how many there are.  Neighbouring lengths are joined by
 * curves that are known at both. */
int growth_lowest(const double *lengths, int n, const double *costs, int n_curves,
                  struct growth_range *ranges);

#endif
