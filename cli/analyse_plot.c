/* analyse_plot.c -- errors of outputs along the axis as a picture: a panel for what mechanisms are
 * compared on, a line for each, both axes logarithmic; that of an argument which takes 0 is even. */
#include <math.h>

#include "cli/analyse_error.h"
#include "cli/plot.h"

static void set_axes(const struct errors *e, struct frame *f)
{
    double low = 1, high = 1, least = e->values.x[0], most = least;

    for (int i = 0; i < e->values.n; i++) {
        least = fmin(least, e->values.x[i]);
        most = fmax(most, e->values.x[i]);
        for (int c = 0; c < e->n; c++)
            if (e->curves[c].errors[i] > 0 && isfinite(e->curves[c].errors[i])) {
                low = fmin(low, e->curves[c].errors[i]);
                high = fmax(high, e->curves[c].errors[i]);
            }
    }
    frame_axes(f, least, most, low, high);
    if (least <= 0) frame_even_x(f, least, most);
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
    for (int c = 0; c < e->n; c++)
        if (!c || e->curves[c].spec != e->curves[c - 1].spec)
            frame_legend(to, y + LEGEND * spec_of(e, c), curve_colours[spec_of(e, c)],
                         e->curves[c].spec);
}

static const char *panel_name(const struct error_source *s)
{
    if (!s->drawn) return s->name;
    return s->clustered ? "queries and keys in clusters" : "normal queries and keys";
}

foci_status errors_draw(const struct errors *e, const char *path)
{
    const int       legend = LEGEND * (spec_of(e, e->n - 1) + 1);
    struct picture *to = picture_create(
        2 * MARGIN + LEFT + e->n_sources * (PANEL_WIDTH + GUTTER) - GUTTER,
        HEAD + PANEL_HEIGHT + BELOW + legend + MARGIN, "Errors against softmax");
    struct frame f = { .x = MARGIN + LEFT, .y = HEAD };
    char         axis[128], extents[256];

    set_axes(e, &f);
    errors_axis(e, axis, sizeof axis);
    picture_text(to, MARGIN, 32, AT_START, STYLE_TITLE, INK, "errors against softmax");
    errors_extents(e, extents, sizeof extents);
    picture_text(to, MARGIN, 51, AT_START, STYLE_PLAIN, SOFT,
                 "%s, seed %lld; |o - softmax| / |softmax|", extents,
                 (long long)e->seed);
    for (int source = 0; source < e->n_sources; source++) {
        picture_text(to, f.x, f.y - 10, AT_START, STYLE_PLAIN, INK, "%s",
                     panel_name(&e->sources[source]));
        frame_grid(to, &f, f.x == MARGIN + LEFT, axis, "relative error of the output");
        for (int c = 0; c < e->n; c++)
            if (e->curves[c].source == source)
                frame_curve(to, &f, e->values.x, e->curves[c].errors, e->values.n, true,
                            curve_colours[spec_of(e, c)]);
        f.x += PANEL_WIDTH + GUTTER;
    }
    draw_legend(to, e, HEAD + PANEL_HEIGHT + BELOW + 12);
    const foci_status status = picture_write(e->ctx, to, path);
    picture_free(to);
    return status;
}
