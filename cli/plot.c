/* plot.c -- panels of curves over logarithmic or even axes. */
#include <math.h>
#include <stdlib.h>

#include "cli/plot.h"

enum {
    LEAST_POWER = -4,
    MOST_POWER = 4, /* of ten */
    FEW = 3,        /* decades, between whose ends there are lines too */
    MANY = 10,      /* powers of two, of which every other one has its number */
    STEPS = 8       /* of an even axis, at most */
};

enum { PALE = 0xe8edf2 };

const uint32_t curve_colours[MAX_CURVES] = { 0x2563a8, 0xd9822b, 0x2e8b57, 0xa8326e,
                                             0x6b4fbb, 0x8c6d1f, 0x1f9fb0, 0x5f6b7a };

static double place_x(const struct frame *f, double x)
{
    const double at = f->even_x ? x : log2(x);
    return f->x + PANEL_WIDTH * (at - f->left) / (f->right - f->left);
}

/* What is off the axis stands at its end. */
static double place_y(const struct frame *f, double y)
{
    const double at = ((f->even_y ? y : log10(y)) - f->bottom) / (f->top - f->bottom);
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

/* The distance of the lines of an even axis. */
static double step_of(double least, double most)
{
    return round_up((most - least) / STEPS);
}

static void set_even(double least, double most, double *from, double *to)
{
    const double step = step_of(least, most > least ? most : least + 1);
    *from = step * floor(least / step + 1e-6);
    *to = step * fmax(ceil(most / step - 1e-6), floor(*from / step) + 1);
}

void frame_even_x(struct frame *f, double least, double most)
{
    f->even_x = true;
    set_even(least, most, &f->left, &f->right);
}

void frame_even_y(struct frame *f, double low, double high)
{
    f->even_y = true;
    set_even(low, high, &f->bottom, &f->top);
}

/* A line across, with its number, if it is within the axis. */
static void draw_level(struct picture *to, const struct frame *f, double y, bool first)
{
    const double at = place_y(f, y), near = 1e-6, value = f->even_y ? y : log10(y);

    if (value < f->bottom - near || value > f->top + near) return;
    picture_rect(to, f->x, at - 0.5, PANEL_WIDTH, 1, fabs(value) < near ? LINE : PALE);
    if (first) picture_text(to, f->x - 7, at + 4, AT_END, STYLE_PLAIN, SOFT, "%g", y);
}

static void draw_levels(struct picture *to, const struct frame *f, bool first)
{
    static const double steps[] = { 1, 2, 5 };

    if (f->even_y) {
        const double step = step_of(f->bottom, f->top);
        for (int i = 0; i <= STEPS; i++)
            draw_level(to, f, step * (round(f->bottom / step) + i), first);
        return;
    }
    for (double t = floor(f->bottom); t <= f->top; t++)
        for (int i = 0; i < (f->top - f->bottom < FEW ? 3 : 1); i++)
            draw_level(to, f, steps[i] * pow(10, t), first);
}

/* A line down, with its number. */
static void draw_column(struct picture *to, const struct frame *f, double x, bool number)
{
    const double at = place_x(f, x);

    picture_rect(to, at - 0.5, f->y, 1, PANEL_HEIGHT, PALE);
    if (number)
        picture_text(to, at, f->y + PANEL_HEIGHT + 15, AT_MIDDLE, STYLE_PLAIN, SOFT,
                     "%g", x);
}

static void draw_columns(struct picture *to, const struct frame *f)
{
    const double step = f->even_x ? step_of(f->left, f->right) : 1;
    const int    n = (int)round((f->right - f->left) / step);

    for (int i = 0; i <= n; i++) {
        const double at = step * (round(f->left / step) + i);
        draw_column(to, f, f->even_x ? at : exp2(at),
                    f->even_x || n < MANY || i % 2 == 0);
    }
}

void frame_grid(struct picture *to, const struct frame *f, bool first,
                const char *name_x, const char *name_y)
{
    draw_columns(to, f);
    draw_levels(to, f, first);
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
    free(points);
    if (marks) frame_marks(to, f, x, y, n, colour);
}

void frame_marks(struct picture *to, const struct frame *f, const double *x,
                 const double *y, int n, uint32_t colour)
{
    for (int i = 0; i < n; i++)
        if (isfinite(y[i]))
            picture_rect(to, place_x(f, x[i]) - 2.5, place_y(f, y[i]) - 2.5, 5, 5,
                         colour);
}

void frame_legend(struct picture *to, double y, uint32_t colour, const char *text)
{
    const double line[] = { MARGIN + LEFT, y - 4, MARGIN + LEFT + 24, y - 4 };

    picture_line(to, line, 2, 2, colour);
    picture_text(to, MARGIN + LEFT + 32, y, AT_START, STYLE_CODE, INK, "%.80s", text);
}
