/* report.h -- what the files of a report share: what was read from folders, and the page and
 * the figures made of it.
 *
 *     report.c              the verb: what folders have, and where the results go
 *     report_page.c         the page: figures, tables, its head and its end
 *     report_comparison.c   the section of a comparison, and its runs
 *     report_curves.c       the figures of a comparison
 *     report_lengths.c      the section of foci compare --length
 *     report_model.c        the section of one trained model
 *     report_theory.c       concentration in closed form over what was measured
 *     report_heads.c        heat maps
 *     report.css, report.js what the page looks like, and what moves in it
 */
#ifndef FOCI_CLI_REPORT_H
#define FOCI_CLI_REPORT_H

#include "cli/chart.h"
#include "cli/comparison.h"

/* A comparison of one or several folders. */
struct report_comparison {
    struct comparison c;
    json_t           *folders; /* texts */
    json_t           *summary; /* as judge() */
    char             *version; /* of the results */
};

struct report {
    const struct args        *a;
    foci_ctx                 *ctx;
    struct report_comparison *comparisons;
    size_t                    n_comparisons, cap_comparisons;
    json_t                   *lengths; /* [{"folder", "lines"}] */
    json_t       *models;  /* [{"folder", "config", "notes", "log", "costs"}] */
    json_t       *numbers; /* of arms, by name: their colours and marks */
    json_t       *heads;   /* for the page, [{"arm", "number", ...}] */
    struct markup page;
    const char   *plots; /* a folder for files of figures; NULL: none */
    int           figures;
    int           code;
};

/* Write the page of what was read, and files of its figures; EXIT_OK, or a status with the
 * message printed.  path NULL: the files alone. */
int report_write(struct report *r, const char *path);

/* The page of a comparison that was just made, DIR/report.html. */
int report_of_comparison(const struct comparison *c, const json_t *summary);

/* The page of DIR/lengths.jsonl likewise. */
int report_of_lengths(const struct args *a, foci_ctx *ctx, const char *folder);

/* The number of an arm, a new one if the name is. */
int report_number(struct report *r, const char *name);

/*
 * report_page.c
 */

/* Put a figure into the page, and its files where --plots says; released. */
void report_figure(struct report *r, struct chart *c);

/* A table of cells row by row, the first the names of columns; columns as table_create(). */
void report_table(struct report *r, const char *columns, const json_t *cells,
                  const char *title);

/* A paragraph. */
void report_line(struct report *r, const char *text);

/* A file of a figure in --plots: its bytes. */
void report_file(struct report *r, const char *name, const char *end, const char *bytes,
                 size_t n);

/* What is embedded. */
extern const unsigned char report_style[], report_script[];
extern const size_t        report_style_bytes, report_script_bytes;

/*
 * Sections
 */

void report_put_comparison(struct report *r, struct report_comparison *k);
void report_put_curves(struct report *r, struct report_comparison *k);
void report_put_lengths(struct report *r, const json_t *lengths);
void report_put_model(struct report *r, const json_t *model);

/* The runs of a comparison that its tables show, to be released; and the folder of one of
 * them that has the file, to be freed, or NULL. */
json_t *report_runs(const struct report_comparison *k);
char   *report_find(const struct report_comparison *k, const json_t *run,
                    const char *name);

/* report_model.c: read a folder of a model.  EXIT_OK, or a status with the message printed. */
int report_read_model(struct report *r, const char *folder);

/* report_lengths.c: read DIR/lengths.jsonl, and print the table. */
int  report_read_lengths(struct report *r, const char *folder);
void report_print_lengths(const json_t *lengths);

/* report_heads.c: take the weights in a file for the page, and put what can be browsed into it,
 * if there is anything. */
void report_take_heads(struct report *r, const char *path, const char *arm,
                       int64_t seed);
void report_put_heads(struct report *r);

/* report_theory.c */
void report_put_theory(struct report *r);

#endif
