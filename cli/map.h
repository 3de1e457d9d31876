/* map.h -- one map: weights of queries on keys, head by head, and how they are drawn. */
#ifndef FOCI_CLI_MAP_H
#define FOCI_CLI_MAP_H

#include "cli/run.h"
#include "foci/analyse.h"

enum { MAP_MOST_LEN = 1024, MAP_MOST_HEADS = 64, MAP_MOST_PAIRS = 1 << 24 };

/* Heads over the same queries and keys. */
struct map_attention {
    char    *name;  /* "block 0"; NULL: there is one attention, which has no name */
    int64_t  index; /* among all of the model */
    float   *weights;
    int64_t  heads, len_q, len_k; /* weights [heads][len_q][len_k] */
    int64_t  memory;              /* keys before those that have a token */
    char   **labels;              /* [heads] what each computes */
    int64_t *numbers;             /* [heads] that it has for the user; NULL: from 0 */
    bool    *beside; /* [heads] it is what the head before it estimates; NULL: none */
    bool     query_source, key_source; /* tokens are those of the source */
};

/* Tokens, as they are shown; n 0: there are none. */
struct map_tokens {
    const char *const *shown;
    int64_t            n;
};

/* Heads that follow one another and have the same weights. */
struct map_panel {
    const struct map_attention *of;
    int64_t                     first, heads;
    const char                 *label;   /* the mechanism */
    const float                *weights; /* [len_q][len_k] */
    int64_t                     pairs;   /* that have a weight */
    int64_t few, many; /* the fewest and most keys that a query sees */
    bool    beside;    /* it is what the panel before it estimates */
    int64_t negative;  /* pairs whose weight is below zero */
    double  low, high; /* sizes of the least and largest weight; 0: none */
};

enum map_scale { MAP_LINEAR, MAP_SQRT, MAP_LOG, MAP_ROW };

struct map {
    const struct args    *a;
    foci_ctx             *ctx;
    char                 *title, *about; /* about: what the weights are of */
    bool                  difference;
    struct map_attention *attentions;
    size_t                n_attentions, cap_attentions;
    struct map_panel     *panels;
    int                   n_panels;
    foci_reading         *reading; /* of a model; NULL: there is none */
    foci_data            *data; /* of a model that reads no text; NULL: there is none */
    char                **symbols[2]; /* of these; NULL: there are none */
    struct map_tokens     tokens[2];  /* of the text, and of the source */
    json_t               *facts;      /* what JSON says of the whole */
};

/* A new attention of these extents, whose weights are all zero. */
struct map_attention *map_add(struct map *m, int64_t heads, int64_t len_q,
                              int64_t len_k);
void                  map_free(struct map *m);

/* "0,2-5" as an option of which numbers are taken; not given: all. */
bool map_takes(const char *list, int64_t number);
/* Check that it is such a list, of numbers below n unless n is 0. */
int map_check_list(const struct args *a, const char *option, int64_t n);

/* Where weights come from; EXIT_OK, or a status with the message printed. */
int map_spec(struct map *m);  /* map_spec.c: --pattern, or --q and --k */
int map_file(struct map *m);  /* map_file.c: --weights */
int map_model(struct map *m); /* map_model.c: a folder of foci train */

/* map_task.c: an example of the generator that the model was trained on, and its tokens. */
int map_task(struct map *m, foci_batch *batch);

/* map_label.c: the part of a spec that each head has, to be freed.  `written` as the
 * user wrote it, if its parts can be told apart, else `full`. */
char **map_labels(const char *written, const char *full, int64_t heads);
/* What the heads of a plan are by name, "fixed: previous"; with `labels` only those that
 * leave their pattern open are put in their place. */
char **map_label_heads(const foci_plan *plan, int64_t heads, char **labels);

/* map_panels.c: the heads that are wanted, counted; as JSON, and as a table. */
int     map_make_panels(struct map *m);
double  map_density(const struct map_panel *p);
json_t *map_json(const struct map *m);
void    map_print(const struct map *m);

/* map_draw.c: draw the panels and write them to `path`. */
foci_status map_draw(const struct map *m, const char *path);

/*
 * map_scale.c: from weights to shades.
 */

/* What a cell shows, and how. */
struct map_shading {
    enum map_scale scale;
    bool   support; /* whether pairs are seen, not how large their weights are */
    double top;     /* the weight of the last shade */
};

/* Means of the weights (with `support`, of 1 where there is one) of down x across pairs a
 * cell, [rows][columns], to be freed; of MAP_ROW each a share of the largest of its row. */
double *map_cells(const struct map_panel *p, const struct map_shading *s, int down,
                  int across, int rows, int columns);
uint8_t map_shade(const struct map_shading *s, double cell);
/* The weight that stands at this share of the bar, 0 to 1. */
double map_at_share(const struct map_shading *s, double share);
/* What follows "weight": ", square root scale". */
const char *map_scale_name(const struct map_shading *s);

#endif
