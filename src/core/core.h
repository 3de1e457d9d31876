/* core.h -- context, errors, memory, random numbers: the base of every other folder. */
#ifndef FOCI_CORE_H
#define FOCI_CORE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "foci/foci.h"
#include "foci/mechanism.h"
#include "kernels/kernels.h"

#define TRY(expr)                                                                      \
    do {                                                                               \
        const foci_status try_status = (expr);                                         \
        if (try_status != FOCI_OK) return try_status;                                  \
    } while (0)

#if defined(__GNUC__)
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#else
#define PRINTF_LIKE(f, a)
#endif

enum { MAX_THREADS = 1024 };

struct foci_ctx {
    foci_alloc_fn   alloc;
    void           *user;
    int             threads;
    unsigned        levels;        /* in use, bits of enum level */
    const char     *why[N_LEVELS]; /* a level is not in use; NULL: it is */
    struct kernels  kernels;
    int64_t         l2_bytes; /* of a core's second-level cache; 0: not known */
    foci_mech_def **own;      /* registered by the program */
    int             n_own;
    struct device  *device; /* device/device.h; NULL: plans run on the CPU */
    uint64_t        number; /* identifies the context in messages (message.c) */
};

/* message.c: the number of a new context.  ctx_fail() stores the text, as one line, as the
 * message of this thread for a call on ctx (NULL: on none), and returns the status. */
uint64_t    ctx_number(void);
foci_status ctx_fail(foci_ctx *ctx, foci_status status, const char *format, ...)
    PRINTF_LIKE(3, 4);
/* The same about a file: "PATH: " is put before the sentence.  Of a long path the end is
 * shown, which says more than its beginning. */
void ctx_fail_in(foci_ctx *ctx, foci_status status, const char *path,
                 const char *format, va_list args) PRINTF_LIKE(4, 0);

/* n elements of `size` bytes each, zeroed; NULL when that overflows or fails, with
 * the message set. */
void *ctx_alloc(foci_ctx *ctx, size_t n, size_t size);
void  ctx_free(foci_ctx *ctx, void *p, size_t n, size_t size);

/* Structs that start with their size (sized.c), of `bytes` in this version, in calls on ctx:
 * the whole of one that is given, and one that is wanted.  Refused, with a sentence that
 * names the type, is one that is missing or whose size was never given out. */
foci_status sized_in(foci_ctx *ctx, const char *type, void *whole, const void *given,
                     size_t bytes);
foci_status sized_out(foci_ctx *ctx, const char *type, void *place, const void *whole,
                      size_t bytes);

/* Whether sized_out() would refuse the place, asked before there is anything to put there. */
foci_status sized_check(foci_ctx *ctx, const char *type, const void *place,
                        size_t bytes);

/* Text that is written as by snprintf: all is counted, what fits is there. */
struct printer {
    char  *at;
    size_t cap;
    int    used;
};

void printer_add(struct printer *t, const char *format, ...) PRINTF_LIKE(2, 3);

/* Lines on what an execution costs and on the memory it takes, of plans and layers. */
void printer_cost(struct printer *t, const foci_cost *c, bool backward);
void printer_memory(struct printer *t, size_t work, size_t saved, int64_t floats);

/* The default foci_alloc_fn. */
void *default_alloc(void *user, void *old, size_t old_bytes, size_t new_bytes);

/* Processors this process may run on, 1 to MAX_THREADS. */
int cpu_count(void);

/* Bytes of the second-level cache, 0 where the system does not say. */
int64_t cpu_l2_bytes(void);

/* *out = a b; false, with *out untouched, on overflow. */
bool mul_size(size_t a, size_t b, size_t *out);

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t b) { return div_up(a, b) * b; }

/* An arena hands out aligned pieces of one block.  With base NULL it only counts,
 * so that a dry run of the code that carves gives the size it needs. */
struct arena {
    char  *base;
    size_t used;
};

/* n elements of `size` bytes, 64-byte aligned; NULL on a null arena.  The plan has
 * checked that the sum does not overflow by arena_ok(). */
void *arena_alloc(struct arena *a, int64_t n, size_t size);

/* used is SIZE_MAX once a piece did not fit into a size_t. */
static inline bool arena_ok(const struct arena *a) { return a->used != SIZE_MAX; }

/*
 * Work for threads (jobs.c)
 */

/* Jobs i < n, in any order and `chunk` at a time; no job waits for another.  thread is below
 * the number of the context's threads, and no two jobs run at once with the same one. */
struct phase {
    int64_t n;
    int     chunk;
    void (*job)(void *arg, int64_t i, int thread);
    void *arg;
};

/* How many of `threads` a parallel region of this process may have (team.c), from the first
 * call of team_init() on. */
void team_init(void);
int  team_size(int threads);

/* How many threads are worth starting for these jobs of `flops` in all. */
int jobs_threads(int threads, int64_t jobs, double flops);

/* Run one phase after the other, each when the one before is done.  `shared`: the caller is
 * inside jobs_share(), and `threads` is ignored. */
void phases_run(const struct kernels *k, bool shared, int threads,
                const struct phase *phases, int n);

/* job(i) for i < n, started in that order, where each may call phases_run(): all share
 * the threads. */
void jobs_share(const struct kernels *k, int threads, int64_t n,
                void (*job)(void *arg, int64_t i), void *arg);

/* SplitMix64 streams (docs/random.md): the same numbers everywhere. */
struct rng {
    uint64_t state;
    double   kept;
    bool     has_kept;
};

void     rng_seed(struct rng *r, uint64_t seed, uint64_t stream);
uint64_t rng_u64(struct rng *r);
double   rng_uniform(struct rng *r); /* in (0, 1) */
double   rng_normal(struct rng *r);
int64_t  rng_below(struct rng *r, int64_t n);

/* The word that a stream in state `key` draws n words on. */
uint64_t rng_absorb(uint64_t key, uint64_t n);
/* The dropout key of row i of head h (-1: of an output) of batch entry b; its element j
 * absorbs j + 1 (docs/random.md). */
uint64_t rng_drop_key(uint64_t seed, int64_t b, int64_t h, int64_t i);

/* A d x k frame of orthonormal columns, row-major, uniform on the Stiefel manifold;
 * 0 < k <= d. */
void rng_haar(struct rng *r, int64_t d, int64_t k, double *q);

#endif
