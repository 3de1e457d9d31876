/* chart_draw.c -- the picture of a figure: curves with their names beside them, points with
 * theirs near by, intervals, floors, and the front of what nothing else beats. */
#include <math.h>
#include <stdlib.h>

#include "cli/chart.h"
#include "cli/plot.h"

enum {
    WIDE = 560,
    NARROW = 350,
    HIGH = 330,
    EDGE = 4,
    TOP = 30, /* above the axes: the name of the one beside */
    BESIDE = 52,
    UNDER = 44,
    FILE_HEAD = 34, /* the title of a file */
    LETTERS = 28    /* of a name, at most */
};

struct drawing {
    const struct chart *c;
    enum chart_form     form;
    struct picture     *to;
    struct frame        f;
    double              names; /* beside the axes, for names of curves */
    int                 used;  /* places of names so far */
    double (*place)[4];        /* [used] left, top, right, bottom */
    double *front;             /* [n_front] x and y of the front; NULL: none */
    int     n_front;
};

static bool is_curve(const struct chart *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->series[i].joined) return true;
    return false;
}

/*
 * Axes
 */

static void widen(double x, double *least, double *most)
{
    if (!isfinite(x)) return;
    *least = fmin(*least, x);
    *most = fmax(*most, x);
}

/* The range of all points, and of intervals, which may leave the frame: an interval of two
 * seeds can be twelve times as long as they are apart, and nothing else would be seen. */
static void ranges(const struct chart *c, double x[2], double y[2])
{
    double inner[2] = { INFINITY, -INFINITY };

    x[0] = y[0] = INFINITY;
    x[1] = y[1] = -INFINITY;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->series[i].n; k++) {
            const struct chart_point *p = &c->series[i].points[k];
            widen(p->x, &x[0], &x[1]);
            widen(p->y, &inner[0], &inner[1]);
            widen(p->low, &y[0], &y[1]);
            widen(p->high, &y[0], &y[1]);
        }
    for (size_t i = 0; i < c->n_levels; i++)
        widen(c->levels[i].y, &inner[0], &inner[1]);
    if (c->y == CHART_EVEN) {
        const double room = fmax(0.6 * (inner[1] - inner[0]), 0.02 * fabs(inner[1]));
        y[0] = fmax(y[0], inner[0] - room);
        y[1] = fmin(y[1], inner[1] + room);
    }
    widen(inner[0], &y[0], &y[1]);
    widen(inner[1], &y[0], &y[1]);
}

static void set_axes(struct drawing *d)
{
    const struct chart *c = d->c;
    double              x[2], y[2];

    ranges(c, x, y);
    d->f.short_numbers = true;
    d->f.steps_x = d->form == CHART_NARROW ? 5 : 7;
    if (c->x == CHART_NAMES)
        frame_names_x(&d->f, (const char *const *)c->names, (int)c->n_names);
    else if (c->x == CHART_EVEN)
        frame_even_x(&d->f, x[0], x[1]);
    else if (c->x == CHART_TWOS)
        frame_twos_x(&d->f, x[0], x[1]);
    else
        frame_tens_x(&d->f, x[0], x[1]);
    if (c->y == CHART_EVEN)
        frame_even_y(&d->f, y[0], y[1]);
    else
        frame_tens_y(&d->f, y[0], y[1]);
}

/* Points of several series over one name stand side by side. */
static double place(const struct drawing *d, size_t series, double x)
{
    const double n = (double)d->c->n;

    if (d->c->x != CHART_NAMES) return frame_x(&d->f, x);
    const double step = fmin(7, 0.7 * d->f.width / (double)d->c->n_names / fmax(n, 1));
    return frame_x(&d->f, x) + ((double)series - (n - 1) / 2) * step;
}

/*
 * Series
 */

static void draw_band(struct drawing *d, const struct chart_series *s)
{
    double *points = need(s->n + 1, 4 * sizeof *points);
    int     n = 0;

    for (size_t i = 0; i < s->n; i++) {
        if (!isfinite(s->points[i].low)) continue;
        points[2 * (size_t)n] = frame_x(&d->f, s->points[i].x);
        points[2 * (size_t)n++ + 1] = frame_y(&d->f, s->points[i].low);
    }
    for (size_t i = s->n; i-- > 0;) {
        if (!isfinite(s->points[i].high)) continue;
        points[2 * (size_t)n] = frame_x(&d->f, s->points[i].x);
        points[2 * (size_t)n++ + 1] = frame_y(&d->f, s->points[i].high);
    }
    if (n > 3) picture_area(d->to, points, n, chart_colour(s->number), 0.13);
    free(points);
}

/* A bar whose ends are capped where they are within the frame; pale, as all bars together would
 * hide the points. */
static void draw_bar(struct drawing *d, size_t series, const struct chart_point *p)
{
    const struct chart_series *s = &d->c->series[series];
    const double               x = place(d, series, p->x), low = frame_y(&d->f, p->low);
    const double               high = frame_y(&d->f, p->high);
    const double               cap_low = low < d->f.y + d->f.height - 0.5 ? 3 : 0.5;
    const double               cap_high = high > d->f.y + 0.5 ? 3 : 0.5;
    const double shape[] = { x - cap_low,  low,      x - cap_low,  low - 1,
                             x - 0.6,      low - 1,  x - 0.6,      high + 1,
                             x - cap_high, high + 1, x - cap_high, high,
                             x + cap_high, high,     x + cap_high, high + 1,
                             x + 0.6,      high + 1, x + 0.6,      low - 1,
                             x + cap_low,  low - 1,  x + cap_low,  low };

    picture_area(d->to, shape, sizeof shape / sizeof *shape / 2,
                 chart_colour(s->number), 0.45);
}

static void draw_line(struct drawing *d, size_t series)
{
    const struct chart_series *s = &d->c->series[series];
    double                    *points = need(s->n + 1, 2 * sizeof *points);
    int                        n = 0;

    for (size_t i = 0; i < s->n; i++) {
        if (!isfinite(s->points[i].y)) continue;
        points[2 * (size_t)n] = place(d, series, s->points[i].x);
        points[2 * (size_t)n++ + 1] = frame_y(&d->f, s->points[i].y);
    }
    const bool dashed = s->dashed || (s->number - 1) / (CHART_COLOURS - 1) % 2 == 1;
    if (n > 1) {
        picture_dashes(d->to, points, n, s->number ? 1.8 : 2.2, dashed ? 4 : 0,
                       chart_colour(s->number));
        picture_hint(d->to, s->name);
    }
    free(points);
}

/* "softmax: 19.3 [18.1, 20.5] at 65.7k" */
static void add_hint(struct drawing *d, const struct chart_series *s,
                     const struct chart_point *p)
{
    char          at[32], y[32], low[32], high[32];
    struct markup text = { 0 };

    markup_put(&text, "%s: %s", s->name, chart_number(p->y, y));
    if (isfinite(p->low) && isfinite(p->high))
        markup_put(&text, " [%s, %s]", chart_number(p->low, low),
                   chart_number(p->high, high));
    markup_put(&text, " at %s",
               d->c->x == CHART_NAMES ? d->c->names[lround(p->x)]
                                      : chart_number(p->x, at));
    picture_hint(d->to, text.bytes);
    markup_free(&text);
}

static void draw_series(struct drawing *d, size_t series)
{
    const struct chart_series *s = &d->c->series[series];

    picture_group(d->to, s->number + 1);
    for (size_t i = 0; !s->band && i < s->n; i++)
        if (isfinite(s->points[i].low) && isfinite(s->points[i].high))
            draw_bar(d, series, &s->points[i]);
    if (s->joined) draw_line(d, series);
    for (size_t i = 0; s->marked && i < s->n; i++) {
        const struct chart_point *p = &s->points[i];
        if (!isfinite(p->y) || !isfinite(p->x)) continue;
        chart_mark(d->to, s->number, place(d, series, p->x), frame_y(&d->f, p->y),
                   is_curve(d->c) ? 3.4 : 4.2);
        add_hint(d, s, p);
    }
    picture_group(d->to, 0);
}

/*
 * Floors, and fronts
 */

static void draw_levels(struct drawing *d)
{
    for (size_t i = 0; i < d->c->n_levels; i++) {
        const struct chart_level *l = &d->c->levels[i];
        const double              y = frame_y(&d->f, l->y), end = d->f.x + d->f.width;
        const double              line[] = { d->f.x, y, end, y };

        picture_dashes(d->to, line, 2, 1.2, 3, SOFT);
        picture_hint(d->to, l->name);
        picture_text(d->to, end - 4, y - 4, AT_END, STYLE_PLAIN, SOFT, "%.40s", l->name);
    }
}

static int upward(const void *a, const void *b)
{
    const struct chart_point *p = a, *q = b;
    return (p->x > q->x) - (p->x < q->x);
}

/* All points with numbers, upward along x; their number. */
static size_t all_points(const struct chart *c, struct chart_point **all)
{
    size_t n = 0, most = 0;

    for (size_t i = 0; i < c->n; i++)
        most += c->series[i].n;
    *all = need(most + 1, sizeof **all);
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->series[i].n; k++)
            if (isfinite(c->series[i].points[k].x) && isfinite(c->series[i].points[k].y))
                (*all)[n++] = c->series[i].points[k];
    qsort(*all, n, sizeof **all, upward);
    return n;
}

/* Steps from one point that is better than all at less cost to the next. */
static void draw_front(struct drawing *d)
{
    struct chart_point *all;
    const size_t        n = all_points(d->c, &all);
    double             *points = need(n + 1, 4 * sizeof *points);
    int                 steps = 0;
    double              best = d->c->lower ? INFINITY : -INFINITY;

    for (size_t i = 0; i < n; i++) {
        const bool last = i + 1 < n && all[i + 1].x <= all[i].x;
        if (d->c->lower ? all[i].y >= best : all[i].y <= best) continue;
        if (last && (d->c->lower ? all[i + 1].y < all[i].y : all[i + 1].y > all[i].y))
            continue;
        if (steps) {
            points[2 * (size_t)steps] = frame_x(&d->f, all[i].x);
            points[2 * (size_t)steps++ + 1] = frame_y(&d->f, best);
        }
        best = all[i].y;
        points[2 * (size_t)steps] = frame_x(&d->f, all[i].x);
        points[2 * (size_t)steps++ + 1] = frame_y(&d->f, best);
    }
    if (steps) {
        points[2 * (size_t)steps] = d->f.x + d->f.width;
        points[2 * (size_t)steps++ + 1] = frame_y(&d->f, best);
        picture_dashes(d->to, points, steps, 1.2, 4, SOFT);
        picture_hint(d->to, "Pareto front");
    }
    d->front = points;
    d->n_front = steps;
    free(all);
}

/*
 * Names
 */

struct name {
    size_t series;
    double y, at; /* where the curve ends, and where its name stands */
};

static int downward(const void *a, const void *b)
{
    const struct name *p = a, *q = b;
    return (p->y > q->y) - (p->y < q->y);
}

/* Names beside the ends of curves, none over another. */
static void spread(struct name *name, size_t n, double top, double bottom)
{
    const double row = CHART_ROW - 2;

    qsort(name, n, sizeof *name, downward);
    for (size_t i = 0; i < n; i++)
        name[i].at = fmax(name[i].y, i ? name[i - 1].at + row : top);
    for (size_t i = n; i-- > 0;)
        name[i].at =
            fmin(name[i].at, i + 1 < n ? name[i + 1].at - row : fmax(bottom, top));
}

static void name_curves(struct drawing *d)
{
    const double right = d->f.x + d->f.width;
    struct name *name = need(d->c->n + 1, sizeof *name);
    size_t       n = 0;

    for (size_t i = 0; i < d->c->n; i++) {
        const struct chart_series *s = &d->c->series[i];
        for (size_t k = s->n; k-- > 0;) {
            if (!isfinite(s->points[k].y)) continue;
            name[n++] = (struct name){ i, frame_y(&d->f, s->points[k].y), 0 };
            break;
        }
    }
    spread(name, n, d->f.y + 4, d->f.y + d->f.height);
    for (size_t i = 0; i < n; i++) {
        const struct chart_series *s = &d->c->series[name[i].series];
        const double last = place(d, name[i].series, s->points[s->n - 1].x);
        const double line[] = { fmin(last + 5, right + 2),
                                name[i].y,
                                right + 4,
                                name[i].y,
                                right + 12,
                                name[i].at };

        picture_group(d->to, s->number + 1);
        picture_line(d->to, line, 3, 0.8, LINE);
        chart_mark(d->to, s->number, right + 18, name[i].at, 3.4);
        chart_label(d->to, right + 26, name[i].at + 4, AT_START, s->name, LETTERS);
        picture_group(d->to, 0);
    }
    free(name);
}

static double overlap(const double a[4], const double b[4])
{
    const double x = fmin(a[2], b[2]) - fmax(a[0], b[0]);
    const double y = fmin(a[3], b[3]) - fmax(a[1], b[1]);
    return x > 0 && y > 0 ? x * y : 0;
}

/* How badly a name would stand there: over other names, over points, off the frame. */
static double badness(const struct drawing *d, const double box[4])
{
    double sum = 0;

    for (int i = 0; i < d->used; i++)
        sum += overlap(box, d->place[i]);
    for (size_t i = 0; i < d->c->n; i++)
        for (size_t k = 0; k < d->c->series[i].n; k++) {
            const struct chart_point *p = &d->c->series[i].points[k];
            const double              x = place(d, i, p->x), y = frame_y(&d->f, p->y);
            const double              mark[] = { x - 5, y - 5, x + 5, y + 5 };
            if (isfinite(p->y)) sum += overlap(box, mark);
        }
    for (int i = 1; i < d->n_front; i++) {
        const double *a = d->front + 2 * (size_t)(i - 1), *b = a + 2;
        const double  line[] = { fmin(a[0], b[0]) - 1, fmin(a[1], b[1]) - 1,
                                 fmax(a[0], b[0]) + 1, fmax(a[1], b[1]) + 1 };
        sum += 0.5 * overlap(box, line);
    }
    if (box[0] < d->f.x || box[2] > d->to->width - EDGE || box[1] < d->f.y - 8 ||
        box[3] > d->f.y + d->f.height)
        sum += 1e4;
    return sum;
}

static void name_point(struct drawing *d, size_t series)
{
    static const double        around[][2] = { { 9, 4 },   { -9, 4 },    { 0, -9 },
                                               { 0, 17 },  { 9, -8 },    { 9, 16 },
                                               { -9, -8 }, { -9, 16 },   { 12, -18 },
                                               { 12, 26 }, { -12, -18 }, { -12, 26 } };
    const struct chart_series *s = &d->c->series[series];
    const double               x = place(d, series, s->points[0].x),
                 y = frame_y(&d->f, s->points[0].y);
    const double width = chart_label_width(s->name, LETTERS);
    double       best = INFINITY, box[4] = { 0 };
    size_t       chosen = 0;

    for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
        const double dx = around[i][0];
        const double left = x + dx - (dx < 0 ? width : dx > 0 ? 0 : width / 2);
        const double top = y + around[i][1] - 10;
        const double tried[] = { left, top, left + width, top + 12 };
        const double bad = badness(d, tried) + (double)i;
        if (bad >= best) continue;
        best = bad;
        chosen = i;
        for (int k = 0; k < 4; k++)
            box[k] = tried[k];
    }
    for (int k = 0; k < 4; k++)
        d->place[d->used][k] = box[k];
    d->used++;
    const double dx = around[chosen][0], to = y + around[chosen][1] - 4;
    const double line[] = { x, y, x + 0.8 * dx, to };
    picture_group(d->to, s->number + 1);
    if (chosen > 3) picture_line(d->to, line, 2, 0.8, chart_colour(s->number));
    chart_label(d->to, x + dx, y + around[chosen][1],
                dx < 0   ? AT_END
                : dx > 0 ? AT_START
                         : AT_MIDDLE,
                s->name, LETTERS);
    picture_group(d->to, 0);
}

static void name_points(struct drawing *d)
{
    d->place = need(d->c->n + 1, sizeof *d->place);
    for (size_t i = 0; i < d->c->n; i++) {
        const struct chart_series *s = &d->c->series[i];
        if (s->n && isfinite(s->points[0].x) && isfinite(s->points[0].y))
            name_point(d, i);
    }
    free(d->place);
}

/* In so many columns there are so many rows of the legend. */
static size_t columns_of(const struct drawing *d)
{
    return d->form == CHART_NARROW ? 1 : 2;
}

static size_t rows_of(const struct drawing *d)
{
    return (d->c->n + columns_of(d) - 1) / columns_of(d);
}

/* All series, below the axes. */
static void draw_legend(struct drawing *d)
{
    for (size_t i = 0; i < d->c->n; i++) {
        const size_t column = i / rows_of(d);
        const double x = d->f.x + (double)column * d->f.width / (double)columns_of(d);
        const double y =
            d->f.y + d->f.height + UNDER + 12 + CHART_ROW * (double)(i % rows_of(d));
        picture_group(d->to, d->c->series[i].number + 1);
        chart_mark(d->to, d->c->series[i].number, x + 6, y - 4, 3.8);
        chart_label(d->to, x + 18, y, AT_START, d->c->series[i].name, LETTERS + 4);
        picture_group(d->to, 0);
    }
}

/*
 * The whole
 */

/* Points with intervals or of many to a series have no names near by, but a legend. */
static bool has_legend(const struct drawing *d)
{
    if (d->form == CHART_NARROW) return d->c->n > 1;
    for (size_t i = 0; i < d->c->n; i++)
        if (!d->c->series[i].joined && d->c->series[i].n > 1) return true;
    return false;
}

static void lay_out(struct drawing *d)
{
    const int    head = d->form == CHART_FILE ? FILE_HEAD : 0;
    const bool   legend = has_legend(d);
    const double beside = is_curve(d->c) && !legend ? 26 + EDGE + d->names : 16;
    const int    width = d->form == CHART_NARROW ? NARROW : WIDE;
    const int    below = legend ? (int)rows_of(d) * CHART_ROW + 8 : 0;
    const int    tall = d->form == CHART_NARROW ? 220 : HIGH - TOP - UNDER;

    d->f.x = BESIDE;
    d->f.y = head + TOP;
    d->f.width = width - BESIDE - beside;
    d->f.height = tall;
    d->to = picture_create(width, head + TOP + tall + UNDER + below, d->c->title);
}

struct picture *chart_draw(const struct chart *c, enum chart_form form)
{
    struct drawing d = { .c = c, .form = form };

    if (c->rows) return chart_draw_rows(c, form);
    for (size_t i = 0; i < c->n; i++)
        d.names = fmax(d.names, chart_label_width(c->series[i].name, LETTERS));
    lay_out(&d);
    set_axes(&d);
    if (form == CHART_FILE)
        picture_text(d.to, EDGE + 8, 26, AT_START, STYLE_TITLE, INK, "%.60s", c->title);
    picture_text(d.to, EDGE + 8, d.f.y - 14, AT_START, STYLE_PLAIN, SOFT, "%s",
                 c->name_y);
    frame_grid(d.to, &d.f, true, c->name_x, "");
    for (size_t i = 0; i < c->n; i++) {
        picture_group(d.to, c->series[i].number + 1);
        if (c->series[i].band) draw_band(&d, &c->series[i]);
        picture_group(d.to, 0);
    }
    draw_levels(&d);
    if (c->front) draw_front(&d);
    for (size_t i = c->n; i-- > 0;)
        draw_series(&d, i);
    if (has_legend(&d))
        draw_legend(&d);
    else if (is_curve(c))
        name_curves(&d);
    else
        name_points(&d);
    free(d.front);
    return d.to;
}
