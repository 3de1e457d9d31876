/* chart.h -- figures of a report: what they show, as data, of which pictures and tables are
 * made.
 *
 * A series is one arm, whose colour and mark are the same in all figures: number 0 is what
 * others are compared with, and -1 a law.  Pictures have three forms: for a wide and for a narrow page,
 * where the page has title and notes, and as a file of its own.
 */
#ifndef FOCI_CLI_CHART_H
#define FOCI_CLI_CHART_H

#include "cli/markup.h"
#include "cli/picture.h"

enum { CHART_COLOURS = 9 };
extern const uint32_t chart_colours[CHART_COLOURS];

enum chart_scale { CHART_EVEN, CHART_TENS, CHART_TWOS, CHART_NAMES };

enum chart_form { CHART_WIDE, CHART_NARROW, CHART_FILE };

struct chart_point {
    double x, y, low, high; /* NAN: there is no interval, of y, in rows of x */
};

struct chart_series {
    char               *name, *word; /* word: behind a row; NULL: none */
    int                 number;
    struct chart_point *points;
    size_t              n, cap;
    bool                joined, marked, band, dashed;
};

/* A line across, such as a floor. */
struct chart_level {
    char  *name;
    double y;
};

struct chart {
    char                *id, *title, *note; /* note: NULL: none */
    char                *name_x, *name_y;
    enum chart_scale     x, y;
    char               **names; /* of CHART_NAMES, [n_names] */
    size_t               n_names, cap_names;
    struct chart_series *series;
    size_t               n, cap;
    struct chart_level  *levels;
    size_t               n_levels, cap_levels;
    bool                 front, lower; /* with its Pareto front; less y is better */
    bool                 rows;   /* a series is a row with one x and its interval */
    double               margin; /* of rows: differences up to here make none */
};

/* Texts are copied. */
struct chart *chart_create(const char *id, const char *title, const char *name_x,
                           const char *name_y);
void          chart_free(struct chart *c);
void          chart_note(struct chart *c, const char *format, ...) CLI_PRINTF(2, 3);

/* A series, which stays where it is until the next one. */
struct chart_series *chart_add(struct chart *c, const char *name, int number);
void                 chart_drop(struct chart *c); /* the last one */
void chart_put(struct chart_series *s, double x, double y, double low, double high);
void chart_level(struct chart *c, const char *name, double y);
void chart_name(struct chart *c, const char *name);

/* Leave out what the axes have no place for: on logarithmic ones 0 and below.  Before a chart is
 * drawn; true: there is something to be seen. */
bool chart_settle(struct chart *c);

struct picture *chart_draw(const struct chart *c, enum chart_form form);

/* Rows of texts, the first with the names of columns: a list of lists. */
json_t *chart_table(const struct chart *c);
void    chart_csv(struct markup *to, const json_t *table);

/* "12.3", "65.7k": few digits, for people. */
const char *chart_number(double x, char text[32]);

/*
 * Between chart*.c
 */

enum { CHART_ROW = 16 }; /* from one line of text to the next */

uint32_t chart_colour(int number);
/* The mark of a series at a place. */
void chart_mark(struct picture *to, int number, double x, double y, double size);
/* Text that is cut where it is longer. */
void chart_label(struct picture *to, double x, double y, enum anchor anchor,
                 const char *text, size_t most);
/* How wide a label is, at most. */
double          chart_label_width(const char *text, size_t most);
struct picture *chart_draw_rows(const struct chart *c, enum chart_form form);

#endif
