/* analyse_plot.c -- errors over the spread of logits as a picture: a panel for each kind
 * of keys, a line for each mechanism, both axes logarithmic. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/analyse.h"
#include "cli/picture.h"

enum {
    MARGIN = 24,
    HEAD = 84, /* above the panels: title, subtitle and names of keys */
    LEFT = 50, /* beside them: numbers and name of the axis */
    BELOW = 46,
    GUTTER = 28,
    PANEL_WIDTH = 300,
    PANEL_HEIGHT = 240,
    LEGEND = 18, /* a line of it */
    LEAST_POWER = -4,
    MOST_POWER = 4, /* of ten */
    FEW = 3         /* decades, between whose ends there are lines too */
};

enum { PALE = 0xe8edf2 };

static const uint32_t colours[MAX_CURVES] = { 0x2563a8, 0xd9822b, 0x2e8b57, 0xa8326e,
                                              0x6b4fbb, 0x8c6d1f, 0x1f9fb0, 0x5f6b7a };

/* A panel, and the ranges of its axes: powers of two, and of ten. */
struct frame {
    double x, y;
    double left, right, bottom, top;
};

static double place_x(const struct frame *f, double spread)
{
    return f->x + PANEL_WIDTH * (log2(spread) - f->left) / (f->right - f->left);
}

/* What is off the axis stands at its end. */
static double place_y(const struct frame *f, double error)
{
    const double at = (log10(error) - f->bottom) / (f->top - f->bottom);
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

/* Whole powers of two, and steps of 1, 2, 5 around all numbers; 1 is among them. */
static void set_axes(const struct errors *e, struct frame *f)
{
    double low = 1, high = 1, least = e->spreads.x[0], most = least;

    for (int i = 0; i < e->spreads.n; i++) {
        least = fmin(least, e->spreads.x[i]);
        most = fmax(most, e->spreads.x[i]);
        for (int c = 0; c < e->n; c++)
            if (e->curves[c].errors[i] > 0 && isfinite(e->curves[c].errors[i])) {
                low = fmin(low, e->curves[c].errors[i]);
                high = fmax(high, e->curves[c].errors[i]);
            }
    }
    f->left = floor(log2(least) + 0.01);
    f->right = fmax(ceil(log2(most) - 0.01), f->left + 1);
    f->bottom = fmax(log10(round_down(fmin(low, 0.5))), LEAST_POWER);
    f->top = fmin(log10(round_up(high)), MOST_POWER);
}

/* A line across, if it is within the axis. */
static void draw_level(struct picture *to, const struct frame *f, double error,
                       bool first)
{
    const double at = log10(error), near = 1e-6, y = place_y(f, error);

    if (at < f->bottom - near || at > f->top + near) return;
    picture_rect(to, f->x, y - 0.5, PANEL_WIDTH, 1, fabs(at) < near ? LINE : PALE);
    if (first)
        picture_text(to, f->x - 7, y + 4, AT_END, STYLE_PLAIN, SOFT, "%g", error);
}

static void draw_grid(struct picture *to, const struct frame *f, bool first)
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
                 STYLE_PLAIN, INK, "standard deviation of the logits");
    if (first)
        picture_text(to, f->x - 38, f->y + PANEL_HEIGHT / 2.0, AT_MIDDLE, STYLE_UP, INK,
                     "relative error of the output");
}

static void draw_curve(struct picture *to, const struct errors *e,
                       const struct frame *f, const struct curve *c, uint32_t colour)
{
    double points[2 * MAX_VALUES];
    size_t n = 0;

    for (int i = 0; i < e->spreads.n; i++) {
        if (!isfinite(c->errors[i])) continue;
        points[2 * n] = place_x(f, e->spreads.x[i]);
        points[2 * n++ + 1] = place_y(f, c->errors[i]);
    }
    picture_line(to, points, (int)n, 2, colour);
    for (size_t i = 0; i < n; i++)
        picture_rect(to, points[2 * i] - 2.5, points[2 * i + 1] - 2.5, 5, 5, colour);
}

/* Curves of one spec follow one another. */
static int spec_of(const struct errors *e, int curve)
{
    int spec = 0;
    for (int c = 1; c <= curve; c++)
        spec += e->curves[c].spec != e->curves[c - 1].spec;
    return spec;
}

static void draw_legend(struct picture *to, const struct errors *e, double y)
{
    for (int c = 0; c < e->n; c++) {
        if (c && e->curves[c].spec == e->curves[c - 1].spec) continue;
        const double at = y + LEGEND * spec_of(e, c);
        const double line[] = { MARGIN + LEFT, at - 4, MARGIN + LEFT + 24, at - 4 };
        picture_line(to, line, 2, 2, colours[spec_of(e, c)]);
        picture_text(to, MARGIN + LEFT + 32, at, AT_START, STYLE_CODE, INK, "%.80s",
                     e->curves[c].spec);
    }
}

foci_status errors_draw(const struct errors *e, const char *path)
{
    static const char *const names[] = { "normal queries and keys",
                                         "queries and keys in clusters" };
    const int                panels = e->draws[0] + e->draws[1];
    const int                legend = LEGEND * (spec_of(e, e->n - 1) + 1);
    struct picture          *to = picture_create(
                 2 * MARGIN + LEFT + panels * (PANEL_WIDTH + GUTTER) - GUTTER,
                 HEAD + PANEL_HEIGHT + BELOW + legend + MARGIN, "Errors against softmax");
    struct frame f = { .x = MARGIN + LEFT, .y = HEAD };

    set_axes(e, &f);
    picture_text(to, MARGIN, 32, AT_START, STYLE_TITLE, INK, "errors against softmax");
    picture_text(to, MARGIN, 51, AT_START, STYLE_PLAIN, SOFT,
                 "%lld tokens of width %lld, seed %lld; |o - softmax| / |softmax|",
                 (long long)e->length, (long long)e->dim, (long long)e->seed);
    for (int keys = 0; keys < N_KEYS; keys++) {
        if (!e->draws[keys]) continue;
        picture_text(to, f.x, f.y - 10, AT_START, STYLE_PLAIN, INK, "%s", names[keys]);
        draw_grid(to, &f, f.x == MARGIN + LEFT);
        for (int c = 0; c < e->n; c++)
            if ((int)e->curves[c].keys == keys)
                draw_curve(to, e, &f, &e->curves[c], colours[spec_of(e, c)]);
        f.x += PANEL_WIDTH + GUTTER;
    }
    draw_legend(to, e, HEAD + PANEL_HEIGHT + BELOW + 12);
    const foci_status status = picture_write(e->ctx, to, path);
    picture_free(to);
    return status;
}
