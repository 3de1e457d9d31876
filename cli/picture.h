/* picture.h -- drawings of the command.
 *
 * A picture is a list of rectangles, lines, texts and grids of shades, later ones over earlier
 * ones, measured in units of about a pixel from the top left corner.  It is written as
 * .svg, or as .png with two pixels a unit and letters of a font of its own, which has ASCII and
 * little else: a character that it has not is a box with its number.
 */
#ifndef FOCI_CLI_PICTURE_H
#define FOCI_CLI_PICTURE_H

#include "cli/cli.h"
#include "cli/markup.h"

/* Colours are 0xrrggbb. */
enum { INK = 0x1f2933, SOFT = 0x697586, LINE = 0xc3ccd6, PAPER = 0xffffff };

/* Shades go from 0, nothing, to SHADES - 1, all; those of what is negative follow, from
 * SHADES, hardly anything, to ALL_SHADES - 1. */
enum { SHADES = 33, ALL_SHADES = 2 * SHADES - 1 };
uint32_t shade_colour(int shade);

enum anchor { AT_START, AT_MIDDLE, AT_END };

enum style {
    STYLE_TITLE, /* bold, and as wide everywhere: TITLE_WIDTH a letter */
    STYLE_CODE,  /* likewise, CODE_WIDTH, not bold */
    STYLE_PLAIN, /* narrower than CODE_WIDTH a letter on average */
    STYLE_UP,    /* as plain, read from bottom to top */
    STYLE_CODE_UP
};
enum { TITLE_WIDTH = 9, CODE_WIDTH = 7 };

/* rows x columns of shades, each a cell of `wide` x `tall` units, with gaps of `gap` units
 * between them if cells are square.  The shades are the caller's and stay until the
 * picture is written. */
struct grid {
    int            rows, columns;
    int            wide, tall;
    double         gap;
    const uint8_t *shades;
};

struct picture_shape {
    enum { DRAW_RECT, DRAW_TEXT, DRAW_GRID, DRAW_LINE, DRAW_AREA } kind;
    double      x, y, width, height;
    uint32_t    colour;
    double      opacity; /* of an area */
    double      dash;    /* of a line, the length of its pieces; 0: it has none */
    int         group;
    char       *hint;
    enum anchor anchor;
    enum style  style;
    char       *text;
    struct grid grid;
    double     *points; /* x and y of each */
    int         n_points;
};

struct picture {
    int                   width, height;
    char                 *title;
    struct picture_shape *shapes;
    int                   n, cap;
    int                   group; /* of shapes to come */
};

/* Texts are UTF-8; what is none, or a control character, is shown as U+FFFD.  Letters of a
 * text, those of double width as two; and its first `letters`, with an ellipsis if there are
 * more, into out. */
int  picture_letters(const char *text);
void picture_cut(const char *text, int letters, char *out, size_t cap);

struct picture *picture_create(int width, int height, const char *title);
void            picture_free(struct picture *p);

void picture_rect(struct picture *p, double x, double y, double width, double height,
                  uint32_t colour);
/* y is the baseline. */
void picture_text(struct picture *p, double x, double y, enum anchor anchor,
                  enum style style, uint32_t colour, const char *format, ...)
    CLI_PRINTF(7, 8);
/* Straight from point to point, `width` units wide; x and y of each are copied. */
void picture_line(struct picture *p, const double *points, int n, double width,
                  uint32_t colour);
void picture_dashes(struct picture *p, const double *points, int n, double width,
                    double dash, uint32_t colour);
/* What lies within the line through the points, from 0, nothing, to 1, `colour` alone. */
void picture_area(struct picture *p, const double *points, int n, uint32_t colour,
                  double opacity);
void picture_grid(struct picture *p, double x, double y, const struct grid *grid);

/* What is said of the last shape when it is pointed at, in a page. */
void picture_hint(struct picture *p, const char *text);

/* Shapes that follow belong to a group, from 1 on, which a page can bring out; 0: to none. */
void picture_group(struct picture *p, int group);

/* Does the name end in .svg or .png? */
bool picture_name(const char *path);

/* Write the picture in the format of its file name. */
foci_status picture_write(foci_ctx *ctx, const struct picture *p, const char *path);

/* Append it as .svg: as a file of its own, or as part of a page, which says what colours are
 * (--c1f2933 of 0x1f2933) and how texts look (classes title, code and plain). */
void picture_put_svg(struct markup *to, const struct picture *p, bool in_page);

/* It as .png, to be freed. */
uint8_t *picture_png_bytes(const struct picture *p, size_t *n);

/*
 * Between the files of picture*.c
 */

foci_status picture_svg(foci_ctx *ctx, const struct picture *p, const char *path);
foci_status picture_png(foci_ctx *ctx, const struct picture *p, const char *path);

/* rgb[height][width][3] as the bytes of a .png file, to be freed. */
uint8_t *png_bytes(int64_t width, int64_t height, const uint8_t *rgb, size_t *n);

/* picture_text.c: the next character of a text, and step over it. */
uint32_t picture_next(const char **text);

/* picture_font.c: strokes of letters, points x and y, above the baseline, each in units of
 * which capitals are 16 high, by a pen of `weight` times the usual width; and how far the next
 * letter is, `even` where all are as wide. */
typedef void font_stroke_fn(void *user, const double *points, int n, double weight);
void         font_letter(uint32_t c, bool even, font_stroke_fn *stroke, void *user);
double       font_advance(uint32_t c, bool even);

#endif
