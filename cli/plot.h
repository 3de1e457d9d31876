/* plot.h -- panels of curves, with logarithmic axes, powers of two below and of ten beside, or
 * even ones. */
#ifndef FOCI_CLI_PLOT_H
#define FOCI_CLI_PLOT_H

#include "cli/picture.h"

enum {
    MARGIN = 24,
    HEAD = 84, /* above the panels: title, subtitle and their names */
    LEFT = 50, /* beside them: numbers and name of the axis */
    BELOW = 46,
    GUTTER = 28,
    PANEL_WIDTH = 300,
    PANEL_HEIGHT = 240,
    LEGEND = 18, /* a line of it */
};

enum { MAX_CURVES = 8 }; /* of one picture */
extern const uint32_t curve_colours[MAX_CURVES];

/* A panel, and the ranges of its axes: powers of two, or of ten, and of ten, or of an even axis
 * the numbers themselves. */
struct frame {
    double             x, y;
    double             width, height; /* 0: PANEL_WIDTH, PANEL_HEIGHT */
    double             left, right, bottom, top;
    bool               even_x, even_y, tens_x;
    bool               bare;          /* no lines across */
    bool               short_numbers; /* 16k, and not 16384 or 1.6384e+04 */
    const char *const *names;   /* of 0, 1, 2... on an even axis below; NULL: numbers */
    int                steps_x; /* of an even axis, at most; 0: 8 */
};

/* Whole powers of two around least and most; steps of 1, 2, 5 around low and high, 1 among
 * them, within 10^-4 and 10^4. */
void frame_axes(struct frame *f, double least, double most, double low, double high);

/* The same of an even axis: from least to most, whole steps of 1, 2 or 5. */
void frame_even_x(struct frame *f, double least, double most);
void frame_even_y(struct frame *f, double low, double high);

/* A logarithmic axis of powers of two; from low to high, with lines at round numbers. */
void frame_twos_x(struct frame *f, double least, double most);
void frame_tens_x(struct frame *f, double least, double most);
void frame_tens_y(struct frame *f, double low, double high);

/* An axis of n names. */
void frame_names_x(struct frame *f, const char *const *names, int n);

/* Where a point of an axis is in the picture; what is off the axis below stands at its end. */
double frame_x(const struct frame *f, double x);
double frame_y(const struct frame *f, double y);

/* Lines, numbers and names of the axes; numbers beside the first panel only. */
void frame_grid(struct picture *to, const struct frame *f, bool first,
                const char *name_x, const char *name_y);

/* n points joined, those that are not finite left out; what is off the axis stands at its
 * end.  `marks`: with squares on them. */
void frame_curve(struct picture *to, const struct frame *f, const double *x,
                 const double *y, int n, bool marks, uint32_t colour);

/* The squares alone. */
void frame_marks(struct picture *to, const struct frame *f, const double *x,
                 const double *y, int n, uint32_t colour);

/* A line of the legend at y. */
void frame_legend(struct picture *to, double y, uint32_t colour, const char *text);

#endif
