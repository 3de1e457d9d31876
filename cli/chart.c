/* chart.c -- figures of a report as data: series, levels, tables. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/chart.h"

/* Told apart with any kind of colour blindness, but for two pairs that their marks tell
 * apart; a page has others for dark ones. */
const uint32_t chart_colours[CHART_COLOURS] = { 0x1f2933, 0x1f5fb4, 0xd9662b,
                                                0x12936f, 0xc2408f, 0xe0a100,
                                                0x4fb0e0, 0x7a4a1e, 0x7b2fd6 };

static char *copy(const char *text)
{
    char *c = need(strlen(text) + 1, 1);
    return strcpy(c, text);
}

struct chart *chart_create(const char *id, const char *title, const char *name_x,
                           const char *name_y)
{
    struct chart *c = need(1, sizeof *c);

    c->id = copy(id);
    c->title = copy(title);
    c->name_x = copy(name_x);
    c->name_y = copy(name_y);
    return c;
}

void chart_drop(struct chart *c)
{
    const struct chart_series *s = &c->series[--c->n];

    free(s->name);
    free(s->word);
    free(s->points);
}

void chart_free(struct chart *c)
{
    while (c->n)
        chart_drop(c);
    for (size_t i = 0; i < c->n_levels; i++)
        free(c->levels[i].name);
    for (size_t i = 0; i < c->n_names; i++)
        free(c->names[i]);
    free(c->series);
    free(c->levels);
    free((void *)c->names);
    free(c->id);
    free(c->title);
    free(c->note);
    free(c->name_x);
    free(c->name_y);
    free(c);
}

void chart_note(struct chart *c, const char *format, ...)
{
    char    text[1024];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    free(c->note);
    c->note = copy(text);
}

struct chart_series *chart_add(struct chart *c, const char *name, int number)
{
    c->series = need_one_more(c->series, c->n, &c->cap, sizeof *c->series);
    struct chart_series *s = &c->series[c->n++];
    *s = (struct chart_series){ .name = copy(name), .number = number };
    return s;
}

void chart_put(struct chart_series *s, double x, double y, double low, double high)
{
    s->points = need_one_more(s->points, s->n, &s->cap, sizeof *s->points);
    s->points[s->n++] = (struct chart_point){ x, y, low, high };
}

void chart_level(struct chart *c, const char *name, double y)
{
    c->levels =
        need_one_more(c->levels, c->n_levels, &c->cap_levels, sizeof *c->levels);
    c->levels[c->n_levels++] = (struct chart_level){ copy(name), y };
}

void chart_name(struct chart *c, const char *name)
{
    c->names =
        need_one_more((void *)c->names, c->n_names, &c->cap_names, sizeof *c->names);
    c->names[c->n_names++] = copy(name);
}

static bool fits(enum chart_scale scale, double x)
{
    return isfinite(x) && (x > 0 || scale == CHART_EVEN || scale == CHART_NAMES);
}

/* A row stays, with nothing but its name, when it has no number. */
static bool settle_series(const struct chart *c, struct chart_series *s)
{
    bool   any = false;
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++) {
        struct chart_point p = s->points[i];
        if (!c->rows && !fits(c->x, p.x)) continue;
        if (!fits(c->y, p.y)) p.y = NAN;
        if (!fits(c->rows ? c->x : c->y, p.low)) p.low = NAN;
        if (!fits(c->rows ? c->x : c->y, p.high)) p.high = NAN;
        any = any || (isfinite(p.x) && isfinite(p.y));
        s->points[n++] = p;
    }
    s->n = n;
    return any;
}

bool chart_settle(struct chart *c)
{
    bool   any = false;
    size_t n = 0;

    for (size_t i = 0; i < c->n; i++)
        any = settle_series(c, &c->series[i]) || any;
    for (size_t i = 0; i < c->n_levels; i++)
        if (fits(c->y, c->levels[i].y))
            c->levels[n++] = c->levels[i];
        else
            free(c->levels[i].name);
    c->n_levels = n;
    return any;
}

const char *chart_number(double x, char text[32])
{
    static const char *const prefixes[] = { "", "k", "M", "G", "T", "P" };
    int                      i = 0;

    while (fabs(x) >= 9999.5 && i < 5) {
        x /= 1000;
        i++;
    }
    snprintf(text, 32, fabs(x) >= 999.5 ? "%.0f%s" : "%.4g%s", x, prefixes[i]);
    return text;
}

/*
 * Tables
 */

static void add_text(json_t *row, const char *text)
{
    char *visible = markup_visible(text);
    json_array_append_new(row, json_string(visible));
    free(visible);
}

static void add_number(json_t *row, double x)
{
    char text[32] = "";

    if (isfinite(x)) snprintf(text, sizeof text, "%.6g", x);
    json_array_append_new(row, json_string(text));
}

static bool has_intervals(const struct chart *c)
{
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->series[i].n; k++)
            if (isfinite(c->series[i].points[k].low)) return true;
    return false;
}

static void add_point(const struct chart *c, json_t *table, const struct chart_series *s,
                      const struct chart_point *p, bool intervals)
{
    json_t *row = json_array();

    add_text(row, s->name);
    if (c->x == CHART_NAMES && !c->rows)
        add_text(row, c->names[lround(p->x)]);
    else
        add_number(row, p->x);
    if (!c->rows) add_number(row, p->y);
    if (intervals) add_number(row, p->low);
    if (intervals) add_number(row, p->high);
    if (c->rows) add_text(row, s->word ? s->word : "");
    json_array_append_new(table, row);
}

json_t *chart_table(const struct chart *c)
{
    const bool intervals = has_intervals(c);
    json_t    *table = json_array(), *head = json_array();

    json_array_append_new(table, head);
    add_text(head, "series");
    add_text(head, c->name_x);
    if (!c->rows) add_text(head, c->name_y);
    if (intervals) add_text(head, "low");
    if (intervals) add_text(head, "high");
    if (c->rows) add_text(head, "verdict");
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->series[i].n; k++)
            add_point(c, table, &c->series[i], &c->series[i].points[k], intervals);
    for (size_t i = 0; i < c->n_levels; i++) {
        json_t *row = json_array();
        add_text(row, c->levels[i].name);
        add_text(row, "");
        add_number(row, c->levels[i].y);
        if (intervals) add_text(row, "");
        if (intervals) add_text(row, "");
        json_array_append_new(table, row);
    }
    return table;
}

void chart_csv(struct markup *to, const json_t *table)
{
    size_t  i, k;
    json_t *row, *cell;

    json_array_foreach(table, i, row)
    {
        json_array_foreach(row, k, cell)
        {
            if (k) markup_put(to, ",");
            markup_csv(to, json_string_value(cell));
        }
        markup_put(to, "\n");
    }
}

/*
 * What pictures share
 */

uint32_t chart_colour(int number)
{
    if (number < 0) return SOFT;
    return chart_colours[number ? 1 + (number - 1) % (CHART_COLOURS - 1) : 0];
}

/* A polygon around 0 of size 1: a disc, a square, a diamond, triangles. */
static int outline(int kind, double *points)
{
    static const double square[] = { -.85, -.85, .85, -.85, .85, .85, -.85, .85 };
    static const double diamond[] = { 0, -1.25, 1.25, 0, 0, 1.25, -1.25, 0 };
    static const double up[] = { 0, -1.2, 1.15, .85, -1.15, .85 };
    static const double down[] = { 0, 1.2, 1.15, -.85, -1.15, -.85 };
    enum { CORNERS = 16 };

    switch (kind) {
    case 1: memcpy(points, square, sizeof square); return 4;
    case 2: memcpy(points, diamond, sizeof diamond); return 4;
    case 3: memcpy(points, up, sizeof up); return 3;
    case 4: memcpy(points, down, sizeof down); return 3;
    default: break;
    }
    for (int i = 0; i < CORNERS; i++) {
        const double angle = 2 * acos(-1) * i / CORNERS;
        points[2 * (size_t)i] = cos(angle);
        points[2 * (size_t)i + 1] = sin(angle);
    }
    return CORNERS;
}

void chart_mark(struct picture *to, int number, double x, double y, double size)
{
    double    points[32];
    const int n = outline(number < 0 ? 0 : number % 5, points);

    for (int i = 0; i < n; i++) {
        points[2 * (size_t)i] = x + size * points[2 * (size_t)i];
        points[2 * (size_t)i + 1] = y + size * points[2 * (size_t)i + 1];
    }
    picture_area(to, points, n, chart_colour(number), 1);
}

/* So many characters of UTF-8, and an ellipsis if there are more; to be freed. */
static char *cut(const char *text, size_t most)
{
    char  *visible = markup_visible(text);
    size_t n = 0;

    for (char *p = visible; *p; p++) {
        if (((unsigned char)*p & 0xc0) == 0x80) continue;
        if (++n < most || !p[1]) continue;
        size_t rest = 0; /* of characters from here on */
        for (const char *q = p; *q; q++)
            rest += ((unsigned char)*q & 0xc0) != 0x80;
        if (rest < 2) continue;
        char *longer = need((size_t)(p - visible) + 4, 1);
        memcpy(longer, visible, (size_t)(p - visible));
        strcpy(longer + (p - visible), "\xe2\x80\xa6");
        free(visible);
        return longer;
    }
    return visible;
}

void chart_label(struct picture *to, double x, double y, enum anchor anchor,
                 const char *text, size_t most)
{
    char *shown = cut(text, most);

    picture_text(to, x, y, anchor, STYLE_PLAIN, INK, "%s", shown);
    if (strcmp(shown, text) != 0) picture_hint(to, text);
    free(shown);
}

double chart_label_width(const char *text, size_t most)
{
    char  *shown = cut(text, most);
    size_t n = 0;

    for (const char *p = shown; *p; p++)
        n += ((unsigned char)*p & 0xc0) != 0x80;
    free(shown);
    return 6.2 * (double)n;
}
