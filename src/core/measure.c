/* measure.c -- what this machine can do: products and memory traffic.
 *
 * Products are those of the context's own kernels, on blocks that stay in the first
 * cache, in all threads at once.  Several shapes are tried, for none suits every
 * level, and the best of several short runs counts: clocks wander, and a ceiling is
 * what was reached, not what was usual.  Data are not zero, because zeros draw less
 * power and run faster than any real product does.
 */
#include <omp.h>
#include <string.h>
#include <time.h>

#include "core/core.h"

enum {
    WORDS = 16384,      /* of an operand, at most */
    TRIES = 6,          /* runs of a shape */
    BUFFER = 256 << 20, /* bytes, beyond any cache */
};

#define RUN_SECONDS 0.01

struct shape {
    int m, n, k; /* k in words */
};

struct operands {
    _Alignas(64) float c[WORDS];
    _Alignas(64) union {
        float    f32[WORDS];
        uint32_t words[WORDS];
    } a, b;
};

struct probe {
    const struct kernels *kernels;
    struct operands      *operands; /* one for each thread */
    int                   threads;
    bool                  bf16;
    struct shape          shape;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Numbers from 1 to 2, in either format. */
static void fill(struct operands *o, bool bf16)
{
    for (int i = 0; i < WORDS; i++) {
        const uint32_t bits = (uint32_t)i * 2654435761u;
        if (bf16) {
            o->a.words[i] = 0x3f803f80u | (bits & 0x007f007fu);
            o->b.words[i] = 0x3f803f80u | (bits >> 7 & 0x007f007fu);
        } else {
            o->a.f32[i] = 1.0f + (float)(bits >> 16) / 65536.0f;
            o->b.f32[i] = 1.0f + (float)(bits & 0xffff) / 65536.0f;
        }
    }
}

static void multiply(const struct probe *p, struct operands *o)
{
    const struct shape s = p->shape;
    if (p->bf16)
        p->kernels->gemm_bf16(o->c, s.n, o->a.words, s.k, 1, o->b.words, s.n, s.m, s.n,
                              s.k, 0);
    else
        p->kernels->gemm_f32(o->c, s.n, o->a.f32, s.k, 1, o->b.f32, s.n, s.m, s.n, s.k,
                             0);
}

/* Seconds for `count` products in each thread, without the start of the threads, of
 * which the system may have given fewer than were asked for: *ran is their number. */
static double run(const struct probe *p, int64_t count, int *ran)
{
    double begin = 0, end = 0;
#pragma omp parallel num_threads(p->threads)
    {
        struct operands *o = &p->operands[omp_get_thread_num()];
        if (p->kernels->begin) p->kernels->begin();
#pragma omp master
        *ran = omp_get_num_threads();
#pragma omp barrier
#pragma omp master
        begin = now();
        for (int64_t i = 0; i < count; i++)
            multiply(p, o);
#pragma omp barrier
#pragma omp master
        end = now();
        if (p->kernels->end) p->kernels->end();
    }
    return end - begin;
}

static double best_rate(const struct probe *p)
{
    const struct shape s = p->shape;
    const double       terms = (double)s.m * s.n * s.k * (p->bf16 ? 2 : 1);
    int64_t            count = 1;
    int                ran = 1;
    while (run(p, count, &ran) < RUN_SECONDS && count < INT32_MAX)
        count *= 2;

    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        const double t = run(p, count, &ran);
        const double rate = 2 * terms * (double)count * ran / t;
        if (rate > best) best = rate;
    }
    return best;
}

static double product_rate(const foci_ctx *ctx, struct operands *operands, bool bf16)
{
    static const struct shape shapes[] = {
        { 64, 64, 64 }, { 48, 64, 64 }, { 32, 32, 128 }, { 32, 64, 64 }
    };
    struct probe p = { .kernels = &ctx->kernels,
                       .operands = operands,
                       .threads = ctx->threads,
                       .bf16 = bf16 };

#pragma omp parallel num_threads(ctx->threads)
    fill(&operands[omp_get_thread_num()], bf16);

    double best = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        p.shape = shapes[i];
        const double rate = best_rate(&p);
        if (rate > best) best = rate;
    }
    return best;
}

static uint64_t sum(const uint64_t *x, size_t n)
{
    uint64_t s[8] = { 0 };
    for (size_t i = 0; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++)
            s[j] += x[i + j];
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

/* Passes of all threads over the buffer, which is not zero: a copy of one half to the
 * other, or a sum, looked at so that the compiler cannot leave it out. */
static double traffic(char *buffer, int threads, bool copy)
{
    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        uint64_t     total = 0;
        const double begin = now();
#pragma omp parallel num_threads(threads) reduction(+ : total)
        {
            const size_t n = copy ? BUFFER / 2 : BUFFER;
            const size_t t = (size_t)omp_get_thread_num();
            const size_t of = (size_t)omp_get_num_threads();
            const size_t from = n / of * t / 64 * 64;
            const size_t to = t + 1 == of ? n : n / of * (t + 1) / 64 * 64;
            if (copy)
                memcpy(buffer + n + from, buffer + from, to - from);
            else
                total += sum((const uint64_t *)(const void *)(buffer + from),
                             (to - from) / sizeof(uint64_t));
        }
        const double rate = BUFFER / (now() - begin);
        if (rate > best && (copy || total > 0)) best = rate;
    }
    return best;
}

foci_status foci_ctx_measure(foci_ctx *ctx, foci_machine *machine)
{
    if (!machine || machine->size < sizeof machine->size)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "measure: no struct to fill, or its size is 0");

    const size_t     n = (size_t)ctx->threads;
    struct operands *operands = ctx_alloc(ctx, n, sizeof *operands);
    if (!operands) return FOCI_ERR_MEMORY;
    foci_machine m = { .size = machine->size };
    m.f32_flops = product_rate(ctx, operands, false);
    m.bf16_flops = product_rate(ctx, operands, true);
    ctx_free(ctx, operands, n, sizeof *operands);

    char *buffer = ctx_alloc(ctx, BUFFER, 1);
    if (!buffer) return FOCI_ERR_MEMORY;
    memset(buffer, 1, BUFFER);
    m.copy_bytes = traffic(buffer, ctx->threads, true);
    m.read_bytes = traffic(buffer, ctx->threads, false);
    ctx_free(ctx, buffer, BUFFER, 1);

    memcpy(machine, &m, machine->size < sizeof m ? machine->size : sizeof m);
    return FOCI_OK;
}
