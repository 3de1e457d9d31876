/* picture_png.c -- a picture as .png, two pixels a unit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/picture.h"
#include "foci/file.h"

enum { SCALE = 2 };

struct pixels {
    int64_t  width, height;
    uint8_t *rgb;
};

static void paint(const struct pixels *p, int64_t x, int64_t y, uint32_t colour)
{
    if (x < 0 || y < 0 || x >= p->width || y >= p->height) return;
    uint8_t *to = p->rgb + 3 * (y * p->width + x);
    for (int c = 0; c < 3; c++)
        to[c] = (uint8_t)(colour >> (16 - 8 * c));
}

/* In units; what is thinner than a pixel is one. */
static void fill(const struct pixels *p, double x, double y, double width,
                 double height, uint32_t colour)
{
    const int64_t left = lround(SCALE * x), top = lround(SCALE * y);
    int64_t       right = lround(SCALE * (x + width));
    int64_t       bottom = lround(SCALE * (y + height));

    if (right == left) right++;
    if (bottom == top) bottom++;
    for (int64_t b = top; b < bottom; b++)
        for (int64_t a = left; a < right; a++)
            paint(p, a, b, colour);
}

/* Pixel (x, y) of the line of text, counted from its start and its baseline. */
static void paint_along(const struct pixels *p, const struct picture_shape *s,
                        int64_t x, int64_t y)
{
    const int64_t x0 = lround(SCALE * s->x), y0 = lround(SCALE * s->y);

    if (s->style == STYLE_UP)
        paint(p, x0 + y, y0 - x, s->colour);
    else
        paint(p, x0 + x, y0 + y, s->colour);
}

/* The next letter of a text in UTF-8; the font has a question mark for all but ASCII. */
static const char *behind(const char *text)
{
    do
        text++;
    while (((unsigned char)*text & 0xc0) == 0x80);
    return text;
}

static int64_t letters_of(const char *text)
{
    int64_t n = 0;
    for (; *text; text = behind(text))
        n++;
    return n;
}

static void write_text(const struct pixels *p, const struct picture_shape *s)
{
    const int64_t len = letters_of(s->text) * FONT_WIDTH;
    const int64_t shift = s->anchor == AT_START ? 0
                          : s->anchor == AT_END ? len
                                                : len / 2;
    const int     strokes = s->style == STYLE_TITLE ? 2 : 1;

    const char *text = s->text;
    for (int64_t i = 0; *text; i++, text = behind(text))
        for (int y = 0; y < FONT_HEIGHT; y++)
            for (int x = 0; x < FONT_WIDTH; x++)
                for (int t = 0; font_pixel(*text, x, y) && t < strokes; t++)
                    paint_along(p, s, i * FONT_WIDTH + x + t - shift, y - FONT_ASCENT);
}

static void paint_grid(const struct pixels *p, const struct picture_shape *s)
{
    const struct grid *g = &s->grid;
    const double       width = g->columns * g->wide, height = g->rows * g->tall;

    for (int y = 0; y < g->rows; y++)
        for (int x = 0; x < g->columns; x++)
            fill(p, s->x + x * g->wide, s->y + y * g->tall, g->wide, g->tall,
                 shade_colour(g->shades[(size_t)y * (size_t)g->columns + (size_t)x]));
    if (g->gap <= 0) return;
    for (int x = 1; x < g->columns; x++)
        fill(p, s->x + x * g->wide - g->gap / 2, s->y, g->gap, height, PAPER);
    for (int y = 1; y < g->rows; y++)
        fill(p, s->x, s->y + y * g->tall - g->gap / 2, width, g->gap, PAPER);
}

/* Where the line through the points crosses the height y, from left to right. */
static int crossings(const struct picture_shape *s, double y, double *x)
{
    int n = 0;

    for (int i = 0; i < s->n_points; i++) {
        const double *a = s->points + 2 * (size_t)i;
        const double *b = s->points + 2 * (size_t)((i + 1) % s->n_points);
        if ((a[1] <= y) == (b[1] <= y)) continue;
        const double at = a[0] + (y - a[1]) / (b[1] - a[1]) * (b[0] - a[0]);
        int          k = n++;
        for (; k > 0 && x[k - 1] > at; k--)
            x[k] = x[k - 1];
        x[k] = at;
    }
    return n;
}

/* So much of the colour over what is there. */
static void blend(const struct pixels *p, int64_t x, int64_t y, uint32_t colour,
                  double share)
{
    if (x < 0 || y < 0 || x >= p->width || y >= p->height) return;
    uint8_t *to = p->rgb + 3 * (y * p->width + x);
    for (int c = 0; c < 3; c++) {
        const double over = colour >> (16 - 8 * c) & 255;
        to[c] = (uint8_t)lround(to[c] + share * (over - to[c]));
    }
}

/* Row by row of pixels, each looked at along LINES lines. */
static void paint_area(const struct pixels *p, const struct picture_shape *s)
{
    enum { LINES = 4 };
    double *x = need((size_t)s->n_points + 1, sizeof *x);
    double *cover = need((size_t)p->width + 1, sizeof *cover);

    for (int64_t row = 0; row < p->height; row++) {
        bool any = false;
        for (int line = 0; line < LINES; line++) {
            const int n =
                crossings(s, ((double)row + (line + 0.5) / LINES) / SCALE, x);
            for (int i = 0; i + 1 < n; i += 2) {
                const double from = fmax(SCALE * x[i], 0);
                const double to = fmin(SCALE * x[i + 1], (double)p->width);
                for (int64_t at = (int64_t)from; (double)at < to; at++)
                    cover[at] += fmin((double)at + 1, to) - fmax((double)at, from);
                any = true;
            }
        }
        for (int64_t at = 0; any && at < p->width; at++) {
            if (cover[at] > 0)
                blend(p, at, row, s->colour, s->opacity * fmin(cover[at] / LINES, 1));
            cover[at] = 0;
        }
    }
    free(cover);
    free(x);
}

/* Squares along the way, less than a pixel apart. */
static void stroke(const struct pixels *p, const struct picture_shape *s)
{
    double way = 0; /* so far */

    for (int i = 1; i < s->n_points; i++) {
        const double *a = s->points + 2 * (size_t)(i - 1), *b = a + 2;
        const double  dx = b[0] - a[0], dy = b[1] - a[1];
        const double  length = hypot(dx, dy);
        const int     steps = 2 * SCALE * (int)ceil(fabs(dx) + fabs(dy)) + 1;

        for (int t = 0; t <= steps; t++) {
            const double at = (double)t / steps;
            if (s->dash > 0 && fmod(way + at * length, 2 * s->dash) > s->dash) continue;
            fill(p, a[0] + at * dx - s->width / 2, a[1] + at * dy - s->width / 2,
                 s->width, s->width, s->colour);
        }
        way += length;
    }
}

uint8_t *picture_png_bytes(const struct picture *p, size_t *n)
{
    struct pixels to = { .width = SCALE * (int64_t)p->width,
                         .height = SCALE * (int64_t)p->height };

    to.rgb = need((size_t)to.width * (size_t)to.height, 3);
    fill(&to, 0, 0, p->width, p->height, PAPER);
    for (int i = 0; i < p->n; i++) {
        const struct picture_shape *s = &p->shapes[i];
        if (s->kind == DRAW_TEXT)
            write_text(&to, s);
        else if (s->kind == DRAW_GRID)
            paint_grid(&to, s);
        else if (s->kind == DRAW_LINE)
            stroke(&to, s);
        else if (s->kind == DRAW_AREA)
            paint_area(&to, s);
        else
            fill(&to, s->x, s->y, s->width, s->height, s->colour);
    }
    uint8_t *bytes = png_bytes(to.width, to.height, to.rgb, n);
    free(to.rgb);
    return bytes;
}

foci_status picture_png(foci_ctx *ctx, const struct picture *p, const char *path)
{
    size_t   n;
    uint8_t *bytes = picture_png_bytes(p, &n);

    const foci_status status = foci_file_write(ctx, path, bytes, n);
    free(bytes);
    return status;
}
