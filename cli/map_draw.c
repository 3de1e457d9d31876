/* map_draw.c -- the picture of a map: a heat map for each panel, queries from top to
 * bottom and keys from left to right, with one scale of shades for all.
 *
 * The shade of a pair is the square root of its weight over the largest there is: the
 * weights of a long row are small, and would be lost on a straight scale.  Where there
 * are more pairs than fit, a cell is the mean of several.  Cells are square, but where
 * that would make a thin line of a few queries or keys they are stretched across it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/map.h"
#include "cli/picture.h"

enum {
    MARGIN = 24,
    HEAD = 64,   /* above the panels: title and subtitle */
    FOOT = 52,   /* below them: the scale */
    LABEL = 20,  /* above a panel, where there are several */
    LEFT = 40,   /* beside it: numbers of queries */
    BELOW = 34,  /* numbers of keys */
    GUTTER = 20, /* between panels */
    NARROWEST = 480,
    NARROWEST_BELOW = 540, /* with a scale for what is below 0 */
    MOST_TITLE = 96,       /* letters that make a picture wider */
    MOST_CELL = 24,
    THINNEST = 48, /* a side of a panel that is less is stretched, if it has the cells */
    WORD = 32,     /* length of "query" */
    SEEN = 20,     /* the shade of a pair that is merely seen */
};

/* Queries from top to bottom, or keys from left to right. */
struct map_side {
    int step;   /* so many in a cell */
    int cell;   /* its length */
    int cells;  /* how many */
    int length; /* of all */
};

struct layout {
    int             columns, rows; /* of panels */
    struct map_side keys, queries;
    int             across, down; /* from panel to panel */
    int             label;        /* room above each */
};

static struct map_side side_of(int n, int step, int cell)
{
    const int cells = (n + step - 1) / step;
    return (struct map_side){ step, cell, cells, cells * cell };
}

/* Cells as large as the room allows. */
static struct map_side side_within(int n, int room)
{
    const int step = (n + room - 1) / room;
    const int cell = room / ((n + step - 1) / step);
    return side_of(n, step, cell < MOST_CELL ? cell : MOST_CELL);
}

/* n beside more of the other, which is laid out as `other`. */
static struct map_side side_beside(int n, const struct map_side *other)
{
    const struct map_side square = side_of(n, other->step, other->cell);
    const struct map_side stretched = side_within(n, THINNEST);
    return square.length < stretched.length ? stretched : square;
}

static struct layout arrange(const struct map *m)
{
    const int     n = m->n_panels;
    const int     side = n == 1 ? 448 : n <= 4 ? 320 : n <= 6 ? 264 : 208;
    const int     len_q = (int)m->run.p.len_q, len_k = (int)m->run.p.len_k;
    struct layout l = { .label = n > 1 ? LABEL : 0 };

    l.columns = n <= 3 ? n : n == 4 ? 2 : n <= 6 ? 3 : 4;
    l.rows = (n + l.columns - 1) / l.columns;
    if (len_q > len_k) {
        l.queries = side_within(len_q, side);
        l.keys = side_beside(len_k, &l.queries);
    } else {
        l.keys = side_within(len_k, side);
        l.queries = side_beside(len_q, &l.keys);
    }
    l.across = LEFT + (l.keys.length > 96 || n == 1 ? l.keys.length : 96) + GUTTER;
    l.down = l.label + l.queries.length + BELOW + GUTTER;
    return l;
}

/* Letters of a text that are shown where there is room for so many, and what follows. */
static int shown(const char *text, int room)
{
    const int n = (int)strlen(text);
    return n <= room ? n : room - 3;
}

static const char *dots(const char *text, int room)
{
    return (int)strlen(text) <= room ? "" : "...";
}

/* The mean shade of the pairs of a cell: those below 0 take from the others. */
static uint8_t shade_of(const struct map *m, const struct panel *p,
                        const struct layout *l, int row, int column, double top)
{
    const int64_t len_q = m->run.p.len_q, len_k = m->run.p.len_k;
    const int     down = l->queries.step, across = l->keys.step;
    const int64_t i0 = (int64_t)row * down, j0 = (int64_t)column * across;
    const bool    support = opt_flag(m->a, "support");
    double        sum = 0;
    int           n = 0;

    for (int64_t i = i0; i < i0 + down && i < len_q; i++)
        for (int64_t j = j0; j < j0 + across && j < len_k; j++, n++) {
            const double w = (double)p->weights[i * len_k + j];
            if (!(fabs(w) > 0)) continue;
            const double shade = 1 + (SHADES - 2) * sqrt(fabs(w) / top);
            sum += support ? SEEN : copysign(shade, w);
        }
    const long shade = lround(ceil(fabs(sum) / n - 0.5));
    return (uint8_t)(sum < 0 && shade > 0 ? SHADES - 1 + shade : shade);
}

static uint8_t *shades_of(const struct map *m, const struct panel *p,
                          const struct layout *l, double top)
{
    const int rows = l->queries.cells, columns = l->keys.cells;
    uint8_t  *shades = need((size_t)rows, (size_t)columns);

    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++)
            shades[(size_t)y * (size_t)columns + (size_t)x] =
                shade_of(m, p, l, y, x, top);
    return shades;
}

/* Numbers along both sides, at multiples of a power of two. */
static void draw_ticks(struct picture *to, const struct map_side *s, int64_t n,
                       double x, double y, bool down)
{
    const double pitch = (double)s->cell / s->step,
                 middle = s->cell >= 5 ? pitch / 2 : 0;
    const double room = down ? 30 : 36;
    int64_t      every = 1;

    while ((double)every * pitch < room)
        every *= 2;
    for (int64_t i = 0; i < n; i += every) {
        const double at = (double)i * pitch + middle;
        if (down) {
            picture_rect(to, x - 4, y + at - 0.5, 4, 1, LINE);
            picture_text(to, x - 7, y + at + 4, AT_END, STYLE_PLAIN, SOFT, "%lld",
                         (long long)i);
        } else {
            picture_rect(to, x + at - 0.5, y, 1, 4, LINE);
            picture_text(to, x + at, y + 15, AT_MIDDLE, STYLE_PLAIN, SOFT, "%lld",
                         (long long)i);
        }
    }
}

static void draw_frame(struct picture *to, double x, double y, double width,
                       double height)
{
    picture_rect(to, x - 1, y - 1, width + 2, 1, LINE);
    picture_rect(to, x - 1, y + height, width + 2, 1, LINE);
    picture_rect(to, x - 1, y, 1, height, LINE);
    picture_rect(to, x + width, y, 1, height, LINE);
}

static void draw_label(const struct map *m, struct picture *to, const struct panel *p,
                       const struct layout *l, double x, double y)
{
    char heads[48];
    int  room = (l->across - GUTTER / 2) / CODE_WIDTH;

    if (m->n_panels == 1) return;
    if (p->heads > 1)
        snprintf(heads, sizeof heads, "heads %lld-%lld:", (long long)p->first,
                 (long long)(p->first + p->heads - 1));
    else
        snprintf(heads, sizeof heads, "head %lld:", (long long)p->first);
    room -= (int)strlen(heads) + 1;
    picture_text(to, x - LEFT + 4, y - 9, AT_START, STYLE_CODE, INK, "%s %.*s%s", heads,
                 shown(p->label, room), p->label, dots(p->label, room));
}

static void draw_panel(const struct map *m, struct picture *to, const struct layout *l,
                       int n, uint8_t *shades)
{
    const int column = n % l->columns, row = n / l->columns;
    const int x = MARGIN + LEFT + column * l->across;
    const int y = HEAD + l->label + row * l->down;

    const int width = l->keys.length, height = l->queries.length;
    const int wide = l->keys.cell, tall = l->queries.cell;

    const struct grid grid = { .rows = l->queries.cells,
                               .columns = l->keys.cells,
                               .wide = wide,
                               .tall = tall,
                               .gap = wide != tall || wide < 5 ? 0
                                      : wide < 8               ? 0.5
                                                               : 1,
                               .shades = shades };
    draw_label(m, to, &m->panels[n], l, x, y);
    picture_grid(to, x, y, &grid);
    draw_frame(to, x, y, width, height);
    draw_ticks(to, &l->keys, m->run.p.len_k, x, y + height + 1, false);
    draw_ticks(to, &l->queries, m->run.p.len_q, x - 1, y, true);
    picture_text(to, x + width / 2.0, y + height + 29, AT_MIDDLE, STYLE_PLAIN, INK,
                 "key");
    /* Beside the numbers, and never up into the subtitle. */
    const double middle = height > WORD ? height / 2.0 : WORD / 2.0;
    picture_text(to, x - (m->run.p.len_q > 100 ? 38 : 30), y + middle, AT_MIDDLE,
                 STYLE_UP, INK, "query");
}

/* Shades from `first` on, and the weights of the last. */
static void draw_bar(struct picture *to, double x, double y, int first, uint8_t *shades,
                     double top, const char *label)
{
    enum { CELL = 5, BAR = (SHADES - 1) * CELL };

    for (int i = 0; i < 2 * (SHADES - 1); i++)
        shades[i] = (uint8_t)(first + i % (SHADES - 1));
    picture_grid(to, x, y,
                 &(struct grid){ .rows = 2,
                                 .columns = SHADES - 1,
                                 .wide = CELL,
                                 .tall = CELL,
                                 .shades = shades });
    picture_text(to, x, y + 23, AT_START, STYLE_PLAIN, SOFT, "0");
    picture_text(to, x + BAR / 2.0, y + 23, AT_MIDDLE, STYLE_PLAIN, SOFT, "%.3g",
                 top / 4);
    picture_text(to, x + BAR, y + 23, AT_END, STYLE_PLAIN, SOFT, "%.3g", top);
    picture_text(to, x + BAR + 10, y + 9, AT_START, STYLE_PLAIN, INK, "%s", label);
}

static bool any_negative(const struct map *m)
{
    for (int i = 0; i < m->n_panels; i++)
        if (m->panels[i].negative) return true;
    return false;
}

/* What the shades mean. */
static void draw_scale(const struct map *m, struct picture *to, double top)
{
    enum { SECOND = 228 }; /* from one bar to the next */
    static uint8_t bars[2][2 * (SHADES - 1)];
    const double   x = MARGIN + LEFT, y = to->height - FOOT + 6;

    if (opt_flag(m->a, "support")) {
        picture_rect(to, x, y, 10, 10, shade_colour(SEEN));
        picture_text(to, x + 16, y + 9, AT_START, STYLE_PLAIN, INK, "seen");
        picture_rect(to, x + 60, y, 10, 10, shade_colour(0));
        picture_text(to, x + 76, y + 9, AT_START, STYLE_PLAIN, INK, "not seen");
        return;
    }
    draw_bar(to, x, y, 1, bars[0], top, "weight");
    if (any_negative(m)) draw_bar(to, x + SECOND, y, SHADES, bars[1], -top, "below 0");
}

static void draw_head(const struct map *m, struct picture *to, const char *problem)
{
    const char *spec = m->run.spec;
    const int   room = (to->width - 2 * MARGIN) / TITLE_WIDTH;
    char        data[64] = "all queries and keys alike";
    int64_t     pairs = 0;

    if (m->random)
        snprintf(data, sizeof data, "standard normal inputs, seed %lld",
                 (long long)opt_int(m->a, "seed", 0));
    for (int i = 0; i < m->n_panels; i++)
        pairs += m->panels[i].heads * m->panels[i].pairs;
    const double all = (double)(m->run.p.heads * m->run.p.len_q * m->run.p.len_k);
    picture_text(to, MARGIN, 32, AT_START, STYLE_TITLE, INK, "%.*s%s",
                 shown(spec, room), spec, dots(spec, room));
    picture_text(to, MARGIN, 51, AT_START, STYLE_PLAIN, SOFT,
                 "%s: %s; %.3g %% of pairs seen", problem, data,
                 100 * (double)pairs / all);
}

foci_status map_draw(const struct map *m, const char *path)
{
    const struct layout l = arrange(m);
    char                problem[128], title[1200];
    double              top = 0;
    int                 width = 2 * MARGIN + l.columns * l.across - GUTTER;

    foci_problem_print(&m->run.p, problem, sizeof problem);
    snprintf(title, sizeof title, "%s on %s: weights of queries on keys", m->run.spec,
             problem);
    int letters = (int)strlen(m->run.spec);
    if (letters > MOST_TITLE) letters = MOST_TITLE;
    if (width < 2 * MARGIN + letters * TITLE_WIDTH)
        width = 2 * MARGIN + letters * TITLE_WIDTH;
    const int least = any_negative(m) ? NARROWEST_BELOW : NARROWEST;
    if (width < least) width = least;
    for (int i = 0; i < m->n_panels; i++)
        if (m->panels[i].high > top) top = m->panels[i].high;

    struct picture *to =
        picture_create(width, HEAD + l.rows * l.down - GUTTER + FOOT, title);
    uint8_t **shades = need((size_t)m->n_panels, sizeof *shades);
    draw_head(m, to, problem);
    for (int i = 0; i < m->n_panels; i++) {
        shades[i] = shades_of(m, &m->panels[i], &l, top);
        draw_panel(m, to, &l, i, shades[i]);
    }
    draw_scale(m, to, top);

    const foci_status status = picture_write(m->run.ctx, to, path);
    for (int i = 0; i < m->n_panels; i++)
        free(shades[i]);
    free(shades);
    picture_free(to);
    return status;
}
