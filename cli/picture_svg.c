/* picture_svg.c -- a picture as .svg.
 *
 * The cells of a grid that have one shade are one path of rectangles, each as wide and
 * then as high as it goes: patterns are regular, so files stay small.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/picture.h"
#include "foci/file.h"

/* In a page colours are variables, so that there is a dark one, and every shape of a group is
 * of its class. */
struct drawing {
    struct markup *to;
    bool           in_page;
};

static void put_colour(const struct drawing *d, const char *what, uint32_t colour)
{
    if (d->in_page)
        markup_put(d->to, " %s='var(--c%06x)'", what, (unsigned)colour);
    else
        markup_put(d->to, " %s='#%06x'", what, (unsigned)colour);
}

/* The beginning of an element. */
static void open_element(const struct drawing *d, const struct picture_shape *s,
                         const char *name)
{
    markup_put(d->to, "<%s", name);
    if (d->in_page && s->group) markup_put(d->to, " class='g g%d'", s->group);
}

/* Its end, with what is said of the shape. */
static void close_element(const struct drawing *d, const struct picture_shape *s,
                          const char *name)
{
    if (s->hint) {
        markup_put(d->to, "><title>");
        markup_text(d->to, s->hint);
        markup_put(d->to, "</title></%s>\n", name);
    } else {
        markup_put(d->to, "/>\n");
    }
}

static void put_text(const struct drawing *d, const struct picture_shape *s)
{
    static const char *const anchors[] = { "start", "middle", "end" };
    static const char *const styles[] = {
        [STYLE_TITLE] = "ui-monospace, monospace' font-size='14' font-weight='bold",
        [STYLE_CODE] = "ui-monospace, monospace' font-size='11",
        [STYLE_PLAIN] = "system-ui, sans-serif' font-size='11",
        [STYLE_UP] = "system-ui, sans-serif' font-size='11",
        [STYLE_CODE_UP] = "ui-monospace, monospace' font-size='11",
    };
    static const char *const classes[] = { [STYLE_TITLE] = "title",
                                           [STYLE_CODE] = "code",
                                           [STYLE_PLAIN] = "plain",
                                           [STYLE_UP] = "plain",
                                           [STYLE_CODE_UP] = "code" };

    markup_put(d->to, "<text x='%g' y='%g'", s->x, s->y);
    if (d->in_page && s->group)
        markup_put(d->to, " class='%s g g%d'", classes[s->style], s->group);
    else if (d->in_page)
        markup_put(d->to, " class='%s'", classes[s->style]);
    else
        markup_put(d->to, " font-family='%s'", styles[s->style]);
    markup_put(d->to, " text-anchor='%s'", anchors[s->anchor]);
    put_colour(d, "fill", s->colour);
    if (s->style == STYLE_UP || s->style == STYLE_CODE_UP)
        markup_put(d->to, " transform='rotate(-90 %g %g)'", s->x, s->y);
    markup_put(d->to, ">");
    if (s->hint) {
        markup_put(d->to, "<title>");
        markup_text(d->to, s->hint);
        markup_put(d->to, "</title>");
    }
    markup_text(d->to, s->text);
    markup_put(d->to, "</text>\n");
}

static bool is(const struct grid *g, const uint8_t *done, int x, int y, int shade)
{
    const size_t at = (size_t)y * (size_t)g->columns + (size_t)x;
    return g->shades[at] == shade && !done[at];
}

/* The rectangle from (x, y), marked as done. */
static void put_cells(struct markup *t, const struct grid *g, uint8_t *done, int x,
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
    markup_put(t, "M%d %dh%dv%dh-%dz", x, y, width, height, width);
}

static void put_gaps(struct markup *t, const struct grid *g)
{
    markup_put(t,
               "<path fill='none' stroke='#%06x' stroke-width='%g' "
               "shape-rendering='geometricPrecision' d='",
               (unsigned)PAPER, g->gap / g->wide);
    for (int x = 1; x < g->columns; x++)
        markup_put(t, "M%d 0v%d", x, g->rows);
    for (int y = 1; y < g->rows; y++)
        markup_put(t, "M0 %dh%d", y, g->columns);
    markup_put(t, "'/>\n");
}

static void put_grid(struct markup *t, const struct picture_shape *s)
{
    const struct grid *g = &s->grid;
    uint8_t           *done = need((size_t)g->rows, (size_t)g->columns);

    markup_put(t, "<g transform='translate(%g %g) scale(%d", s->x, s->y, g->wide);
    if (g->tall != g->wide) markup_put(t, " %d", g->tall);
    markup_put(t, ")' shape-rendering='crispEdges'>\n");
    markup_put(t, "<path fill='#%06x' d='M0 0h%dv%dh-%dz'/>\n",
               (unsigned)shade_colour(0), g->columns, g->rows, g->columns);
    for (int shade = 1; shade < ALL_SHADES; shade++) {
        bool any = false;
        for (int y = 0; y < g->rows; y++)
            for (int x = 0; x < g->columns; x++) {
                if (!is(g, done, x, y, shade)) continue;
                if (!any)
                    markup_put(t, "<path fill='#%06x' d='",
                               (unsigned)shade_colour(shade));
                any = true;
                put_cells(t, g, done, x, y, shade);
            }
        if (any) markup_put(t, "'/>\n");
    }
    if (g->gap > 0) put_gaps(t, g);
    markup_put(t, "</g>\n");
    free(done);
}

static void put_points(const struct drawing *d, const struct picture_shape *s)
{
    const double *at = s->points;

    markup_put(d->to, " points='");
    for (int i = 0; i < s->n_points; i++, at += 2)
        markup_put(d->to, "%s%.1f,%.1f", i ? " " : "", at[0], at[1]);
    markup_put(d->to, "'");
}

static void put_line(const struct drawing *d, const struct picture_shape *s)
{
    open_element(d, s, "polyline");
    markup_put(d->to, " fill='none'");
    put_colour(d, "stroke", s->colour);
    markup_put(d->to,
               " stroke-width='%g' stroke-linejoin='round' stroke-linecap='round'",
               s->width);
    if (s->dash > 0) markup_put(d->to, " stroke-dasharray='%g'", s->dash);
    put_points(d, s);
    close_element(d, s, "polyline");
}

static void put_area(const struct drawing *d, const struct picture_shape *s)
{
    open_element(d, s, "polygon");
    put_colour(d, "fill", s->colour);
    if (s->opacity < 1) markup_put(d->to, " fill-opacity='%g'", s->opacity);
    put_points(d, s);
    close_element(d, s, "polygon");
}

static void put_rect(const struct drawing *d, const struct picture_shape *s)
{
    open_element(d, s, "rect");
    markup_put(d->to, " x='%g' y='%g' width='%g' height='%g'", s->x, s->y, s->width,
               s->height);
    put_colour(d, "fill", s->colour);
    close_element(d, s, "rect");
}

static void put_shape(const struct drawing *d, const struct picture_shape *s)
{
    switch (s->kind) {
    case DRAW_TEXT: put_text(d, s); break;
    case DRAW_GRID: put_grid(d->to, s); break;
    case DRAW_LINE: put_line(d, s); break;
    case DRAW_AREA: put_area(d, s); break;
    case DRAW_RECT: put_rect(d, s); break;
    }
}

void picture_put_svg(struct markup *to, const struct picture *p, bool in_page)
{
    const struct drawing d = { to, in_page };

    if (in_page) {
        markup_put(to, "<svg viewBox='0 0 %d %d' role='img' aria-label=\"", p->width,
                   p->height);
        markup_text(to, p->title);
        markup_put(to, "\">\n");
    } else {
        markup_put(to,
                   "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' "
                   "width='%d' height='%d' role='img'>\n<title>",
                   p->width, p->height, p->width, p->height);
        markup_text(to, p->title);
        markup_put(to, "</title>\n<rect width='%d' height='%d' rx='8' fill='#%06x'/>\n",
                   p->width, p->height, (unsigned)PAPER);
    }
    for (int i = 0; i < p->n; i++)
        put_shape(&d, &p->shapes[i]);
    markup_put(to, "</svg>\n");
}

foci_status picture_svg(foci_ctx *ctx, const struct picture *p, const char *path)
{
    struct markup t = { 0 };

    picture_put_svg(&t, p, false);
    const foci_status status = foci_file_write(ctx, path, t.bytes, t.n);
    markup_free(&t);
    return status;
}
