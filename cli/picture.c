/* picture.c -- pictures made of shapes, written in the format of their file name. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/picture.h"

/* From nearly white over blue to dark blue, or over orange to brown. */
uint32_t shade_colour(int shade)
{
    enum { STOPS = 4, LAST = STOPS - 1 };
    static const double ramps[2][STOPS][3] = {
        { { 198, 219, 239 }, { 133, 180, 220 }, { 55, 126, 184 }, { 12, 63, 122 } },
        { { 253, 219, 185 }, { 250, 173, 104 }, { 224, 112, 32 }, { 128, 51, 6 } },
    };
    uint32_t colour = 0;

    if (shade == 0) return 0xf5f7fa;
    const double(*stops)[3] = ramps[shade >= SHADES];
    if (shade >= SHADES) shade -= SHADES - 1;
    const double at = LAST * (double)(shade - 1) / (SHADES - 2);
    const int    stop = at >= LAST ? LAST - 1 : (int)at;
    for (int c = 0; c < 3; c++) {
        const double a = stops[stop][c], b = stops[stop + 1][c];
        colour = colour << 8 | (uint32_t)lround(a + (b - a) * (at - stop));
    }
    return colour;
}

static char *copy(const char *text)
{
    char *c = need(strlen(text) + 1, 1);
    return strcpy(c, text);
}

struct picture *picture_create(int width, int height, const char *title)
{
    struct picture *p = need(1, sizeof *p);
    *p = (struct picture){ .width = width, .height = height, .title = copy(title) };
    return p;
}

void picture_free(struct picture *p)
{
    for (int i = 0; i < p->n; i++) {
        free(p->shapes[i].text);
        free(p->shapes[i].points);
        free(p->shapes[i].hint);
    }
    free(p->shapes);
    free(p->title);
    free(p);
}

static void add(struct picture *p, struct picture_shape shape)
{
    if (p->n == p->cap) {
        const int             cap = 2 * p->cap + 64;
        struct picture_shape *shapes = need((size_t)cap, sizeof *shapes);
        if (p->n) memcpy(shapes, p->shapes, (size_t)p->n * sizeof *shapes);
        free(p->shapes);
        p->shapes = shapes;
        p->cap = cap;
    }
    shape.group = p->group;
    p->shapes[p->n++] = shape;
}

void picture_rect(struct picture *p, double x, double y, double width, double height,
                  uint32_t colour)
{
    add(p, (struct picture_shape){ .kind = DRAW_RECT,
                                   .x = x,
                                   .y = y,
                                   .width = width,
                                   .height = height,
                                   .colour = colour });
}

void picture_text(struct picture *p, double x, double y, enum anchor anchor,
                  enum style style, uint32_t colour, const char *format, ...)
{
    char    text[1024];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    add(p, (struct picture_shape){ .kind = DRAW_TEXT,
                                   .x = x,
                                   .y = y,
                                   .anchor = anchor,
                                   .style = style,
                                   .colour = colour,
                                   .text = copy(text) });
}

/* A line or an area. */
static void add_points(struct picture *p, struct picture_shape shape,
                       const double *points, int n)
{
    const size_t count = 2 * (size_t)n;

    shape.points = need(count, sizeof *points);
    shape.n_points = n;
    if (n) memcpy(shape.points, points, count * sizeof *points);
    add(p, shape);
}

void picture_line(struct picture *p, const double *points, int n, double width,
                  uint32_t colour)
{
    picture_dashes(p, points, n, width, 0, colour);
}

void picture_dashes(struct picture *p, const double *points, int n, double width,
                    double dash, uint32_t colour)
{
    const struct picture_shape shape = {
        .kind = DRAW_LINE, .width = width, .dash = dash, .colour = colour
    };
    add_points(p, shape, points, n);
}

void picture_area(struct picture *p, const double *points, int n, uint32_t colour,
                  double opacity)
{
    const struct picture_shape shape = { .kind = DRAW_AREA,
                                         .colour = colour,
                                         .opacity = opacity };
    add_points(p, shape, points, n);
}

void picture_grid(struct picture *p, double x, double y, const struct grid *grid)
{
    add(p, (struct picture_shape){ .kind = DRAW_GRID, .x = x, .y = y, .grid = *grid });
}

void picture_hint(struct picture *p, const char *text)
{
    if (p->n && !p->shapes[p->n - 1].hint) p->shapes[p->n - 1].hint = copy(text);
}

void picture_group(struct picture *p, int group) { p->group = group; }

static bool ends(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n > m && strcasecmp(path + n - m, end) == 0;
}

bool picture_name(const char *path) { return ends(path, ".svg") || ends(path, ".png"); }

foci_status picture_write(foci_ctx *ctx, const struct picture *p, const char *path)
{
    return ends(path, ".svg") ? picture_svg(ctx, p, path) : picture_png(ctx, p, path);
}
