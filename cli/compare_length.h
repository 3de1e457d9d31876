/* compare_length.h -- what the parts of `foci compare --length` share. */
#ifndef FOCI_CLI_COMPARE_LENGTH_H
#define FOCI_CLI_COMPARE_LENGTH_H

#include "cli/bench.h"
#include "cli/compare.h"

enum { LENGTHS_MOST = 64 };

/* A mechanism at a length. */
struct length_cell {
    bool   measured;
    bool   kept;                        /* its line is in --out */
    char  *skipped;                     /* why it was not; NULL: it was, or will be */
    bool   untrained;                   /* the error says nothing */
    int    rounds;                      /* seconds are those of one execution: */
    double seconds, low, high;          /* median and quartiles over the rounds */
    double flops;                       /* of one execution, counted */
    double tensors, work, saved, state; /* bytes of operands, scratch, what backward
                                         * needs, and the state of decoding */
    double plan;                        /* what planning allocated at most */
    double error;                       /* of outputs; NaN: unknown */
};

/* What a context has allocated. */
struct length_meter {
    size_t now, peak;
};

struct lengths {
    const struct args   *a;
    foci_ctx            *ctx, *judge; /* judge: exact attention, always on the CPU */
    struct length_meter *meter;       /* of ctx */
    foci_problem         problem;     /* but for its lengths */
    enum pass            pass;
    int                  rounds;
    double               limit; /* seconds of a cell */
    int64_t              length[LENGTHS_MOST];
    int                  n_lengths;
    const char         **specs; /* the first is softmax */
    int                  n_specs;
    struct length_cell  *cells; /* [n_specs][n_lengths] */
    char                *path;  /* of the lines; NULL: none are kept */
    json_t              *lines; /* results, those of other runs included */
};

static inline struct length_cell *length_cell(const struct lengths *w, int spec, int i)
{
    return &w->cells[spec * w->n_lengths + i];
}

/* All bytes that an execution needs. */
static inline double length_memory(const struct length_cell *c)
{
    return c->tensors + c->work + c->saved + c->state + c->plan;
}

/* Tokens that an execution computes. */
static inline int64_t length_tokens(const struct lengths *w, int i)
{
    return w->pass == PASS_STEP ? 1 : w->length[i];
}

/* The case of a spec at a length, with the lists that it needs, and its plan; both are to be
 * freed in any case. */
foci_status length_plan(const struct lengths *w, const char *spec, int64_t length,
                        struct bench_case *c, foci_plan **plan);

/* compare_length_turns.c: measure all cells of length i that are yet unknown.  EXIT_OK, or a
 * status with the message printed. */
int length_measure(struct lengths *w, int i, struct progress *progress);

/* compare_length_exact.c: rows of exact attention on the inputs of a length. */
struct length_exact {
    int64_t rows, blocks; /* of each block, and how many there are */
    int64_t length;       /* of the sequence */
    float  *o; /* [blocks][rows][heads][dim]; NULL: there is no memory for it */
};
foci_status length_exact_open(const struct lengths *w, int64_t length,
                              struct bench_input **inputs, struct length_exact *e);
void        length_exact_close(struct length_exact *e);
/* The distance of these outputs from them, as a share of their size. */
double length_error(const struct lengths *w, const struct length_exact *e,
                    const void *o);
/* Whether outputs of the plan can be held against those of softmax; *untrained: it says
 * nothing of the mechanism if they are. */
bool length_has_error(const struct lengths *w, const foci_plan *plan, bool *untrained);

/* compare_length_lines.c: results as JSON lines.  A result as an object; read those that
 * --out has; and write them with those of length i.  EXIT_OK, or a status with the message
 * printed. */
json_t *length_json(const struct lengths *w, int spec, int i);
json_t *length_setting(const struct lengths *w);
int     length_lines_open(struct lengths *w);
int     length_lines_write(struct lengths *w, int i);

/* compare_length_advice.c: where curves cross, and what to use. */
void    length_advice_print(const struct lengths *w);
json_t *length_crossings_json(const struct lengths *w);
json_t *length_fastest_json(const struct lengths *w);
json_t *length_advice_json(const struct lengths *w);

/* compare_length_show.c: the table, the JSON and the CSV. */
int length_show(const struct lengths *w);
int length_csv(const struct lengths *w, const char *path);

#endif
