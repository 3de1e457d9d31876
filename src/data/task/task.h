/* task.h -- the descriptor of a generator of examples.
 *
 * A generator is one file with a descriptor and a line in tasks.def.  It makes an example
 * from a random stream of its own: example i of a split starts at a state that follows
 * from seed, split and i (task_stream()), so examples are made in any order by any thread,
 * and nothing is stored.
 */
#ifndef FOCI_TASK_H
#define FOCI_TASK_H

#include "core/core.h"
#include "foci/data.h"

/* The pad of every vocabulary. */
enum { TASK_PAD = 0 };

struct task_def;

/* A generator with its arguments. */
struct task {
    const struct task_def *def;
    double                 arg[FOCI_MAX_ARGS];
    foci_data_kind         kind; /* of its examples */
    bool                   causal;
    bool    from_last;           /* labels are answered from the last token alone */
    int64_t vocab, source_vocab; /* ids are below */
    int64_t len, source_len;     /* of the longest rows */
    int64_t n_classes;
    double  chance; /* accuracy of a uniform guess */
    double *table;  /* [n_table] shared by all examples */
    int64_t n_table;
    size_t  scratch_bytes; /* of one example that is being made */
    char    message[160];
};

/* An example that is being made.  Its arrays are filled with pads and -1 before. */
struct task_example {
    int32_t *ids; /* [len] what a model reads; in a translation what its decoder does */
    int32_t *labels; /* [len] the expected output there; -1: none */
    int64_t  n;
    int32_t *source; /* [source_len] of a translation */
    int64_t  n_source;
    int32_t  answer;  /* the class */
    int32_t *slices;  /* [slices][len], where labels are; of a class [slices] */
    void    *scratch; /* zeroed */
    uint64_t seed;    /* of all examples */
    int64_t  number;  /* of this one in its split, from 0 */
};

/* A rule that knows nothing of the task: it sees an example and the place of a label (0 of
 * a class).  It either names the label itself, or it names a group of examples, whose most
 * frequent label is then its guess. */
struct task_rule {
    const char *name;
    bool        counts;
    int64_t (*look)(const struct task *t, const struct task_example *e, int64_t at);
};

struct task_def {
    const char         *name, *summary, *source;
    int                 version;
    const foci_arg_def *args;
    size_t              n_args;
    const char *const  *slices; /* names, up to NULL; NULL: none */

    /* Check arguments against each other and set everything from kind to scratch_bytes.
     * Returns what is wrong, as a sentence that may be in t->message, or NULL. */
    const char *(*plan)(struct task *t);
    void (*fill)(const struct task *t, double *table); /* NULL: there is no table */

    void (*make)(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e);

    /* Text of an id of the target (side 0) or the source (1), and what stands between two;
     * NULL: a blank. */
    int (*symbol)(const struct task *t, int side, int32_t id, char *text, size_t cap);
    const char *(*between)(const struct task *t, int side, int32_t a, int32_t b);

    const struct task_rule *rules; /* [n_rules] beside chance and the most frequent */
    size_t                  n_rules;

    const char *preset, *published; /* as in foci_task_info */
};

#define TASK(name) extern const struct task_def task_##name;
#include "data/task/tasks.def"
#undef TASK

extern const struct task_def *const task_list[]; /* up to NULL */

/* Read "NAME(ARG=VALUE, ...)", plan it and fill its table; task_free() in every case. */
foci_status task_parse(foci_ctx *ctx, const char *text, struct task *t);
void        task_free(foci_ctx *ctx, struct task *t);

/* The text with every argument, as snprintf would. */
int task_print(const struct task *t, char *text, size_t cap);

int task_n_slices(const struct task *t);
int task_floor_count(const struct task *t);

/* The stream that example `index` of a split is drawn from; the one that a run of examples
 * shares, by the number of the run; and that of a table which all seeds and splits share,
 * by its number. */
struct rng task_stream(uint64_t seed, foci_data_split split, int64_t index);
struct rng task_run_stream(uint64_t seed, foci_data_split split, int64_t run);
struct rng task_table_stream(uint64_t number);

/* Memory for n examples, and example number i in it, empty. */
struct task_memory {
    const struct task *t;
    int64_t            n;
    size_t             each; /* bytes */
    char              *block;
};
foci_status         task_memory_make(foci_ctx *ctx, const struct task *t, int64_t n,
                                     struct task_memory *memory);
void                task_memory_free(foci_ctx *ctx, struct task_memory *memory);
struct task_example task_memory_at(const struct task_memory *memory, int64_t i);

/* Put examples first to first + n of a split into memory for as many, by all threads. */
void task_make(foci_ctx *ctx, const struct task_memory *memory, uint64_t seed,
               foci_data_split split, int64_t first, int64_t n,
               struct task_example *examples);

/* The value of a list of listops.c. */
int32_t listops_value(const int32_t *ids);

/* The argument at this place of the descriptor, as a whole number. */
static inline int64_t task_int(const struct task *t, int arg)
{
    return (int64_t)t->arg[arg];
}

#endif
