/* picture_png.c -- a picture as .png, two pixels a unit.
 *
 * Letters and curves are drawn with a round pen: how much of a pixel the pen covers follows
 * from how far its middle is from the line.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/picture.h"
#include "foci/file.h"

enum { SCALE = 2 };

struct pixels {
    int64_t  width, height;
    uint8_t *rgb;
    float *cover; /* [height][width] how much of each pixel the pen has covered, 0 between
                     * shapes */
    int64_t left, right, top, bottom; /* what it may have covered */
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

/*
 * The pen
 */

static void lift_pen(struct pixels *p)
{
    p->left = p->width;
    p->top = p->height;
    p->right = p->bottom = 0;
}

static double distance(double x, double y, const double *a, const double *b)
{
    const double dx = b[0] - a[0], dy = b[1] - a[1], length = dx * dx + dy * dy;
    double       at = length > 0 ? ((x - a[0]) * dx + (y - a[1]) * dy) / length : 0;

    at = fmin(fmax(at, 0), 1);
    return hypot(x - a[0] - at * dx, y - a[1] - at * dy);
}

static int64_t within(double x, int64_t most)
{
    return x < 0 ? 0 : x > (double)most ? most : (int64_t)x;
}

/* A line from a to b, in pixels, by a pen of that radius. */
static void cover(struct pixels *p, const double *a, const double *b, double radius)
{
    const double  far = radius + 1;
    const int64_t left = within(fmin(a[0], b[0]) - far, p->width);
    const int64_t right = within(ceil(fmax(a[0], b[0]) + far), p->width);
    const int64_t top = within(fmin(a[1], b[1]) - far, p->height);
    const int64_t bottom = within(ceil(fmax(a[1], b[1]) + far), p->height);

    for (int64_t y = top; y < bottom; y++)
        for (int64_t x = left; x < right; x++) {
            const double d = distance((double)x + 0.5, (double)y + 0.5, a, b);
            float       *to = &p->cover[y * p->width + x];
            *to = fmaxf(*to, (float)fmin(fmax(radius + 0.5 - d, 0), 1));
        }
    p->left = left < p->left ? left : p->left;
    p->right = right > p->right ? right : p->right;
    p->top = top < p->top ? top : p->top;
    p->bottom = bottom > p->bottom ? bottom : p->bottom;
}

/* Colour what the pen has covered, and forget it. */
static void ink(struct pixels *p, uint32_t colour)
{
    for (int64_t y = p->top; y < p->bottom; y++)
        for (int64_t x = p->left; x < p->right; x++) {
            float   *from = &p->cover[y * p->width + x];
            uint8_t *to = p->rgb + 3 * (y * p->width + x);
            for (int c = 0; c < 3 && *from > 0; c++) {
                const int full = (int)(colour >> (16 - 8 * c) & 255);
                to[c] = (uint8_t)lroundf((float)to[c] + *from * (float)(full - to[c]));
            }
            *from = 0;
        }
    lift_pen(p);
}

/*
 * Text
 */

/* Where letters stand. */
struct line_of_text {
    struct pixels *p;
    double         x, y, unit, radius; /* the baseline, in pixels; a unit of the font */
    double         at;                 /* units from there */
    bool           up;
};

static void write_stroke(void *user, const double *points, int n, double weight)
{
    struct line_of_text *l = user;
    double               last[2] = { 0, 0 };

    for (int i = 0; i < n; i++, points += 2) {
        const double along = l->unit * (l->at + points[0]);
        const double above = l->unit * points[1];
        const double to[2] = { l->up ? l->x - above : l->x + along,
                               l->up ? l->y - along : l->y - above };
        if (i || n == 1) cover(l->p, i ? last : to, to, weight * l->radius);
        memcpy(last, to, sizeof last);
    }
}

static void write_text(struct pixels *p, const struct picture_shape *s)
{
    const bool title = s->style == STYLE_TITLE;
    const bool even = title || s->style == STYLE_CODE || s->style == STYLE_CODE_UP;
    struct line_of_text l = { .p = p,
                              .x = (double)lround(SCALE * s->x),
                              .y = (double)lround(SCALE * s->y),
                              .unit = title ? 14.0 / 11 : 1,
                              .radius = title ? 1.9 : 1,
                              .up = s->style == STYLE_UP || s->style == STYLE_CODE_UP };
    double              length = 0;

    for (const char *text = s->text; *text;)
        length += font_advance(picture_next(&text), even);
    if (s->anchor != AT_START) l.at = -length / (s->anchor == AT_END ? 1 : 2);
    l.at = floor(l.at);
    for (const char *text = s->text; *text;) {
        const uint32_t c = picture_next(&text);
        font_letter(c, even, write_stroke, &l);
        l.at += font_advance(c, even);
    }
    ink(p, s->colour);
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
    double *share = need((size_t)p->width + 1, sizeof *share);

    for (int64_t row = 0; row < p->height; row++) {
        bool any = false;
        for (int line = 0; line < LINES; line++) {
            const int n = crossings(s, ((double)row + (line + 0.5) / LINES) / SCALE, x);
            for (int i = 0; i + 1 < n; i += 2) {
                const double from = fmax(SCALE * x[i], 0);
                const double to = fmin(SCALE * x[i + 1], (double)p->width);
                for (int64_t at = (int64_t)from; (double)at < to; at++)
                    share[at] += fmin((double)at + 1, to) - fmax((double)at, from);
                any = true;
            }
        }
        for (int64_t at = 0; any && at < p->width; at++) {
            if (share[at] > 0)
                blend(p, at, row, s->colour, s->opacity * fmin(share[at] / LINES, 1));
            share[at] = 0;
        }
    }
    free(share);
    free(x);
}

/* Pieces of a line as long as the gaps between them, `way` behind the beginning of a piece; how
 * far behind one its end is. */
static double cover_dashes(struct pixels *p, const double *a, const double *b,
                           double radius, double dash, double way)
{
    const double length = hypot(b[0] - a[0], b[1] - a[1]);

    if (!(length > 0)) return way;
    for (double at = -way; at < length; at += 2 * dash) {
        const double from = fmax(at, 0) / length, to = fmin(at + dash, length) / length;
        if (at + dash <= 0) continue;
        const double ends[2][2] = {
            { a[0] + from * (b[0] - a[0]), a[1] + from * (b[1] - a[1]) },
            { a[0] + to * (b[0] - a[0]), a[1] + to * (b[1] - a[1]) },
        };
        cover(p, ends[0], ends[1], radius);
    }
    return fmod(way + length, 2 * dash);
}

static void stroke(struct pixels *p, const struct picture_shape *s)
{
    double way = 0; /* so far */

    for (int i = 1; i < s->n_points; i++) {
        const double *a = s->points + 2 * (size_t)(i - 1), *b = a + 2;
        const double  from[2] = { SCALE * a[0], SCALE * a[1] };
        const double  to[2] = { SCALE * b[0], SCALE * b[1] };
        if (s->dash > 0)
            way = cover_dashes(p, from, to, SCALE * s->width / 2, SCALE * s->dash, way);
        else
            cover(p, from, to, SCALE * s->width / 2);
    }
    ink(p, s->colour);
}

uint8_t *picture_png_bytes(const struct picture *p, size_t *n)
{
    struct pixels to = { .width = SCALE * (int64_t)p->width,
                         .height = SCALE * (int64_t)p->height };

    to.rgb = need((size_t)to.width * (size_t)to.height, 3);
    to.cover = need((size_t)to.width * (size_t)to.height, sizeof *to.cover);
    lift_pen(&to);
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
    free(to.cover);
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
