/* chart_rows.c -- the picture of a figure whose series are rows: a mean with its interval
 * over an even axis, 0 and the margin of indifference marked, and a word beside. */
#include <math.h>

#include "cli/chart.h"
#include "cli/plot.h"

enum {
    WIDE = 1000,
    OF_FILE = 760,
    NARROW = 350,
    EDGE = 4,
    FILE_HEAD = 34,
    UNDER = 44,
    ROW = 26,
    STACKED = 40, /* a row under its name */
    LETTERS = 40
};

struct drawing {
    const struct chart *c;
    bool                stacked;
    struct picture     *to;
    struct frame        f;
};

/* Intervals may leave the frame, as in chart_draw.c. */
static void set_axis(struct drawing *d)
{
    double inner = 0, low = 0, high = 0;

    for (size_t i = 0; i < d->c->n; i++)
        if (d->c->series[i].n) inner = fmax(inner, fabs(d->c->series[i].points[0].x));
    inner = fmax(2.4 * d->c->margin, 1.8 * inner);
    if (!(inner > 0)) inner = 1;
    for (size_t i = 0; i < d->c->n; i++) {
        if (!d->c->series[i].n) continue;
        const struct chart_point *p = &d->c->series[i].points[0];
        if (isfinite(p->low)) low = fmin(low, p->low);
        if (isfinite(p->high)) high = fmax(high, p->high);
    }
    d->f.steps_x = d->stacked ? 5 : 8;
    frame_even_x(&d->f, fmax(fmin(low, -1.4 * d->c->margin), -inner),
                 fmin(fmax(high, 1.4 * d->c->margin), inner));
    d->f.bare = true;
}

static double clamp(const struct drawing *d, double x)
{
    return frame_x(&d->f, fmin(fmax(x, d->f.left), d->f.right));
}

static void draw_margin(struct drawing *d)
{
    const double left = clamp(d, -d->c->margin), right = clamp(d, d->c->margin);
    const double box[] = { left,  d->f.y,
                           right, d->f.y,
                           right, d->f.y + d->f.height,
                           left,  d->f.y + d->f.height };

    if (d->c->margin > 0) {
        picture_area(d->to, box, 4, LINE, 0.45);
        picture_hint(d->to, "margin of indifference");
    }
}

static void draw_row(struct drawing *d, size_t i)
{
    const struct chart_series *s = &d->c->series[i];
    const int                  row = d->stacked ? STACKED : ROW;
    const double   y = d->f.y + row * ((double)i + 0.5) + (d->stacked ? 7 : 0);
    const uint32_t colour = chart_colour(s->number);

    picture_group(d->to, s->number + 1);
    if (d->stacked)
        chart_label(d->to, d->f.x, y - 11, AT_START, s->name, LETTERS - 6);
    else
        chart_label(d->to, d->f.x - 12, y + 4, AT_END, s->name, LETTERS);
    if (s->word)
        picture_text(d->to, d->to->width - EDGE, d->stacked ? y - 11 : y + 4, AT_END,
                     STYLE_PLAIN, INK, "%s", s->word);
    if (s->n && isfinite(s->points[0].x)) {
        const struct chart_point *p = &s->points[0];
        const double  line[] = { clamp(d, p->low), y, clamp(d, p->high), y };
        char          text[32], low[32], high[32];
        struct markup hint = { 0 };
        if (isfinite(p->low) && isfinite(p->high)) {
            picture_line(d->to, line, 2, 1.6, colour);
            if (p->low > d->f.left) picture_rect(d->to, line[0], y - 4, 1, 8, colour);
            if (p->high < d->f.right) picture_rect(d->to, line[2], y - 4, 1, 8, colour);
        }
        chart_mark(d->to, s->number, clamp(d, p->x), y, 4.4);
        markup_put(&hint, "%s: %s", s->name, chart_number(p->x, text));
        if (isfinite(p->low) && isfinite(p->high))
            markup_put(&hint, " [%s, %s]", chart_number(p->low, low),
                       chart_number(p->high, high));
        picture_hint(d->to, hint.bytes);
        markup_free(&hint);
    }
    picture_group(d->to, 0);
}

struct picture *chart_draw_rows(const struct chart *c, enum chart_form form)
{
    struct drawing d = { .c = c, .stacked = form == CHART_NARROW };
    const int      width = d.stacked ? NARROW : form == CHART_FILE ? OF_FILE : WIDE;
    const int      head = form == CHART_FILE ? FILE_HEAD : 0;
    double         names = 0, words = 0;

    for (size_t i = 0; i < c->n; i++) {
        names = fmax(names, chart_label_width(c->series[i].name, LETTERS));
        if (c->series[i].word)
            words = fmax(words, chart_label_width(c->series[i].word, LETTERS));
    }
    d.f.x = d.stacked ? EDGE : EDGE + names + 12;
    d.f.y = head + 10;
    d.f.width = width - d.f.x - (d.stacked ? EDGE : words + 20);
    d.f.height = (d.stacked ? STACKED : ROW) * (double)c->n;
    d.to = picture_create(width, (int)(d.f.y + d.f.height) + UNDER, c->title);
    set_axis(&d);
    if (form == CHART_FILE)
        picture_text(d.to, EDGE + 8, 26, AT_START, STYLE_TITLE, INK, "%.60s", c->title);
    draw_margin(&d);
    frame_grid(d.to, &d.f, false, c->name_x, "");
    picture_rect(d.to, frame_x(&d.f, 0) - 0.5, d.f.y, 1, d.f.height, SOFT);
    for (size_t i = 0; i < c->n; i++)
        draw_row(&d, i);
    return d.to;
}
