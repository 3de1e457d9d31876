/* foci.h -- efficient attention for C programs.
 *
 * Say what to compute, on which shapes, then compute it as often as you like:
 *
 *     foci_problem p = { FOCI_SIZED(foci_problem), .batch = 2, .heads = 8,
 *                        .len_q = 4096, .len_k = 4096, .dim_qk = 64 };
 *     foci_plan *plan;
 *     if (foci_plan_create(ctx, "softmax", &p, &plan))
 *         die(foci_errmsg(ctx));
 *     void *work = aligned_alloc(64, foci_plan_work_bytes(plan));
 *     foci_forward(plan, &(foci_io){ FOCI_SIZED(foci_io), .q = q, .k = k,
 *                                    .v = v, .o = o, .work = work });
 *     foci_plan_free(plan);
 *
 * Planning does all that can fail: it parses, checks, chooses kernels and
 * allocates.  Executing allocates nothing (of decoding see foci_step()) and reads
 * the plan only; it refuses what could not be known before (a missing pointer, a
 * length out of range).
 * Whatever fails says why: see foci_errmsg().
 *
 * Lists.  A function *_count gives the number of entries, a second function the entry at
 * an index from 0 to that number - 1; other indices give NULL or FOCI_ERR_ARG.
 *
 * Ownership.  Every *_create has one *_free, which accepts NULL.  Tensors and scratch memory
 * are the caller's; no call keeps a pointer to them.  *_bytes() is SIZE_MAX if it refuses.
 *
 * Threads.  A context plans for one thread at a time.  A plan is immutable:
 * any number of threads may execute it at once, each with its own `work`.
 * Results do not depend on the number of threads an execution uses.  A child
 * that a process with several threads forks computes with one.
 */
#ifndef FOCI_H
#define FOCI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FOCI_API __attribute__((visibility("default")))
#else
#define FOCI_API
#endif

/* Structs passed by address start with their size, so that they can grow; those without
 * one are complete and never do.  Fields left zero take the default named beside them.
 * C++ before C++20 has no designated initialisers: foci_io io{}; io.size = sizeof io;
 * there. */
#define FOCI_SIZED(type) .size = sizeof(type)

typedef enum foci_status {
    FOCI_OK = 0,
    FOCI_ERR_ARG = -1,    /* an argument is out of range or contradicts another */
    FOCI_ERR_SPEC = -2,   /* the mechanism text does not parse */
    FOCI_ERR_UNSUP = -3,  /* well formed, but not offered: see foci_errmsg() */
    FOCI_ERR_MEMORY = -4, /* an allocation failed */
    FOCI_ERR_DEVICE = -5, /* the device refused, or failed while executing */
    FOCI_ERR_FILE = -6,   /* a file is missing, unreadable, malformed or full */
    FOCI_ERR_FULL = -7    /* a pool has too few pages left: free some or grow it */
} foci_status;

/* A short English name of a status, never NULL. */
FOCI_API const char *foci_status_text(foci_status status);

/* The version of this header, in numbers and as text, "0.1.0"; and that of the library. */
#define FOCI_VERSION_MAJOR    0
#define FOCI_VERSION_MINOR    1
#define FOCI_VERSION_PATCH    0
#define FOCI_DOTTED_(a, b, c) #a "." #b "." #c
#define FOCI_DOTTED(a, b, c)  FOCI_DOTTED_(a, b, c)
#define FOCI_VERSION                                                                   \
    FOCI_DOTTED(FOCI_VERSION_MAJOR, FOCI_VERSION_MINOR, FOCI_VERSION_PATCH)
FOCI_API const char *foci_version(void);

/* Types of tensors.  Elements of bf16 and f16 are bit patterns, as uint16_t.  Where the
 * CPU multiplies bf16, tensors of f16 are rounded to it for that: to three bits fewer,
 * and what is beyond 65408 comes back as infinity. */
typedef enum foci_dtype { FOCI_F32, FOCI_BF16, FOCI_F16 } foci_dtype;

/* Bytes of one element. */
FOCI_API size_t foci_dtype_bytes(foci_dtype dtype);

/*
 * Contexts
 */

/* A context: threads, CPU level, allocator and device of the plans that are made on it. */
typedef struct foci_ctx foci_ctx;

/* Allocate (ptr NULL), resize, or free (new_bytes 0) a block, as realloc would,
 * 64-byte aligned.  NULL on failure, with the old block untouched. */
typedef void *(*foci_alloc_fn)(void *user, void *ptr, size_t old_bytes,
                               size_t new_bytes);

typedef struct foci_options {
    size_t        size;
    int           threads; /* 0: $FOCI_THREADS, or one for each core we may run on */
    const char   *cpu;     /* highest CPU level to use, as foci_cpu_level() names
                            * them; NULL: $FOCI_CPU, or the best there is */
    foci_alloc_fn alloc;   /* NULL: malloc and free */
    void         *user;    /* given to alloc; may be NULL */
    const char   *device;  /* "cuda" or "cuda:1": plans run there, see below; NULL: on
                            * the CPU */
} foci_options;

/* `options` may be NULL.  When even the context cannot be made, *ctx is NULL and
 * foci_errmsg(NULL) gives the reason. */
FOCI_API foci_status foci_ctx_create(const foci_options *options, foci_ctx **ctx);
FOCI_API void        foci_ctx_free(foci_ctx *ctx);

/* Why the last failed call of this thread failed, one sentence: what was wrong, the
 * value seen, what would be accepted.  Every call that returns a foci_status other than
 * FOCI_OK leaves one, executions included.  Messages are per thread, so that threads
 * which execute one plan see their own failures only.  With a ctx the message is that of
 * a call on it or on a plan, layer or pool made on it, and "" if the thread's last
 * failure was on another context; with NULL it is the thread's last message on any
 * context or none (for calls that take no context, or failed to make one).  Valid until
 * the thread's next failure. */
FOCI_API const char *foci_errmsg(const foci_ctx *ctx);

/* Threads that executions use. */
FOCI_API int foci_ctx_threads(const foci_ctx *ctx);

/* CPU levels from the portable one (0) up.  `state` says "chosen", "available" or why the
 * level is not used. */
FOCI_API int         foci_cpu_level_count(const foci_ctx *ctx);
FOCI_API const char *foci_cpu_level(const foci_ctx *ctx, int level, const char **state);

/* Kernels of this context, and the CPU level whose code each one uses. */
FOCI_API int         foci_kernel_count(const foci_ctx *ctx);
FOCI_API const char *foci_kernel(const foci_ctx *ctx, int i, const char **level);

/* Convert n elements of one type to another, on the host: rounded to nearest, ties to
 * even; what is too large becomes infinity, and a NaN stays one.  Arrays must not
 * overlap. */
FOCI_API foci_status foci_convert(const foci_ctx *ctx, foci_dtype to_type, void *to,
                                  foci_dtype from_type, const void *from, int64_t n);

/* Peak rates of this machine, or of the device of ctx, per second and with all threads of
 * ctx; measuring takes about a second.  *_flops: floating-point operations in registers,
 * of the products that problems in f32 and in bf16 are made of.  copy_bytes (read plus
 * written) and read_bytes: over and over through `working_set` bytes; 0 chooses a set
 * larger than the caches, and is replaced by its size. */
typedef struct foci_machine {
    size_t size;
    double f32_flops, bf16_flops, copy_bytes, read_bytes;
    double working_set;
} foci_machine;

/* Measure, into the fields that machine->size covers. */
FOCI_API foci_status foci_ctx_measure(foci_ctx *ctx, foci_machine *machine);

/*
 * Devices
 *
 * Plans made on a context with a device run on it.  All pointers of foci_io and
 * foci_grads, lengths, documents and parameters included, are then device memory, and
 * executions return once their work is queued on foci_io.stream: they allocate nothing,
 * never wait, and can be captured in a CUDA graph.  Lengths out of range are clipped.
 * Planning refuses, by name, what the device does not implement.  The judge and
 * foci_params_init() work on host memory.
 */

/* A description of the device of a context; name is NULL where it has none. */
typedef struct foci_device {
    size_t      size;
    const char *name;                   /* "cuda:0" */
    const char *model;                  /* as its maker calls it */
    int         processors, capability; /* multiprocessors; 90 for 9.0 */
    size_t      memory_bytes;
} foci_device;

/* Describe the device of ctx, into the fields that device->size covers. */
FOCI_API foci_status foci_ctx_get_device(const foci_ctx *ctx, foci_device *device);

/* Memory that plans on ctx can work on, 256-byte aligned on a device: for programs that
 * do not know CUDA.  Without a device it is the host's, 64-byte aligned. */
FOCI_API foci_status foci_device_alloc(foci_ctx *ctx, size_t bytes, void **memory);
FOCI_API void        foci_device_free(foci_ctx *ctx, void *memory, size_t bytes);

/* Copy from the host to memory of the device, and back. Both wait until the copy, and all
 * work queued before it on the default stream, is done. */
FOCI_API foci_status foci_device_write(foci_ctx *ctx, void *to, const void *from,
                                       size_t bytes);
FOCI_API foci_status foci_device_read(foci_ctx *ctx, void *to, const void *from,
                                      size_t bytes);

/* Wait for all work of a stream (NULL: of the device); the status is that of this work. */
FOCI_API foci_status foci_device_wait(foci_ctx *ctx, void *stream);

/*
 * Problems
 */

enum {
    FOCI_FLAG_CAUSAL = 1 << 0,      /* query i sees keys up to i + len_k - len_q */
    FOCI_FLAG_TRAIN = 1 << 1,       /* foci_backward() will be called */
    FOCI_FLAG_FAST = 1 << 2,        /* bf16 products for f32 tensors: on standard normal
                                     * inputs a relative RMS error of at most 8e-3 of
                                     * outputs and 3e-2 of gradients, of mechanisms and of
                                     * layers (softmax alone: 4e-3 and 1e-2); it grows
                                     * with the size of the logits.  Layers that choose keys
                                     * by labels may choose others */
    FOCI_FLAG_MASK = 1 << 3,        /* io.mask will be given */
    FOCI_FLAG_BIAS = 1 << 4,        /* io.bias will be given */
    FOCI_FLAG_MEMORY_GRADS = 1 << 5 /* keys that are memory take gradients all the same:
                                     * weights that made them are trained through them,
                                     * though what they were made of is not */
};

/* The stride of an axis along which all rows are the same: of inputs only. */
#define FOCI_BROADCAST INT64_MIN

/* Strides: distances in elements between neighbours along each axis; the elements of a
 * row are adjacent.  Each that is 0 is filled in, the innermost first, so that with
 * three zeros the tensor is packed as [batch][row][head][dim].  Rows of outputs (o;
 * gradients that are wanted) must not overlap, nor rows of inputs with strides that were
 * filled in. */
typedef struct foci_layout {
    int64_t batch; /* 0: the extent of all rows of all heads */
    int64_t row;   /* 0: the extent of all heads */
    int64_t head;  /* 0: dim */
} foci_layout;

/* A list of whole numbers that a mechanism asks for when it is planned ("layout" of
 * block, "global" of global); in a mix its name is GROUP.NAME.  The plan copies it.  The
 * struct is complete and never grows. */
typedef struct foci_list {
    const char    *name;
    const int64_t *data;
    int64_t        count;
} foci_list;

/* Fields left 0 take the default that is named beside them. */
typedef struct foci_problem {
    size_t      size;
    foci_dtype  dtype;    /* of q, k, v, x and o (0: FOCI_F32); sums are kept in f32 */
    uint32_t    flags;    /* FOCI_FLAG_CAUSAL and so on; 0: none */
    int64_t     batch;    /* sequences; 0: 1 */
    int64_t     heads;    /* of queries; 0: 1 */
    int64_t     kv_heads; /* 0: as many as heads; must divide heads (each head of a
                           * mechanism with routes counts for as many) */
    int64_t     len_q;    /* rows of q and o; must be given */
    int64_t     len_k;    /* rows of k and v; 0: as len_q */
    int64_t     dim_qk;   /* elements of a row of q and k; must be given */
    int64_t     dim_v;    /* of v and o; 0: as dim_qk */
    int64_t     dim_x;    /* of x; 0: there is no x */
    int64_t     memory;   /* leading keys that take no gradient, but for
                           * FOCI_FLAG_MEMORY_GRADS; 0: none */
    int64_t     max_docs; /* documents in one pack; 0: none are packed */
    foci_layout q, k, v, o, x;          /* 0: see foci_layout */
    int64_t     mask_batch, mask_heads; /* extents of io.mask and io.bias: batch and
                                         * heads, or 1 (shared); 0: 1 */
    const foci_list *lists;             /* n_lists of them; 0 and NULL: none */
    int64_t          n_lists;
    uint64_t seed; /* of supports that are drawn (bigbird); 0 is a seed like others */
    double   dropout; /* share of the weights that executions drop, below 1; 0: none */
} foci_problem;

/* Read "b2h8k2n4096m4096d64v64c" (design of the letters: docs/specs.md) into
 * batch, heads, lengths, widths and FOCI_FLAG_CAUSAL of *problem; other fields are
 * left alone.  Without k, kv_heads is 0, which a plan fills in.  Without a context the
 * message is lost. */
FOCI_API foci_status foci_problem_parse(foci_ctx *ctx, const char *text,
                                        foci_problem *problem);

/* Write that text, as snprintf would. */
FOCI_API int foci_problem_print(const foci_problem *problem, char *text, size_t cap);

/*
 * Plans
 */

/* A list that planning a spec asks for. */
typedef struct foci_list_want {
    size_t  size;
    char    name[64]; /* as in foci_list */
    int64_t count;    /* entries; -1: any number, or none */
    int64_t most;     /* entries are 0 to this */
} foci_list_want;

/* The lists that planning `spec` on `problem` asks for: how many, and number `index`. */
FOCI_API foci_status foci_list_wanted_count(foci_ctx *ctx, const char *spec,
                                            const foci_problem *problem, int *count);
FOCI_API foci_status foci_list_wanted(foci_ctx *ctx, const char *spec,
                                      const foci_problem *problem, int index,
                                      foci_list_want *want);

/* A plan: how to compute a spec on a problem. It is immutable. */
typedef struct foci_plan foci_plan;

/* Plan `spec`, for instance "softmax" or "4*softmax logn + 4*relu2", on `problem`.
 * On failure *plan is NULL and foci_errmsg(ctx) says what to change. */
FOCI_API foci_status foci_plan_create(foci_ctx *ctx, const char *spec,
                                      const foci_problem *problem, foci_plan **plan);
FOCI_API void        foci_plan_free(foci_plan *plan);

/* The problem that was planned, with layouts and other defaults filled in, into the fields
 * that problem->size covers; its lists are NULL, as a plan does not keep them. */
FOCI_API foci_status foci_plan_get_problem(const foci_plan *plan, foci_problem *problem);

/* Bytes of scratch memory and of what forward keeps for backward (0 without
 * FOCI_FLAG_TRAIN), in multiples of 64. */
FOCI_API size_t foci_plan_work_bytes(const foci_plan *plan);
FOCI_API size_t foci_plan_saved_bytes(const foci_plan *plan);

/* Write one line for each stage, with kernels and cost, as snprintf would. */
FOCI_API int foci_plan_describe(const foci_plan *plan, char *text, size_t cap);

/* Write the spec with every argument spelled out; it parses to the same plan. */
FOCI_API int foci_plan_spec(const foci_plan *plan, char *text, size_t cap);

/* What an execution costs, counted and not measured. */
typedef struct foci_cost {
    size_t size;
    double forward_flops, backward_flops;
    double forward_bytes, backward_bytes; /* least traffic: inputs once, outputs once */
    double pairs; /* query-key pairs visible, all heads and sequences */
    int64_t tiles_full, tiles_part, tiles_skipped;
} foci_cost;

/* Count, into the fields that cost->size covers. */
FOCI_API foci_status foci_plan_cost(const foci_plan *plan, foci_cost *cost);

/*
 * Parameters: the tensors a mechanism owns.  All of a plan live in one array of
 * floats that the caller allocates.
 */

typedef enum foci_keep {
    FOCI_KEEP_FROZEN,
    FOCI_KEEP_TRAINED,
    FOCI_KEEP_MOVED /* by the mechanism's own rule */
} foci_keep;

typedef struct foci_param {
    size_t      size;
    const char *name;   /* "sink"; in a mix "GROUP.NAME", groups from 0 */
    int64_t     offset; /* in floats, into the array of all parameters */
    int64_t     count;  /* floats, all heads together */
    int         n_dims; /* shape[0] is the heads of the group */
    int64_t     shape[4];
    foci_keep   keep;
} foci_param;

/* Floats of all parameters together; the number of tensors; tensor number `index`. */
FOCI_API int64_t     foci_plan_param_floats(const foci_plan *plan);
FOCI_API int         foci_plan_param_count(const foci_plan *plan);
FOCI_API foci_status foci_plan_param(const foci_plan *plan, int index,
                                     foci_param *param);

/* Draw all parameters from a seed. */
FOCI_API foci_status foci_params_init(const foci_plan *plan, uint64_t seed,
                                      float *params);

/*
 * Execution
 */

typedef struct foci_io {
    size_t      size;
    const void *q, *k, *v; /* NULL only where the spec does not read them */
    const void *x; /* [batch][row][dim_x] hidden states; NULL: the spec reads none */
    void       *o; /* must be given */
    float *lse;    /* [batch][heads][len_q] log of what the weights were divided by, the
                    * sink included; -inf for rows that see nothing; 0 for rows that are
                    * sums of several attentions; NULL: not wanted */
    const int32_t *len_q, *len_k; /* [batch] valid rows; NULL: all */
    const int32_t *docs;          /* [n_docs + 1] offsets of the n_docs documents in
                                   * the one pack, batch 1 and len_q = len_k; NULL: each
                                   * batch entry is one */
    int64_t        n_docs;
    const int32_t *words; /* [batch][row] word of each token; NULL: the spec reads none */
    const float   *params; /* as laid out by foci_plan_param(); NULL: none needed */
    void          *saved;  /* foci_plan_saved_bytes() from forward to backward, 64-byte
                            * aligned; NULL: inference only */
    void          *work;   /* foci_plan_work_bytes() of scratch, 64-byte aligned */
    const uint8_t *mask;   /* [mask_batch][mask_heads][len_q][len_k], 0: hidden; NULL
                            * without FOCI_FLAG_MASK */
    const float *bias; /* likewise, added to the logits; NULL without FOCI_FLAG_BIAS */
    uint64_t dropout_seed; /* weight (b, h, i, j) is dropped by a hash of these; 0 is
                            * a seed like others */
    void    *stream; /* on a device, a cudaStream_t of it; NULL: the default one */
} foci_io;

/* Gradients.  Those of inputs are written and have the layout and dtype of their
 * inputs; those of parameters are added.  NULL: not wanted. */
typedef struct foci_grads {
    size_t      size;
    const void *d_o; /* the gradient of o, laid out as o; must be given */
    void       *dq, *dk, *dv, *dx;
    float      *dparams;
    float      *dbias; /* of io.bias, laid out as it is; written */
    int skip_unread; /* 1: heads that do not read an input leave its gradient alone; 0:
                      * they write zeros */
} foci_grads;

/* Compute io->o (and lse).  Rows beyond a length give zero.  Outputs that overlap inputs
 * or each other are refused; columns of the same rows, as in one buffer [row][q, k, v,
 * o], do not overlap. */
FOCI_API foci_status foci_forward(const foci_plan *plan, const foci_io *io);

/* Compute the gradients.  Needs the io of the forward call, with o and saved as forward
 * left them. */
FOCI_API foci_status foci_backward(const foci_plan *plan, const foci_io *io,
                                   const foci_grads *grads);

/* Move the parameters that a mechanism moves itself (FOCI_KEEP_MOVED), once a training
 * step: from io->params, by what q and k of the batch hold, to `params`, which may be
 * the same array.  Others are not written.  io as for foci_forward(), though v and o are
 * neither read nor written. */
FOCI_API foci_status foci_params_advance(const foci_plan *plan, const foci_io *io,
                                         float *params);

/* Compute the parameters that are statistics of q and k from all sequences of the batch
 * together; they then stay fixed, as causal problems need.  io and params are as above. */
FOCI_API foci_status foci_params_calibrate(const foci_plan *plan, const foci_io *io,
                                           float *params);

/* Check arguments as foci_forward() or, with grads, foci_backward() does, and execute
 * nothing; the message goes to `text`, as by snprintf. */
FOCI_API foci_status foci_io_check(const foci_plan *plan, const foci_io *io,
                                   const foci_grads *grads, char *text, size_t cap);

/*
 * Decoding: token by token, with what has been seen kept in a state.
 *
 * A pool holds keys and values in pages of FOCI_PAGE tokens; the states of any number
 * of sequences share it.  A state grows by taking pages, never by copying; a copy of a
 * state shares its pages until one of the two writes into one.  A pool serves one
 * thread at a time.
 */

/* Tokens of a page. */
enum { FOCI_PAGE = 64 };

/* Memory that sequences share, and what one sequence has seen. */
typedef struct foci_pool  foci_pool;
typedef struct foci_state foci_state;

/* A pool of `pages` pages for sequences decoded by `plan`, which must be causal and
 * outlive the pool.  Lengths and batch of its problem do not matter. */
FOCI_API foci_status foci_pool_create(const foci_plan *plan, int64_t pages,
                                      foci_pool **pool);
/* Free a pool; its states must have been freed before. */
FOCI_API void foci_pool_free(foci_pool *pool);

/* Add pages.  Those in use stay where they are. */
FOCI_API foci_status foci_pool_grow(foci_pool *pool, int64_t pages);

/* Pages of the pool, those that no state holds, and bytes of one page. */
FOCI_API int64_t foci_pool_page_count(const foci_pool *pool);
FOCI_API int64_t foci_pool_free_count(const foci_pool *pool);
FOCI_API size_t  foci_pool_page_bytes(const foci_pool *pool);

/* The state of an empty sequence. */
FOCI_API foci_status foci_state_create(foci_pool *pool, foci_state **state);
/* A copy that has seen the same tokens, for beams and shared prompts. */
FOCI_API foci_status foci_state_copy(const foci_state *state, foci_state **copy);
FOCI_API void        foci_state_free(foci_state *state);

/* Forget all tokens, or those from `len` on; the pages go back to the pool.
 * FOCI_ERR_UNSUP: mechanisms release tokens that they no longer see, and a state of `len`
 * tokens would need some of these; nothing was changed. */
FOCI_API void        foci_state_reset(foci_state *state);
FOCI_API foci_status foci_state_truncate(foci_state *state, int64_t len);

/* Grow the tables of a state for so many more tokens.  The steps that append them then
 * allocate nothing: their pages are the pool's, which this call does not set aside.
 * Without it tables grow in foci_step(), to twice their size whenever they are full. */
FOCI_API foci_status foci_state_reserve(foci_state *state, int64_t tokens);

/* Tokens seen, and bytes held (shared pages counted whole). */
FOCI_API int64_t foci_state_len(const foci_state *state);
FOCI_API size_t  foci_state_bytes(const foci_state *state);

/* Write the state to `data`, if cap suffices; the result is the size it needs.  Restore
 * makes a state of it on a pool of the same spec and shape, on any machine of the same
 * byte order. */
FOCI_API size_t      foci_state_save(const foci_state *state, void *data, size_t cap);
FOCI_API foci_status foci_state_restore(foci_pool *pool, const void *data, size_t bytes,
                                        foci_state **state);

/* New tokens of several sequences.  Rows of q, k, v and o lie one after another,
 * [row][head][dim] without gaps, the tokens of states[0] first. */
typedef struct foci_step_io {
    size_t             size;
    foci_state *const *states; /* [n_states], no state twice */
    int64_t            n_states;
    const int32_t     *tokens; /* [n_states] new tokens of each; NULL: one */
    const void        *q, *k, *v;
    void              *o; /* NULL: append only, nothing is attended; q is then needed
                           * only where keys are made of queries (lsh, shared) */
    const float       *params; /* as in foci_io */
    void              *work;   /* 64-byte aligned, foci_step_work_bytes() */
    const void        *x; /* [row][dim_x] hidden states; NULL: the spec reads none */
    const int32_t     *words; /* [row] word of each token, likewise */
} foci_step_io;

/* Work memory of a step of that many states with that many new tokens in all, the
 * longest of them then max_len long.  SIZE_MAX: there cannot be so many. */
FOCI_API size_t foci_step_work_bytes(const foci_pool *pool, int64_t n_states,
                                     int64_t tokens, int64_t max_len);

/* Append the tokens to their states and attend: row i of a sequence sees what the causal
 * forward over the whole sequence shows it.  FOCI_ERR_FULL: the pool has too few free
 * pages; nothing was changed, free or grow and call again.  Pages come from the pool;
 * memory is allocated only where the tables of a state are full (foci_state_reserve()),
 * and after FOCI_ERR_MEMORY nothing was changed. */
FOCI_API foci_status foci_step(foci_pool *pool, const foci_step_io *io);

/*
 * The judge: a reference that computes the formulas as written, in double precision, one
 * pair at a time.  Slow.  `work` and `saved` are not needed; memory is allocated.
 */

/* As foci_forward() and foci_backward(). */
FOCI_API foci_status foci_ref_forward(const foci_plan *plan, const foci_io *io);
FOCI_API foci_status foci_ref_backward(const foci_plan *plan, const foci_io *io,
                                       const foci_grads *grads);

/* The matrix A with o = A v, [batch][heads][len_q][len_k], for analysis; with a modifier
 * that adds to the values, o = A (v + ...).  FOCI_ERR_UNSUP where heads have several v. */
FOCI_API foci_status foci_ref_weights(const foci_plan *plan, const foci_io *io,
                                      float *weights);

#ifdef __cplusplus
}
#endif
#endif
