/* plot.c -- panels of curves over logarithmic axes. */
#include <math.h>
#include <stdlib.h>

#include "cli/plot.h"

enum {
    LEAST_POWER = -4,
    MOST_POWER = 4, /* of ten */
    FEW = 3         /* decades, between whose ends there are lines too */
};

enum { PALE = 0xe8edf2 };

const uint32_t curve_colours[MAX_CURVES] = { 0x2563a8, 0xd9822b, 0x2e8b57, 0xa8326e,
                                             0x6b4fbb, 0x8c6d1f, 0x1f9fb0, 0x5f6b7a };

static double place_x(const struct frame *f, double x)
{
    return f->x + PANEL_WIDTH * (log2(x) - f->left) / (f->right - f->left);
}

/* What is off the axis stands at its end. */
static double place_y(const struct frame *f, double y)
{
    const double at = (log10(y) - f->bottom) / (f->top - f->bottom);
    return f->y + PANEL_HEIGHT * (1 - fmin(fmax(at, 0), 1));
}

/* The last of 1, 2, 5, 10, 20, ... up to x. */
static double round_down(double x)
{
    const double power = pow(10, floor(log10(x) + 1e-9));
    return x >= 5 * power ? 5 * power : x >= 2 * power ? 2 * power : power;
}

static double round_up(double x)
{
    const double y = round_down(x);
    return y >= x ? y : round_down(2.5 * y);
}

void frame_axes(struct frame *f, double least, double most, double low, double high)
{
    f->left = floor(log2(least) + 0.01);
    f->right = fmax(ceil(log2(most) - 0.01), f->left + 1);
    f->bottom = fmax(log10(round_down(fmin(low, 0.5))), LEAST_POWER);
    f->top = fmin(log10(round_up(fmax(high, 1))), MOST_POWER);
}

/* A line across, if it is within the axis. */
static void draw_level(struct picture *to, const struct frame *f, double y, bool first)
{
    const double power = log10(y), near = 1e-6, at = place_y(f, y);

    if (power < f->bottom - near || power > f->top + near) return;
    picture_rect(to, f->x, at - 0.5, PANEL_WIDTH, 1, fabs(power) < near ? LINE : PALE);
    if (first) picture_text(to, f->x - 7, at + 4, AT_END, STYLE_PLAIN, SOFT, "%g", y);
}

void frame_grid(struct picture *to, const struct frame *f, bool first,
                const char *name_x, const char *name_y)
{
    for (double t = f->left; t <= f->right; t++) {
        const double x = place_x(f, exp2(t));
        picture_rect(to, x - 0.5, f->y, 1, PANEL_HEIGHT, PALE);
        picture_text(to, x, f->y + PANEL_HEIGHT + 15, AT_MIDDLE, STYLE_PLAIN, SOFT,
                     "%g", exp2(t));
    }
    for (double t = floor(f->bottom); t <= f->top; t++)
        for (int i = 0; i < (f->top - f->bottom < FEW ? 3 : 1); i++) {
            static const double steps[] = { 1, 2, 5 };
            draw_level(to, f, steps[i] * pow(10, t), first);
        }
    picture_text(to, f->x + PANEL_WIDTH / 2.0, f->y + PANEL_HEIGHT + 33, AT_MIDDLE,
                 STYLE_PLAIN, INK, "%s", name_x);
    if (first)
        picture_text(to, f->x - 38, f->y + PANEL_HEIGHT / 2.0, AT_MIDDLE, STYLE_UP, INK,
                     "%s", name_y);
}

void frame_curve(struct picture *to, const struct frame *f, const double *x,
                 const double *y, int n, bool marks, uint32_t colour)
{
    double *points = need((size_t)n, 2 * sizeof *points);
    size_t  seen = 0;

    for (int i = 0; i < n; i++) {
        if (!isfinite(y[i])) continue;
        points[2 * seen] = place_x(f, x[i]);
        points[2 * seen++ + 1] = place_y(f, y[i]);
    }
    if (seen) picture_line(to, points, (int)seen, marks ? 2 : 1, colour);
    for (size_t i = 0; marks && i < seen; i++)
        picture_rect(to, points[2 * i] - 2.5, points[2 * i + 1] - 2.5, 5, 5, colour);
    free(points);
}

void frame_legend(struct picture *to, double y, uint32_t colour, const char *text)
{
    const double line[] = { MARGIN + LEFT, y - 4, MARGIN + LEFT + 24, y - 4 };

    picture_line(to, line, 2, 2, colour);
    picture_text(to, MARGIN + LEFT + 32, y, AT_START, STYLE_CODE, INK, "%.80s", text);
}
