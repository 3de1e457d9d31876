/* analyse_heads_plot.c -- concentration and entropy of heads as a picture: a panel for each, a
 * colour for each layer. */
#include <math.h>
#include <stdlib.h>

#include "cli/analyse_heads.h"
#include "cli/plot.h"

static const struct {
    int         figure;
    const char *name;
} panels[] = { { FOCI_HEAD_CONCENTRATION, "concentration S" },
               { FOCI_HEAD_NORMALISED, "entropy over log n" } };

enum { N_PANELS = sizeof panels / sizeof *panels };

static int64_t most_heads(const struct heads_view *v)
{
    int64_t most = 2;
    for (size_t i = 0; i < v->n; i++)
        most = v->layers[i]->n > most ? v->layers[i]->n : most;
    return most;
}

static void draw_layer(struct picture *to, const struct frame *f,
                       const struct heads_layer *l, int figure, uint32_t colour)
{
    double *x = need((size_t)l->n, 2 * sizeof *x), *y = x + l->n;

    for (int64_t i = 0; i < l->n; i++) {
        foci_head h = { FOCI_SIZED(foci_head) };
        x[i] = (double)i;
        y[i] = l->heads && !foci_heads_get(l->heads, i, &h) ? h.figures[figure] : NAN;
    }
    frame_marks(to, f, x, y, (int)l->n, colour);
    free(x);
}

foci_status heads_draw(const struct heads_view *v, const char *path)
{
    struct frame    f = { .x = MARGIN + LEFT, .y = HEAD };
    const int       n = (int)(v->n < MAX_CURVES ? v->n : MAX_CURVES);
    struct picture *to = picture_create(
        2 * MARGIN + LEFT + N_PANELS * (PANEL_WIDTH + GUTTER) - GUTTER,
        HEAD + PANEL_HEIGHT + BELOW + LEGEND * n + MARGIN, "What heads do");

    frame_even_x(&f, 0, (double)(most_heads(v) - 1));
    frame_even_y(&f, 0, 1);
    picture_text(to, MARGIN, 32, AT_START, STYLE_TITLE, INK, "how evenly heads spread");
    picture_text(to, MARGIN, 51, AT_START, STYLE_PLAIN, SOFT,
                 "%s; 1: all keys weigh the same", v->of);
    for (int p = 0; p < N_PANELS; p++, f.x += PANEL_WIDTH + GUTTER) {
        picture_text(to, f.x, f.y - 10, AT_START, STYLE_PLAIN, INK, "%s",
                     panels[p].name);
        frame_grid(to, &f, !p, "head", "S, and share of log n");
        for (int i = 0; i < n; i++)
            draw_layer(to, &f, v->layers[i], panels[p].figure, curve_colours[i]);
    }
    for (int i = 0; i < n; i++)
        frame_legend(to, HEAD + PANEL_HEIGHT + BELOW + 12 + LEGEND * i, curve_colours[i],
                     v->layers[i]->name ? v->layers[i]->name : "all heads");
    const foci_status status = picture_write(v->ctx, to, path);
    picture_free(to);
    return status;
}
