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

static double wide(const struct frame *f)
{
    return f->width > 0 ? f->width : PANEL_WIDTH;
}

static double tall(const struct frame *f)
{
    return f->height > 0 ? f->height : PANEL_HEIGHT;
}

double frame_x(const struct frame *f, double x)
{
    const double at = f->even_x ? x : f->tens_x ? log10(x) : log2(x);
    return f->x + wide(f) * (at - f->left) / (f->right - f->left);
}

double frame_y(const struct frame *f, double y)
{
    const double at = ((f->even_y ? y : log10(y)) - f->bottom) / (f->top - f->bottom);
    return f->y + tall(f) * (1 - fmin(fmax(at, 0), 1));
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
    frame_twos_x(f, least, most);
    f->bottom = fmax(log10(round_down(fmin(low, 0.5))), LEAST_POWER);
    f->top = fmin(log10(round_up(fmax(high, 1))), MOST_POWER);
}

/* The distance of the lines of an even axis. */
static double step_of(double least, double most, int steps)
{
    return round_up((most - least) / steps);
}

static int steps_of(const struct frame *f) { return f->steps_x ? f->steps_x : STEPS; }

static void set_even(double least, double most, int steps, double *from, double *to)
{
    const double step = step_of(least, most > least ? most : least + 1, steps);
    *from = step * floor(least / step + 1e-6);
    *to = step * fmax(ceil(most / step - 1e-6), floor(*from / step) + 1);
}

void frame_even_x(struct frame *f, double least, double most)
{
    f->even_x = true;
    set_even(least, most, steps_of(f), &f->left, &f->right);
}

void frame_even_y(struct frame *f, double low, double high)
{
    f->even_y = true;
    set_even(low, high, STEPS, &f->bottom, &f->top);
}

void frame_twos_x(struct frame *f, double least, double most)
{
    f->left = floor(log2(least) + 0.01);
    f->right = fmax(ceil(log2(most) - 0.01), f->left + 1);
}

/* With a little room on either side. */
static void set_tens(double low, double high, double *from, double *to)
{
    const double room = fmax(0.04 * log10(high / low), 0.02);

    *from = log10(low) - room;
    *to = log10(high) + room;
}

void frame_tens_x(struct frame *f, double least, double most)
{
    f->tens_x = true;
    set_tens(least, most, &f->left, &f->right);
}

void frame_tens_y(struct frame *f, double low, double high)
{
    set_tens(low, high, &f->bottom, &f->top);
}

void frame_names_x(struct frame *f, const char *const *names, int n)
{
    f->even_x = true;
    f->names = names;
    f->left = -0.5;
    f->right = n - 0.5;
}

/* "0.05", "16k", "1.5M" */
static const char *number(const struct frame *f, double x, char text[32])
{
    static const char *const prefixes[] = { "", "k", "M", "G", "T", "P" };
    int                      i = 0;

    while (f->short_numbers && fabs(x) >= 1000 && i < 5) {
        x /= 1000;
        i++;
    }
    snprintf(text, 32, "%.6g%s", x, prefixes[i]);
    return text;
}

/* The lines of a decade, and of how many decades together they are drawn. */
static const struct {
    double step, most;
} steps[] = { { 1, INFINITY }, { 2, FEW },   { 5, FEW }, { 3, 1 },
              { 7, 1 },        { 1.5, 0.5 }, { 4, 0.5 }, { 6, 0.5 } };

enum { N_STEPS = sizeof steps / sizeof *steps };

/* A line across, with its number, if it is within the axis. */
static void draw_level(struct picture *to, const struct frame *f, double y, bool first)
{
    const double at = frame_y(f, y), near = 1e-6, value = f->even_y ? y : log10(y);
    char         text[32];

    if (value < f->bottom - near || value > f->top + near) return;
    picture_rect(to, f->x, at - 0.5, wide(f), 1, fabs(value) < near ? LINE : PALE);
    if (first)
        picture_text(to, f->x - 7, at + 4, AT_END, STYLE_PLAIN, SOFT, "%s",
                     number(f, y, text));
}

static void draw_levels(struct picture *to, const struct frame *f, bool first)
{
    if (f->even_y) {
        const double step = step_of(f->bottom, f->top, STEPS);
        for (int i = 0; i <= STEPS; i++)
            draw_level(to, f, step * (round(f->bottom / step) + i), first);
        return;
    }
    for (double t = floor(f->bottom); t <= f->top; t++)
        for (int i = 0; i < N_STEPS; i++)
            if (f->top - f->bottom < steps[i].most)
                draw_level(to, f, steps[i].step * pow(10, t), first);
}

/* A line down, with its number. */
static void draw_column(struct picture *to, const struct frame *f, double x,
                        bool numbered)
{
    const double at = frame_x(f, x);
    char         text[32];

    picture_rect(to, at - 0.5, f->y, 1, tall(f), PALE);
    if (numbered)
        picture_text(to, at, f->y + tall(f) + 15, AT_MIDDLE, STYLE_PLAIN, SOFT, "%s",
                     f->names ? f->names[(int)lround(x)] : number(f, x, text));
}

static void draw_tens(struct picture *to, const struct frame *f)
{
    const double near = 1e-6, decades = f->right - f->left;

    for (double t = floor(f->left); t <= f->right; t++)
        for (int i = 0; i < N_STEPS; i++) {
            const double x = steps[i].step * pow(10, t);
            if (decades < steps[i].most && log10(x) >= f->left - near &&
                log10(x) <= f->right + near)
                draw_column(to, f, x, decades < FEW - 1 || !i);
        }
}

static void draw_columns(struct picture *to, const struct frame *f)
{
    const double step = f->names    ? 1
                        : f->even_x ? step_of(f->left, f->right, steps_of(f))
                                    : 1;
    const double first = f->names ? 0 : f->left;
    const int    n = (int)(f->names ? round(f->right - f->left) - 1
                                    : round((f->right - f->left) / step));

    if (!f->even_x && f->tens_x) {
        draw_tens(to, f);
        return;
    }
    for (int i = 0; i <= n; i++) {
        const double at = step * (round(first / step) + i);
        draw_column(to, f, f->even_x ? at : exp2(at),
                    f->even_x || n < MANY || i % 2 == 0);
    }
}

void frame_grid(struct picture *to, const struct frame *f, bool first,
                const char *name_x, const char *name_y)
{
    draw_columns(to, f);
    if (!f->bare) draw_levels(to, f, first);
    picture_text(to, f->x + wide(f) / 2, f->y + tall(f) + 33, AT_MIDDLE, STYLE_PLAIN,
                 INK, "%s", name_x);
    if (first && *name_y)
        picture_text(to, f->x - 38, f->y + tall(f) / 2, AT_MIDDLE, STYLE_UP, INK, "%s",
                     name_y);
}

void frame_curve(struct picture *to, const struct frame *f, const double *x,
                 const double *y, int n, bool marks, uint32_t colour)
{
    double *points = need((size_t)n, 2 * sizeof *points);
    size_t  seen = 0;

    for (int i = 0; i < n; i++) {
        if (!isfinite(y[i])) continue;
        points[2 * seen] = frame_x(f, x[i]);
        points[2 * seen++ + 1] = frame_y(f, y[i]);
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
            picture_rect(to, frame_x(f, x[i]) - 2.5, frame_y(f, y[i]) - 2.5, 5, 5,
                         colour);
}

void frame_legend(struct picture *to, double y, uint32_t colour, const char *text)
{
    const double line[] = { MARGIN + LEFT, y - 4, MARGIN + LEFT + 24, y - 4 };

    picture_line(to, line, 2, 2, colour);
    picture_text(to, MARGIN + LEFT + 32, y, AT_START, STYLE_CODE, INK, "%.80s", text);
}
