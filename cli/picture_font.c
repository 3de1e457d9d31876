/* picture_font.c -- letters for pictures made of pixels, as strokes of a round pen.
 *
 * Units are such that letters of capital height 16 stand on y = 0; the pen is 2 wide, so that
 * stems at whole numbers fill whole pixels at the size that most text has.  A letter is its
 * width and its strokes, separated by |, each a line through points "x,y" and arcs
 * "(cx,cy,rx,ry,from,to" of an ellipse, by degrees, which the line enters where they begin.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/picture.h"

struct letter {
    double      width;
    const char *strokes;
};

static const struct letter ascii[] = {
    { 3.5, "" },                                                     /*   */
    { 2, "1,15 1,6|1,1.5 1,1" },                                     /* ! */
    { 6, "1,15 1,11|5,15 5,11" },                                    /* " */
    { 11, "4,15 2.5,1|8.5,15 7,1|1,10.5 10,10.5|1,5.5 10,5.5" },     /* # */
    { 10, "(5,11.4,3.8,3.2,20,270 (5,4.7,4,3.5,90,-160|5,17 5,-1" }, /* $ */
    { 12, "10.5,15 1.5,1|(3.5,12,2.5,3,0,360|(8.5,4,2.5,3,0,360" },  /* % */
    { 12, "11,1 3.2,10.6 (5.2,12.5,2.7,2.5,220,-40 2.2,6.8 (4.6,4.3,3.6,3.3,140,290 "
          "(4.6,6.5,6,5.5,-70,0" },                                   /* & */
    { 2, "1,15 1,11" },                                               /* ' */
    { 5, "(8,7,7,11,125,235" },                                       /* ( */
    { 5, "(-3,7,7,11,55,-55" },                                       /* ) */
    { 8, "4,15 4,8|1,13.3 7,9.7|7,13.3 1,9.7" },                      /* * */
    { 10, "5,11 5,3|1,7 9,7" },                                       /* + */
    { 3, "2,1.5 1,-2.5" },                                            /* , */
    { 7, "1,7 6,7" },                                                 /* - */
    { 2, "1,1.4 1,1" },                                               /* . */
    { 8, "7,16 1,-1" },                                               /* / */
    { 10, "(5,8,4,7,0,360" },                                         /* 0 */
    { 9, "1.5,12.5 5,15 5,1|1.5,1 8.5,1" },                           /* 1 */
    { 10, "(5,11,4,4,160,-35 1,1 9,1" },                              /* 2 */
    { 10, "(4.8,11.5,3.8,3.5,150,-90 (4.8,4.5,4.2,3.5,90,-150" },     /* 3 */
    { 11, "7,1 7,15 1,5 10,5" },                                      /* 4 */
    { 10, "8.5,15 2,15 1.7,8.4 (4.9,5.3,4.1,4.3,130,-150" },          /* 5 */
    { 10, "(5,5.4,4,4.4,0,360|(9,5.4,8,9.8,180,100" },                /* 6 */
    { 10, "1,15 9,15 4,1" },                                          /* 7 */
    { 10, "(5,11.5,3.5,3.5,0,360|(5,4.5,4,3.5,0,360" },               /* 8 */
    { 10, "(5,10.6,4,4.4,0,360|(1,10.6,8,9.8,0,-80" },                /* 9 */
    { 2, "1,10.4 1,10|1,1.4 1,1" },                                   /* : */
    { 3, "2,10.4 2,10|2,1.5 1,-2.5" },                                /* ; */
    { 9, "8,12 1,7 8,2" },                                            /* < */
    { 10, "1,9 9,9|1,5 9,5" },                                        /* = */
    { 9, "1,12 8,7 1,2" },                                            /* > */
    { 9, "(4.5,11.5,3.5,3.5,170,-60 4.5,7.5 4.5,5.5|4.5,1.4 4.5,1" }, /* ? */
    { 12,
      "(5.8,6.5,2.2,3,0,360|8,9.5 8,5.2 (9.5,5.2,1.5,1.6,180,360 (6,7,5,7.5,0,300" },
    { 12, "1,1 6,15 11,1|2.8,6 9.2,6" }, /* A */
    { 10, "1,1 1,15 5.5,15 (5.5,11.6,3.3,3.4,90,-90 1,8.2|5.4,8.2 "
          "(5.4,4.6,3.6,3.6,90,-90 1,1" },                                /* B */
    { 11, "(6,8,5,7,42,318" },                                            /* C */
    { 11, "1,1 1,15 5,15 (5,8,5,7,90,-90 1,1" },                          /* D */
    { 10, "9,15 1,15 1,1 9,1|1,8 8,8" },                                  /* E */
    { 10, "9,15 1,15 1,1|1,8 8,8" },                                      /* F */
    { 11, "(6,8,5,7,42,318 10,3.3 10,7 6.5,7" },                          /* G */
    { 11, "1,1 1,15|10,1 10,15|1,8 10,8" },                               /* H */
    { 6, "1,15 5,15|3,15 3,1|1,1 5,1" },                                  /* I */
    { 8, "7,15 7,4.5 (4,4.5,3,3.5,0,-160" },                              /* J */
    { 11, "1,1 1,15|9.5,15 1,6.5|4,9.3 10,1" },                           /* K */
    { 9, "1,15 1,1 8.5,1" },                                              /* L */
    { 12, "1,1 1,15 6,5 11,15 11,1" },                                    /* M */
    { 11, "1,1 1,15 10,1 10,15" },                                        /* N */
    { 12, "(6,8,5,7,0,360" },                                             /* O */
    { 10, "1,1 1,15 5.5,15 (5.5,11.2,3.6,3.8,90,-90 1,7.4" },             /* P */
    { 12, "(6,8,5,7,0,360|7,4 10.8,0" },                                  /* Q */
    { 11, "1,1 1,15 5.5,15 (5.5,11.2,3.6,3.8,90,-90 1,7.4|5,7.4 9.8,1" }, /* R */
    { 10, "(5,11.4,3.8,3.6,20,270 (5,4.5,4,3.5,90,-160" },                /* S */
    { 11, "1,15 10,15|5.5,15 5.5,1" },                                    /* T */
    { 11, "1,15 1,5.5 (5.5,5.5,4.5,4.5,180,360 10,15" },                  /* U */
    { 11, "1,15 5.5,1 10,15" },                                           /* V */
    { 12, "1,15 3.5,1 6,12 8.5,1 11,15" },                                /* W */
    { 11, "1,15 10,1|10,15 1,1" },                                        /* X */
    { 11, "1,15 5.5,8 10,15|5.5,8 5.5,1" },                               /* Y */
    { 11, "1,15 10,15 1,1 10,1" },                                        /* Z */
    { 5, "4,17 1,17 1,-2 4,-2" },                                         /* [ */
    { 8, "1,16 7,-1" },                                                   /* \ */
    { 5, "1,17 4,17 4,-2 1,-2" },                                         /* ] */
    { 9, "1,10 4.5,15 8,10" },                                            /* ^ */
    { 11, "0.5,-2 10.5,-2" },                                             /* _ */
    { 5, "1,15.5 3.5,13" },                                               /* ` */
    { 9.5, "1.8,9.5 (4.6,7.7,3.6,3.3,140,0 8.2,1|8.2,6.4 4.4,6.4 "
           "(4.3,3.7,3.3,2.7,90,270 (4.5,4.7,3.7,3.7,-90,0" },                 /* a */
    { 10, "1,16 1,1|(5,6,4,5,0,360" },                                         /* b */
    { 9.5, "(5.5,6,4.5,5,48,312" },                                            /* c */
    { 10, "9,16 9,1|(5,6,4,5,0,360" },                                         /* d */
    { 10, "1,6 9,6 (5,6,4,5,0,315" },                                          /* e */
    { 8, "7.2,16 6,16 (6,13,3,3,90,180 3,1|0.8,11 6.8,11" },                   /* f */
    { 10, "(5,6,4,5,0,360|9,11 9,-1 (5,-1,4,3.6,0,-150" },                     /* g */
    { 10, "1,16 1,1|1,7 (5,7,4,4,180,0 9,1" },                                 /* h */
    { 2, "1,11 1,1|1,15.4 1,15" },                                             /* i */
    { 4, "3,11 3,-2 (1,-2,2,2.6,0,-100|3,15.4 3,15" },                         /* j */
    { 9, "1,16 1,1|8,11 1,4.5|3.7,7 8.5,1" },                                  /* k */
    { 4, "1,16 1,3.2 (3.2,3.2,2.2,2.2,180,270" },                              /* l */
    { 12, "1,11 1,1|1,8 (3.5,8,2.5,3,180,0 6,1|6,8 (8.5,8,2.5,3,180,0 11,1" }, /* m */
    { 10, "1,11 1,1|1,7 (5,7,4,4,180,0 9,1" },                                 /* n */
    { 10, "(5,6,4,5,0,360" },                                                  /* o */
    { 10, "1,11 1,-5|(5,6,4,5,0,360" },                                        /* p */
    { 10, "9,11 9,-5|(5,6,4,5,0,360" },                                        /* q */
    { 7, "1,11 1,1|1,7 (5,7,4,4,180,70" },                                     /* r */
    { 9, "(4.5,8.6,3.3,2.4,25,270 (4.5,3.6,3.5,2.6,90,-155" },                 /* s */
    { 8, "3,15 3,3.5 (5.5,3.5,2.5,2.5,180,280|0.8,11 7,11" },                  /* t */
    { 10, "1,11 1,5 (5,5,4,4,180,360|9,11 9,1" },                              /* u */
    { 10, "1,11 5,1 9,11" },                                                   /* v */
    { 12, "1,11 3.5,1 6,10 8.5,1 11,11" },                                     /* w */
    { 10, "1,11 9,1|9,11 1,1" },                                               /* x */
    { 10, "1,11 5,1|9,11 4,-3 (1.8,-2.2,2.4,2.4,-20,-110" },                   /* y */
    { 9.5, "1,11 8.5,11 1,1 8.5,1" },                                          /* z */
    { 7, "6,17 5,17 (5,15.2,1.8,1.8,90,180 3.2,9 1,7.3 3.2,5.6 3.2,-0.2 "
         "(5,-0.2,1.8,1.8,180,270 6,-2" }, /* { */
    { 2, "1,17 1,-3" },                    /* | */
    { 7, "1,17 2,17 (2,15.2,1.8,1.8,90,0 3.8,9 6,7.3 3.8,5.6 3.8,-0.2 "
         "(2,-0.2,1.8,1.8,0,-90 1,-2" },                    /* } */
    { 11, "(3.2,6.4,2.2,2,190,35 (7.6,7.6,2.3,2,215,370" }, /* ~ */
};

/* Beyond ASCII. */
static const struct {
    uint32_t      c;
    struct letter letter;
} others[] = {
    { 0x2026, { 10, "1,1.4 1,1|5,1.4 5,1|9,1.4 9,1" } }, /* an ellipsis */
    { 0x2423, { 10, "1,3.5 1,0 9,0 9,3.5" } },           /* the sign for a blank */
};

enum {
    CELL = 13, /* of letters that are all as wide */
    SPACE = 2, /* between others */
    DIGIT = 7, /* of the number of a letter that is not there */
    FRAME = 4  /* around these */
};

static const struct letter *find(uint32_t c)
{
    if (c >= ' ' && c <= '~') return &ascii[c - ' '];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].c == c) return &others[i].letter;
    return NULL;
}

/* Digits of a line, where the number of a character stands for it. */
static int digits_of(uint32_t c) { return c > 0xffff ? 3 : 2; }

double font_advance(uint32_t c, bool even)
{
    const struct letter *l = find(c);

    if (!l) return FRAME + DIGIT * digits_of(c) + SPACE;
    return even ? CELL : l->width + SPACE;
}

/*
 * Strokes
 */

struct pen {
    font_stroke_fn *stroke;
    void           *user;
    double          x, y, wide, tall; /* where units of the letter are */
    double          weight;
    double          points[128];
    int             n;
};

static void add(struct pen *p, double x, double y)
{
    const size_t at = 2 * (size_t)p->n;

    if (at + 2 > sizeof p->points / sizeof *p->points) return;
    p->points[at] = p->x + p->wide * x;
    p->points[at + 1] = p->y + p->tall * y;
    p->n++;
}

static void lift(struct pen *p)
{
    if (p->n) p->stroke(p->user, p->points, p->n, p->weight);
    p->n = 0;
}

static void add_arc(struct pen *p, const double arc[6])
{
    enum { DEGREES = 12 }; /* of a step */
    const double radian = 0.017453292519943295;
    const int    steps = (int)ceil(fabs(arc[5] - arc[4]) / DEGREES);

    for (int i = 0; i <= steps; i++) {
        const double at = radian * (arc[4] + (arc[5] - arc[4]) * i / steps);
        add(p, arc[0] + arc[2] * cos(at), arc[1] + arc[3] * sin(at));
    }
}

/* n numbers with commas between them. */
static const char *read_numbers(const char *s, double *numbers, int n)
{
    for (int i = 0; i < n; i++) {
        char *end;
        numbers[i] = strtod(s, &end);
        s = *end == ',' ? end + 1 : end;
    }
    return s;
}

static void draw(struct pen *p, const char *strokes)
{
    double numbers[6];

    while (*strokes) {
        if (*strokes == '|') lift(p);
        if (*strokes == '|' || *strokes == ' ') {
            strokes++;
        } else if (*strokes == '(') {
            strokes = read_numbers(strokes + 1, numbers, 6);
            add_arc(p, numbers);
        } else {
            strokes = read_numbers(strokes, numbers, 2);
            add(p, numbers[0], numbers[1]);
        }
    }
    lift(p);
}

/* A box with the number of the character in it, two lines of hexadecimal digits. */
static void draw_number(struct pen *p, uint32_t c)
{
    const int    n = digits_of(c);
    const double right = FRAME + DIGIT * n - 0.5, low = -3.5, high = 18.5;
    const double box[] = { 0.5, low, 0.5, high, right, high, right, low, 0.5, low };

    p->weight = 0.5;
    p->stroke(p->user, box, (int)(sizeof box / sizeof *box / 2), p->weight);
    p->wide = 0.46;
    p->tall = 0.5;
    for (int i = 0; i < 2 * n; i++) {
        const uint32_t digit = c >> 4 * (2 * n - 1 - i) & 15;
        p->x = FRAME / 2.0 + 1 + DIGIT * (i % n);
        p->y = i < n ? 8.5 : -1.5;
        draw(p, find(digit < 10 ? '0' + digit : 'A' + digit - 10)->strokes);
    }
}

void font_letter(uint32_t c, bool even, font_stroke_fn *stroke, void *user)
{
    const struct letter *l = find(c);
    struct pen p = { .stroke = stroke, .user = user, .wide = 1, .tall = 1, .weight = 1 };

    if (!l) {
        draw_number(&p, c);
        return;
    }
    if (even) p.x = floor((CELL - l->width) / 2);
    draw(&p, l->strokes);
}
