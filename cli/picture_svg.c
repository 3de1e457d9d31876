/* picture_svg.c -- a picture as .svg.
 *
 * The cells of a grid that have one shade are one path of rectangles, each as wide and
 * then as high as it goes: patterns are regular, so files stay small.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/picture.h"
#include "foci/file.h"

struct svg_text {
    char  *bytes;
    size_t n, cap;
};

CLI_PRINTF(2, 3) static void put(struct svg_text *t, const char *format, ...)
{
    enum { MOST = 2048 }; /* of one call */
    va_list list;

    if (t->cap - t->n < MOST) {
        const size_t cap = 2 * t->cap + 2 * (size_t)MOST;
        char        *bytes = need(cap, 1);
        if (t->n) memcpy(bytes, t->bytes, t->n);
        free(t->bytes);
        t->bytes = bytes;
        t->cap = cap;
    }
    va_start(list, format);
    t->n += (size_t)vsnprintf(t->bytes + t->n, t->cap - t->n, format, list);
    va_end(list);
}

static void put_escaped(struct svg_text *t, const char *text)
{
    while (*text) {
        const char    *from = text;
        const uint32_t c = picture_next(&text);
        switch (c) {
        case '&': put(t, "&amp;"); break;
        case '<': put(t, "&lt;"); break;
        case '>': put(t, "&gt;"); break;
        case 0xfffd: put(t, "\xef\xbf\xbd"); break;
        default: put(t, "%.*s", (int)(text - from), from);
        }
    }
}

static void put_text(struct svg_text *t, const struct picture_shape *s)
{
    static const char *const anchors[] = { "start", "middle", "end" };
    static const char *const styles[] = {
        [STYLE_TITLE] = "ui-monospace, monospace' font-size='14' font-weight='bold",
        [STYLE_CODE] = "ui-monospace, monospace' font-size='11",
        [STYLE_PLAIN] = "system-ui, sans-serif' font-size='11",
        [STYLE_UP] = "system-ui, sans-serif' font-size='11",
        [STYLE_CODE_UP] = "ui-monospace, monospace' font-size='11",
    };

    put(t, "<text x='%g' y='%g' font-family='%s' text-anchor='%s' fill='#%06x'", s->x,
        s->y, styles[s->style], anchors[s->anchor], (unsigned)s->colour);
    if (s->style == STYLE_UP || s->style == STYLE_CODE_UP)
        put(t, " transform='rotate(-90 %g %g)'", s->x, s->y);
    put(t, ">");
    put_escaped(t, s->text);
    put(t, "</text>\n");
}

static bool is(const struct grid *g, const uint8_t *done, int x, int y, int shade)
{
    const size_t at = (size_t)y * (size_t)g->columns + (size_t)x;
    return g->shades[at] == shade && !done[at];
}

/* The rectangle from (x, y), marked as done. */
static void put_area(struct svg_text *t, const struct grid *g, uint8_t *done, int x,
                     int y, int shade)
{
    int width = 1, height = 1, same = 1;

    while (x + width < g->columns && is(g, done, x + width, y, shade))
        width++;
    while (y + height < g->rows && same) {
        for (int i = 0; i < width && same; i++)
            same = is(g, done, x + i, y + height, shade);
        height += same;
    }
    for (int i = 0; i < height; i++)
        memset(done + (size_t)(y + i) * (size_t)g->columns + (size_t)x, 1,
               (size_t)width);
    put(t, "M%d %dh%dv%dh-%dz", x, y, width, height, width);
}

static void put_gaps(struct svg_text *t, const struct grid *g)
{
    put(t,
        "<path fill='none' stroke='#%06x' stroke-width='%g' "
        "shape-rendering='geometricPrecision' d='",
        (unsigned)PAPER, g->gap / g->wide);
    for (int x = 1; x < g->columns; x++)
        put(t, "M%d 0v%d", x, g->rows);
    for (int y = 1; y < g->rows; y++)
        put(t, "M0 %dh%d", y, g->columns);
    put(t, "'/>\n");
}

static void put_grid(struct svg_text *t, const struct picture_shape *s)
{
    const struct grid *g = &s->grid;
    uint8_t           *done = need((size_t)g->rows, (size_t)g->columns);

    put(t, "<g transform='translate(%g %g) scale(%d", s->x, s->y, g->wide);
    if (g->tall != g->wide) put(t, " %d", g->tall);
    put(t, ")' shape-rendering='crispEdges'>\n");
    put(t, "<path fill='#%06x' d='M0 0h%dv%dh-%dz'/>\n", (unsigned)shade_colour(0),
        g->columns, g->rows, g->columns);
    for (int shade = 1; shade < ALL_SHADES; shade++) {
        bool any = false;
        for (int y = 0; y < g->rows; y++)
            for (int x = 0; x < g->columns; x++) {
                if (!is(g, done, x, y, shade)) continue;
                if (!any)
                    put(t, "<path fill='#%06x' d='", (unsigned)shade_colour(shade));
                any = true;
                put_area(t, g, done, x, y, shade);
            }
        if (any) put(t, "'/>\n");
    }
    if (g->gap > 0) put_gaps(t, g);
    put(t, "</g>\n");
    free(done);
}

static void put_line(struct svg_text *t, const struct picture_shape *s)
{
    put(t,
        "<polyline fill='none' stroke='#%06x' stroke-width='%g' "
        "stroke-linejoin='round' "
        "stroke-linecap='round' points='",
        (unsigned)s->colour, s->width);
    const double *at = s->points;
    for (int i = 0; i < s->n_points; i++, at += 2)
        put(t, "%s%.1f,%.1f", i ? " " : "", at[0], at[1]);
    put(t, "'/>\n");
}

foci_status picture_svg(foci_ctx *ctx, const struct picture *p, const char *path)
{
    struct svg_text t = { 0 };

    put(&t,
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' "
        "height='%d' role='img'>\n<title>",
        p->width, p->height, p->width, p->height);
    put_escaped(&t, p->title);
    put(&t, "</title>\n<rect width='%d' height='%d' rx='8' fill='#%06x'/>\n", p->width,
        p->height, (unsigned)PAPER);
    for (int i = 0; i < p->n; i++) {
        const struct picture_shape *s = &p->shapes[i];
        if (s->kind == DRAW_TEXT)
            put_text(&t, s);
        else if (s->kind == DRAW_GRID)
            put_grid(&t, s);
        else if (s->kind == DRAW_LINE)
            put_line(&t, s);
        else
            put(&t, "<rect x='%g' y='%g' width='%g' height='%g' fill='#%06x'/>\n", s->x,
                s->y, s->width, s->height, (unsigned)s->colour);
    }
    put(&t, "</svg>\n");

    const foci_status status = foci_file_write(ctx, path, t.bytes, t.n);
    free(t.bytes);
    return status;
}
