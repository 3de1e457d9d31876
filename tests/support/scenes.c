/* scenes.c -- all ways in which the library makes threads compute, small. */
#include "support/scenes.h"
#include "foci/product.h"

enum { HEADS = 4, DIM = 64, LEN = 320, ROWS = HEADS * LEN, N = ROWS * DIM };

/* The tensors of one run: several threads may have one each. */
struct tensors {
    uint16_t q[N], k[N], v[N], o[N], g[N], dq[N], dk[N], dv[N];
    float    c[LEN * LEN];
    uint64_t sum;
};

static const foci_problem problem = { FOCI_SIZED(foci_problem),
                                      .batch = 1,
                                      .heads = HEADS,
                                      .len_q = LEN,
                                      .len_k = LEN,
                                      .dim_qk = DIM,
                                      .dtype = FOCI_BF16,
                                      .flags = FOCI_FLAG_TRAIN | FOCI_FLAG_CAUSAL };

/* bf16 from -1 to 1. */
static void draw(uint16_t *x, uint64_t seed)
{
    struct rng r;

    rng_seed(&r, seed, 0);
    for (int i = 0; i < N; i++) {
        const float u = (float)(2 * rng_uniform(&r) - 1);
        uint32_t    bits;
        memcpy(&bits, &u, sizeof bits);
        x[i] = (uint16_t)(bits >> 16);
    }
}

/* FNV-1a, with 8 bytes at a time. */
static void add(struct tensors *t, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word;
        memcpy(&word, (const char *)from + i, sizeof word);
        t->sum = (t->sum ^ word) * UINT64_C(0x100000001b3);
    }
}

static bool attend(foci_plan *plan, struct tensors *t)
{
    foci_io    io = { FOCI_SIZED(foci_io), .q = t->q, .k = t->k, .v = t->v, .o = t->o };
    foci_grads grads = { FOCI_SIZED(foci_grads), .d_o = t->g, .dq = t->dq, .dk = t->dk,
                         .dv = t->dv };

    io.work = test_alloc(foci_plan_work_bytes(plan), 1);
    io.saved = test_alloc(foci_plan_saved_bytes(plan), 1);
    const bool done = foci_forward(plan, &io) == FOCI_OK &&
                      foci_backward(plan, &io, &grads) == FOCI_OK;
    free(io.work);
    free(io.saved);
    add(t, t->o, sizeof t->o);
    add(t, t->dq, sizeof t->dq);
    add(t, t->dk, sizeof t->dk);
    add(t, t->dv, sizeof t->dv);
    return done;
}

static bool decode(foci_plan *plan, struct tensors *t)
{
    const int32_t tokens = LEN;
    foci_pool    *pool = NULL;
    foci_state   *state = NULL;
    foci_step_io  io = { FOCI_SIZED(foci_step_io), .q = t->q, .k = t->k, .v = t->v,
                         .o = t->o };

    if (foci_pool_create(plan, LEN, &pool) != FOCI_OK) return false;
    bool done = foci_state_create(pool, &state) == FOCI_OK;
    io.work = test_alloc(foci_step_work_bytes(pool, 1, LEN, LEN), 1);
    io.states = &state;
    io.n_states = 1;
    io.tokens = &tokens;
    done = done && foci_step(pool, &io) == FOCI_OK;
    free(io.work);
    foci_state_free(state);
    foci_pool_free(pool);
    add(t, t->o, sizeof t->o);
    return done;
}

static bool multiply(foci_ctx *ctx, struct tensors *t)
{
    foci_product_io io = { FOCI_SIZED(foci_product_io), .m = LEN, .n = LEN, .k = DIM };

    io.a = t->q;
    io.b = t->k;
    io.c = t->c;
    io.type_a = io.type_b = FOCI_BF16;
    io.type_c = FOCI_F32;
    io.work = test_alloc(foci_product_work_bytes(ctx, &io), 1);
    const bool done = foci_product(ctx, &io) == FOCI_OK;
    free(io.work);
    add(t, t->c, sizeof t->c);
    return done;
}

uint64_t scenes_run(foci_ctx *ctx)
{
    static const char *const specs[] = { "softmax", "linear", "2*softmax + 2*linear" };
    struct tensors          *t = test_alloc(1, sizeof *t);
    bool                     done = true;

    draw(t->q, 1);
    draw(t->k, 2);
    draw(t->v, 3);
    draw(t->g, 4);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        foci_plan *plan = NULL;
        done = done && foci_plan_create(ctx, specs[i], &problem, &plan) == FOCI_OK &&
               attend(plan, t) && decode(plan, t);
        foci_plan_free(plan);
    }
    done = done && multiply(ctx, t);
    const uint64_t sum = done ? t->sum | 1 : 0;
    free(t);
    return sum;
}
