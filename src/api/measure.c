/* measure.c -- the peak rates of this machine: products and memory traffic.
 *
 * A ceiling is what nothing exceeds.  Products are those of registers (peak_f32 and
 * peak_bf16 of the context's kernels), in all threads at once, and the product of blocks in
 * the first-level cache, where that is faster.  The best of several short runs counts: clocks
 * vary, and a ceiling is what was reached, not what was usual.
 * Data are not zero, because zeros draw less power and run faster than any real product
 * does.  Where bf16 problems are computed in f32, that is their ceiling.
 */
#include <math.h>
#include <omp.h>
#include <string.h>
#include <time.h>

#include "api/measure.h"
#include "core/core.h"
#include "device/device.h"

enum {
    SIZE = 256, /* floats or bf16 pairs that registers are filled from */
    BLOCK = 64, /* rows and columns of a block */
    TRIES = 48,
};

/* Short, so that all threads of a run may have their cores to themselves for once on a
 * machine that is busy. */
#define RUN_SECONDS 0.0005

struct measure_operands {
    _Alignas(64) float c[BLOCK * BLOCK];
    _Alignas(64) union {
        float    f32[BLOCK * BLOCK];
        uint32_t pairs[BLOCK * BLOCK];
    } a, b;
};

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double measure_now(void) { return seconds_of(CLOCK_MONOTONIC); }

double measure_busy(void) { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

/* One call on a thread's operands, `rounds` of it; the result is FLOP. */
typedef double (*stream_fn)(const struct kernels *k, struct measure_operands *o,
                            int64_t rounds);

struct probe {
    const struct kernels    *kernels;
    struct measure_operands *operands; /* one for each thread */
    int                      threads;
    stream_fn                stream;
};

static double registers_f32(const struct kernels *k, struct measure_operands *o,
                            int64_t rounds)
{
    return k->peak_f32(o->c, o->a.f32, o->b.f32, rounds);
}

static double registers_bf16(const struct kernels *k, struct measure_operands *o,
                             int64_t rounds)
{
    return k->peak_bf16(o->c, o->a.pairs, o->b.pairs, rounds);
}

static double block_f32(const struct kernels *k, struct measure_operands *o,
                        int64_t rounds)
{
    for (int64_t r = 0; r < rounds; r++)
        k->gemm_f32(o->c, BLOCK, o->a.f32, BLOCK, 1, o->b.f32, BLOCK, BLOCK, BLOCK,
                    BLOCK, 0);
    return 2.0 * BLOCK * BLOCK * BLOCK * (double)rounds;
}

static double block_bf16(const struct kernels *k, struct measure_operands *o,
                         int64_t rounds)
{
    for (int64_t r = 0; r < rounds; r++)
        k->gemm_bf16(o->c, BLOCK, o->a.pairs, BLOCK, 1, o->b.pairs, BLOCK, BLOCK, BLOCK,
                     BLOCK, 0);
    return 4.0 * BLOCK * BLOCK * BLOCK * (double)rounds;
}

/* Numbers from 1 to 2, in either format. */
static void measure_fill(struct measure_operands *o, bool bf16)
{
    memset(o->c, 0, sizeof o->c);
    for (int i = 0; i < BLOCK * BLOCK; i++) {
        const uint32_t bits = (uint32_t)i * 2654435761u;
        if (bf16) {
            o->a.pairs[i] = 0x3f803f80u | (bits & 0x007f007fu);
            o->b.pairs[i] = 0x3f803f80u | (bits >> 7 & 0x007f007fu);
        } else {
            o->a.f32[i] = 1.0f + (float)(bits >> 16) / 65536.0f;
            o->b.f32[i] = 1.0f + (float)(bits & 0xffff) / 65536.0f;
        }
    }
}

/* FLOP a second of so many rounds in each thread, without the start of the threads, of
 * which the system may have given fewer than were asked for. */
static double measure_run(const struct probe *p, int64_t rounds)
{
    double begin = INFINITY, end = 0, flops = 0;
#pragma omp parallel num_threads(team_size(p->threads)) reduction(+ : flops) \
    reduction(min : begin) reduction(max : end)
    {
        struct measure_operands *o = &p->operands[omp_get_thread_num()];
        struct thread_state      before;
        if (p->kernels->begin) p->kernels->begin(&before);
#pragma omp barrier
        begin = measure_now();
        flops = p->stream(p->kernels, o, rounds);
        end = measure_now();
        if (p->kernels->end) p->kernels->end(&before);
    }
    return flops / (end - begin);
}

/* Rounds that take long enough, by the processor time of this thread: on a busy machine
 * others take their share of what a clock shows. */
static int64_t enough_rounds(const struct probe *p)
{
    struct thread_state before;
    int64_t             rounds = 1;
    double              seconds = 0;

    if (p->kernels->begin) p->kernels->begin(&before);
    for (; seconds < RUN_SECONDS && rounds < INT32_MAX; rounds *= 2) {
        const double start = measure_busy();
        p->stream(p->kernels, p->operands, rounds);
        seconds = measure_busy() - start;
    }
    if (p->kernels->end) p->kernels->end(&before);
    return rounds;
}

static double best_rate(const struct probe *p)
{
    const int64_t rounds = enough_rounds(p);
    double        best = 0;
    for (int i = 0; i < TRIES; i++) {
        const double rate = measure_run(p, rounds);
        if (rate > best) best = rate;
    }
    return best;
}

static double product_rate(const foci_ctx *ctx, struct measure_operands *operands,
                           bool bf16)
{
    const stream_fn streams[] = { bf16 ? registers_bf16 : registers_f32,
                                  bf16 ? block_bf16 : block_f32 };
    struct probe p = { .kernels = &ctx->kernels,
                       .operands = operands,
                       .threads = ctx->threads };
    double       best = 0;

#pragma omp parallel num_threads(team_size(ctx->threads))
    measure_fill(&operands[omp_get_thread_num()], bf16);
    for (int i = 0; i < 2; i++) {
        p.stream = streams[i];
        const double rate = best_rate(&p);
        if (rate > best) best = rate;
    }
    return best;
}

static foci_status measure_products(foci_ctx *ctx, foci_machine *m)
{
    const size_t             n = (size_t)ctx->threads;
    struct measure_operands *operands = ctx_alloc(ctx, n, sizeof *operands);
    if (!operands) return FOCI_ERR_MEMORY;

    m->f32_flops = product_rate(ctx, operands, false);
    m->bf16_flops = ctx->kernels.has_bf16 ? product_rate(ctx, operands, true) : 0;
    if (m->bf16_flops < m->f32_flops) m->bf16_flops = m->f32_flops;
    ctx_free(ctx, operands, n, sizeof *operands);
    return FOCI_OK;
}

foci_status foci_ctx_measure(foci_ctx *ctx, foci_machine *machine)
{
    foci_machine m;

    if (!ctx)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_ctx_measure: the context is NULL");
    TRY(sized_in(ctx, "foci_machine", &m, machine, sizeof m));
    if (ctx->device) return device_measure(ctx, machine);
    TRY(measure_products(ctx, &m));
    TRY(measure_traffic(ctx, &m));
    return sized_out(ctx, "foci_machine", machine, &m, sizeof m);
}
