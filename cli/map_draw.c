/* map_draw.c -- the picture of a map: a heat map for each panel, queries from top to
 * bottom and keys from left to right, with one scale of shades for all.
 *
 * Where there are more pairs than fit, a cell is the mean of several.  Cells are square, but
 * where that would make a thin line of a few queries or keys they are stretched across it.
 * Beside them stand numbers, or tokens.  Each attention of a model begins a row of panels.
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
    NARROWEST_BELOW = 640, /* with a scale for what is below 0 */
    MOST_TITLE = 96,       /* letters that make a picture wider */
    MOST_CELL = 24,
    THINNEST = 48, /* a side of a panel that is less is stretched, if it has the cells */
    WORD = 32,     /* length of "query" */
    MOST_LABEL = 34, /* letters of a label that make panels wider */
    LABEL_BYTES = 600,
    MOST_TOKEN = 16,  /* letters of a token that are shown */
    TOKEN_LETTER = 7, /* width of one, at most */
    TOKEN_LINE = 13,  /* from token to token */
};

/* Queries from top to bottom, or keys from left to right. */
struct map_side {
    int step;   /* so many in a cell */
    int cell;   /* its length */
    int cells;  /* how many */
    int length; /* of all */
};

/* Of all panels: the longest sides, and their room. */
struct layout {
    int             columns, rows; /* of panels */
    int            *at; /* [n_panels] place of each: row * columns + column */
    struct map_side keys, queries;
    int             left, below; /* beside and below a panel: numbers, or tokens */
    int             across;      /* from panel to panel */
    int            *top;         /* [rows + 1] from the first row to each */
    int             label;       /* room above each */
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

/* Letters of the longest token, as far as it is shown. */
static int longest_token(const struct map *m)
{
    int longest = 0;

    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < m->tokens[side].n; i++) {
            const int n = picture_letters(m->tokens[side].shown[i]);
            if (n > longest) longest = n;
        }
    return longest < MOST_TOKEN ? longest : MOST_TOKEN + 1;
}

/* Room for the longer side of each panel: tokens want a line each. */
static int room_of(const struct map *m, int64_t longest)
{
    const int n = m->n_panels;
    const int room = n == 1 ? 448 : n <= 4 ? 320 : n <= 6 ? 264 : 208;
    const int lines = (int)longest * TOKEN_LINE, most = n == 1 ? 1536 : 640;

    if (!m->tokens[0].n || lines <= room) return room;
    return lines < most ? lines : most;
}

/* Panels side by side; with names, those of an attention begin a row. */
static void place(const struct map *m, struct layout *l)
{
    const int n = m->n_panels;
    int       in_row = 0, most = 0;
    bool      pairs = false;

    l->at = need((size_t)n, sizeof *l->at);
    l->columns = n <= 3 ? n : n == 4 ? 2 : n <= 6 ? 3 : 4;
    for (int i = 0; i < n; i++) {
        in_row = i && m->panels[i].of == m->panels[i - 1].of ? in_row + 1 : 1;
        if (in_row > most) most = in_row;
        pairs |= m->panels[i].beside;
    }
    if (pairs) l->columns = n <= 6 ? 2 : 4;
    if (m->panels[0].of->name && most < 4) l->columns = most;
    for (int i = 0, at = 0; i < n; i++, at++) {
        const bool begins = i && m->panels[i].of != m->panels[i - 1].of;
        if (begins && at % l->columns) at += l->columns - at % l->columns;
        l->at[i] = at;
        l->rows = at / l->columns + 1;
    }
}

/* Cells of one panel, of which all have as long sides at most. */
static struct map_side side_for(int64_t n, const struct map_side *s)
{
    return side_of((int)n, s->step, s->cell);
}

/* Rows of panels are as high as their highest. */
static void stack_rows(const struct map *m, struct layout *l)
{
    l->top = need((size_t)l->rows + 1, sizeof *l->top);
    for (int i = 0; i < m->n_panels; i++) {
        const int length = side_for(m->panels[i].of->len_q, &l->queries).length;
        int      *below = &l->top[l->at[i] / l->columns + 1];
        if (length > *below) *below = length;
    }
    for (int r = 0; r < l->rows; r++)
        l->top[r + 1] += l->top[r] + l->label + l->below + GUTTER;
}

/* "decoder block 0, head 3: softmax" */
static const char *label_of(const struct map_panel *p, char text[LABEL_BYTES])
{
    const char *name = p->of->name ? p->of->name : "", *comma = *name ? ", " : "";

    if (p->heads > 1)
        snprintf(text, LABEL_BYTES, "%s%sheads %lld-%lld: %s", name, comma,
                 (long long)p->first, (long long)(p->first + p->heads - 1), p->label);
    else
        snprintf(text, LABEL_BYTES, "%s%shead %lld: %s", name, comma,
                 (long long)p->first, p->label);
    return text;
}

/* Room that the longest label wants, up to a bound. */
static int room_for_labels(const struct map *m)
{
    char text[LABEL_BYTES];
    int  most = 0;

    for (int i = 0; i < m->n_panels && m->n_panels > 1; i++) {
        const int n = picture_letters(label_of(&m->panels[i], text));
        if (n > most) most = n;
    }
    return CODE_WIDTH * (most < MOST_LABEL ? most : MOST_LABEL) + GUTTER;
}

static struct layout arrange(const struct map *m)
{
    struct layout l = { .label = m->n_panels > 1 || m->panels[0].of->name ? LABEL : 0,
                        .left = LEFT,
                        .below = BELOW };
    int           len_q = 1, len_k = 1;

    for (int i = 0; i < m->n_panels; i++) {
        const struct map_attention *a = m->panels[i].of;
        if (a->len_q > len_q) len_q = (int)a->len_q;
        if (a->len_k > len_k) len_k = (int)a->len_k;
    }
    place(m, &l);
    const int room = room_of(m, len_q > len_k ? len_q : len_k);
    if (len_q > len_k) {
        l.queries = side_within(len_q, room);
        l.keys = side_beside(len_k, &l.queries);
    } else {
        l.keys = side_within(len_k, room);
        l.queries = side_beside(len_q, &l.keys);
    }
    if (m->tokens[0].n) {
        l.left = 28 + longest_token(m) * TOKEN_LETTER;
        l.below = 24 + longest_token(m) * TOKEN_LETTER;
    }
    const int across = l.left + l.keys.length + GUTTER, labels = room_for_labels(m);
    l.across = across > labels ? across : labels;
    stack_rows(m, &l);
    return l;
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

/* A token, cut where it is too long: a letter may have several bytes. */
static void draw_token(struct picture *to, double x, double y, enum style style,
                       const char *token)
{
    char text[8 * MOST_TOKEN];

    picture_cut(token, MOST_TOKEN, text, sizeof text);
    picture_text(to, x, y, AT_END, style, INK, "%s", text);
}

/* One token of so many has room for its name. */
static int token_step(const struct map_side *s)
{
    const double pitch = (double)s->cell / s->step;
    return s->step * (int)ceil((TOKEN_LINE - 2) / (pitch * s->step));
}

/* Tokens along both sides, as many as have room; the first `before` places have none. */
static void draw_tokens(struct picture *to, const struct map_side *s, int64_t n,
                        const struct map_tokens *tokens, int64_t before, double x,
                        double y, bool down)
{
    const double pitch = (double)s->cell / s->step;
    const int    every = token_step(s);

    for (int64_t i = before + (-before % every + every) % every; i < n; i += every) {
        const double at = (double)i * pitch + s->cell / 2.0;
        if (i - before >= tokens->n) break;
        const char *token = tokens->shown[i - before];
        if (down)
            draw_token(to, x - 5, y + at + 4, STYLE_CODE, token);
        else
            draw_token(to, x + at + 4, y + 5, STYLE_CODE_UP, token);
    }
}

/* What stands along a side. */
static void draw_side(const struct map *m, struct picture *to,
                      const struct map_attention *a, const struct map_side *s, double x,
                      double y, bool down)
{
    const int64_t            n = down ? a->len_q : a->len_k;
    const struct map_tokens *tokens =
        &m->tokens[down ? a->query_source : a->key_source];

    if (tokens->n)
        draw_tokens(to, s, n, tokens, down ? 0 : a->memory, x, y, down);
    else
        draw_ticks(to, s, n, x, y, down);
}

static void draw_frame(struct picture *to, double x, double y, double width,
                       double height)
{
    picture_rect(to, x - 1, y - 1, width + 2, 1, LINE);
    picture_rect(to, x - 1, y + height, width + 2, 1, LINE);
    picture_rect(to, x - 1, y, 1, height, LINE);
    picture_rect(to, x + width, y, 1, height, LINE);
}

static void draw_label(const struct map *m, struct picture *to,
                       const struct map_panel *p, const struct layout *l, double x,
                       double y)
{
    const int room =
        m->n_panels > 1 ? (l->across - GUTTER / 2) / CODE_WIDTH : MOST_TITLE;
    char text[LABEL_BYTES], cut[LABEL_BYTES];

    if (!l->label) return;
    picture_cut(label_of(p, text), room, cut, sizeof cut);
    picture_text(to, x - l->left + 4, y - 9, AT_START, STYLE_CODE, INK, "%s", cut);
}

static void draw_panel(const struct map *m, struct picture *to, const struct layout *l,
                       int n, const uint8_t *shades)
{
    const struct map_panel     *p = &m->panels[n];
    const struct map_attention *a = p->of;
    const int             column = l->at[n] % l->columns, row = l->at[n] / l->columns;
    const int             x = MARGIN + l->left + column * l->across;
    const int             y = HEAD + l->label + l->top[row];
    const struct map_side keys = side_for(a->len_k, &l->keys),
                          queries = side_for(a->len_q, &l->queries);

    const int         wide = keys.cell, tall = queries.cell;
    const struct grid grid = { .rows = queries.cells,
                               .columns = keys.cells,
                               .wide = wide,
                               .tall = tall,
                               .gap = wide != tall || wide < 5 ? 0
                                      : wide < 8               ? 0.5
                                                               : 1,
                               .shades = shades };
    draw_label(m, to, p, l, x, y);
    picture_grid(to, x, y, &grid);
    draw_frame(to, x, y, keys.length, queries.length);
    draw_side(m, to, a, &keys, x, y + queries.length + 1, false);
    draw_side(m, to, a, &queries, x - 1, y, true);
    picture_text(to, x + keys.length / 2.0, y + queries.length + l->below - 5,
                 AT_MIDDLE, STYLE_PLAIN, m->tokens[0].n ? SOFT : INK, "key");
    /* Beside the numbers, and never up into the subtitle. */
    const double middle = queries.length > WORD ? queries.length / 2.0 : WORD / 2.0;
    const int    beside = m->tokens[0].n ? l->left - 12 : a->len_q > 100 ? 38 : 30;
    picture_text(to, x - beside, y + middle, AT_MIDDLE, STYLE_UP,
                 m->tokens[0].n ? SOFT : INK, "query");
}

static bool any_negative(const struct map *m)
{
    for (int i = 0; i < m->n_panels; i++)
        if (m->panels[i].negative) return true;
    return false;
}

/*
 * The scale
 */

/* n shades from `first` on, each `by` behind the one before, over the weights that `from` to
 * `until` of the bar stand for. */
static void fill_bar(uint8_t *shades, int n, int first, int by)
{
    for (int i = 0; i < n; i++)
        shades[i] = (uint8_t)(first + by * i);
}

/* Which side of a difference is which. */
static const char *name_of(const struct map *m)
{
    return m->difference ? "difference" : "weight";
}

/* All shades, the weights of some, and what the scale is.  Where weights have signs those
 * below 0 stand on the left. */
static void draw_bar(const struct map *m, struct picture *to, double x, double y,
                     const struct map_shading *s, bool negative, const char *mean)
{
    enum { HALF = SHADES - 1, CELL = 5, NARROW = 4 };
    static uint8_t shades[2 * 2 * HALF];
    const int      n = negative ? 2 * HALF : HALF, cell = negative ? NARROW : CELL;

    if (negative) fill_bar(shades, HALF, ALL_SHADES - 1, -1);
    fill_bar(shades + (n - HALF), HALF, 1, 1);
    memcpy(shades + n, shades, (size_t)n);
    picture_grid(
        to, x, y,
        &(struct grid){
            .rows = 2, .columns = n, .wide = cell, .tall = CELL, .shades = shades });
    const double zero = x + (n - HALF) * cell, end = x + n * cell;
    const double half = map_at_share(s, 0.5), least = map_at_share(s, 0);
    if (negative)
        picture_text(to, x, y + 23, AT_START, STYLE_PLAIN, SOFT, "%.3g", -s->top);
    if (negative)
        picture_text(to, (x + zero) / 2, y + 23, AT_MIDDLE, STYLE_PLAIN, SOFT, "%.3g",
                     -half);
    picture_text(to, zero, y + 23, negative ? AT_MIDDLE : AT_START, STYLE_PLAIN, SOFT,
                 "%s%.2g", least > 0 && negative ? "+-" : "", least);
    picture_text(to, (zero + end) / 2, y + 23, AT_MIDDLE, STYLE_PLAIN, SOFT, "%.3g",
                 half);
    picture_text(to, end, y + 23, AT_END, STYLE_PLAIN, SOFT, "%.3g", s->top);
    picture_text(to, end + 10, y + 9, AT_START, STYLE_PLAIN, INK, "%s%s%s%s", mean,
                 name_of(m), map_scale_name(s), negative ? ", below 0 on the left" : "");
}

/* What the shades mean. */
static void draw_scale(const struct map *m, struct picture *to, const struct layout *l,
                       const struct map_shading *s)
{
    const bool   pooled = l->keys.step > 1 || l->queries.step > 1;
    const double x = MARGIN + LEFT, y = to->height - FOOT + 6;

    if (!s->support) {
        draw_bar(m, to, x, y, s, any_negative(m), pooled ? "mean " : "");
        return;
    }
    picture_rect(to, x, y, 10, 10, shade_colour(map_shade(s, 1)));
    picture_text(to, x + 16, y + 9, AT_START, STYLE_PLAIN, INK, "seen");
    picture_rect(to, x + 60, y, 10, 10, shade_colour(0));
    picture_text(to, x + 76, y + 9, AT_START, STYLE_PLAIN, INK, "not seen");
}

/*
 * The whole
 */

static void draw_head(const struct map *m, struct picture *to, const struct layout *l,
                      const struct map_shading *s)
{
    char    title[1200], cells[120] = "", tokens[60] = "";
    int64_t pairs = 0, all = 0;

    for (int i = 0; i < m->n_panels; i++) {
        const struct map_panel *p = &m->panels[i];
        pairs += p->beside ? 0 : p->heads * p->pairs;
        all += p->beside ? 0 : p->heads * p->of->len_q * p->of->len_k;
    }
    if (l->queries.step > 1 || l->keys.step > 1)
        snprintf(cells, sizeof cells, "; each cell the %s of %d x %d",
                 s->support ? "share seen" : "mean", l->queries.step, l->keys.step);
    const int step = token_step(&l->keys);
    if (m->tokens[0].n && step > 1)
        snprintf(tokens, sizeof tokens, "; one token of %d is named", step);
    picture_cut(m->title, (to->width - 2 * MARGIN) / TITLE_WIDTH, title, sizeof title);
    picture_text(to, MARGIN, 32, AT_START, STYLE_TITLE, INK, "%s", title);
    picture_text(to, MARGIN, 51, AT_START, STYLE_PLAIN, SOFT,
                 "%s; %.3g %% of pairs seen%s%s", m->about,
                 100 * (double)pairs / (double)all, cells, tokens);
}

static int width_of(const struct map *m, const struct layout *l)
{
    int width = 2 * MARGIN + l->columns * l->across - GUTTER;
    int letters = picture_letters(m->title);

    if (letters > MOST_TITLE) letters = MOST_TITLE;
    if (width < 2 * MARGIN + letters * TITLE_WIDTH)
        width = 2 * MARGIN + letters * TITLE_WIDTH;
    const int least = any_negative(m) ? NARROWEST_BELOW : NARROWEST;
    return width < least ? least : width;
}

/* The means of each panel; the largest stands at the end of the scale. */
static double **all_cells(const struct map *m, const struct layout *l,
                          struct map_shading *s)
{
    double **cells = need((size_t)m->n_panels, sizeof *cells);

    for (int i = 0; i < m->n_panels; i++) {
        const struct map_attention *a = m->panels[i].of;
        const struct map_side       keys = side_for(a->len_k, &l->keys),
                              queries = side_for(a->len_q, &l->queries);
        cells[i] = map_cells(&m->panels[i], s, queries.step, keys.step, queries.cells,
                             keys.cells);
        for (int c = 0; c < queries.cells * keys.cells; c++)
            s->top = fmax(s->top, fabs(cells[i][c]));
    }
    return cells;
}

static uint8_t *shades_of(const struct map *m, const struct layout *l, int i,
                          const double *cells, const struct map_shading *s)
{
    const struct map_attention *a = m->panels[i].of;
    const size_t                n = (size_t)side_for(a->len_q, &l->queries).cells *
                     (size_t)side_for(a->len_k, &l->keys).cells;
    uint8_t *shades = need(n, 1);

    for (size_t c = 0; c < n; c++)
        shades[c] = map_shade(s, cells[c]);
    return shades;
}

foci_status map_draw(const struct map *m, const char *path)
{
    struct layout      l = arrange(m);
    struct map_shading s = { .scale = (enum map_scale)opt_word(m->a, "scale", MAP_SQRT),
                             .support = opt_flag(m->a, "support") };
    double           **cells = all_cells(m, &l, &s);
    uint8_t          **shades = need((size_t)m->n_panels, sizeof *shades);
    char               title[2400];

    snprintf(title, sizeof title, "%s, %s: weights of queries on keys", m->title,
             m->about);
    struct picture *to =
        picture_create(width_of(m, &l), HEAD + l.top[l.rows] - GUTTER + FOOT, title);
    draw_head(m, to, &l, &s);
    for (int i = 0; i < m->n_panels; i++) {
        shades[i] = shades_of(m, &l, i, cells[i], &s);
        draw_panel(m, to, &l, i, shades[i]);
    }
    draw_scale(m, to, &l, &s);

    const foci_status status = picture_write(m->ctx, to, path);
    for (int i = 0; i < m->n_panels; i++) {
        free(shades[i]);
        free(cells[i]);
    }
    free(shades);
    free(cells);
    free(l.at);
    free(l.top);
    picture_free(to);
    return status;
}
