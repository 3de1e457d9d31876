/* traffic.c -- how fast memory is read and copied, by all threads of a context.
 *
 * Which way of reading is fastest differs by machine: one stream or several at once in
 * each thread, with software prefetch or with what the hardware does by itself; of
 * copying, through the caches or past them.  All are tried and the best counts.  Each run
 * reads the next window of a buffer, so that the caches hold what a pass over the whole buffer
 * leaves in them.  Huge pages come with ctx_alloc().  Data are not zero.
 */
#include <math.h>
#include <omp.h>
#include <string.h>
#include <unistd.h>

#include "api/measure.h"
#include "core/core.h"

enum {
    LEAST = 256 << 20, /* bytes that are beyond caches whose size is not known */
    WINDOW = 16 << 20, /* bytes of a run */
    PART = 4096, /* of it; a thread has a number of these, each two halves of streams */
    ROW = 4096,  /* bytes that a stream copies at a time */
    TRIES = 10,
};

struct traffic {
    const struct kernels *kernels;
    char                 *buffer;
    size_t bytes, at; /* of the buffer, and where the next window begins */
    int    threads;
};

struct way {
    bool copy, past; /* past the caches */
    int  streams, ahead;
};

static const struct way ways[] = {
    { .streams = 1 },
    { .streams = 2 },
    { .streams = 4 },
    { .streams = 8 },
    { .streams = 1, .ahead = 512 },
    { .streams = 1, .ahead = 2048 },
    { .streams = 2, .ahead = 1024 },
    { .streams = 2, .ahead = 4096 },
    { .streams = 4, .ahead = 512 },
    { .streams = 4, .ahead = 1024 },
    { .streams = 8, .ahead = 512 },
    { .streams = 8, .ahead = 2048 },
    { .streams = 1, .ahead = 8192 },
    { .copy = true, .streams = 1 },
    { .copy = true, .streams = 4 },
    { .copy = true, .streams = 1, .past = true },
    { .copy = true, .streams = 2, .past = true },
    { .copy = true, .streams = 4, .past = true },
};

static void copy(const struct kernels *k, const struct way *w, char *to,
                 const char *from, size_t bytes)
{
    const size_t part = bytes / (size_t)w->streams;

    for (size_t at = 0; at < part; at += ROW) {
        const size_t n = part - at < ROW ? part - at : ROW;
        for (size_t s = 0; s < (size_t)w->streams; s++) {
            const size_t i = s * part + at;
            if (w->past)
                k->copy_rows(to + i, ROW, from + i, ROW, 1, (int)n);
            else
                memcpy(to + i, from + i, n);
        }
    }
    if (w->past && k->stream_end) k->stream_end();
}

/* One thread's share of a window: of copies, `bytes` are those read and those written. */
static uint64_t pass(const struct traffic *t, const struct way *w, char *window,
                     size_t bytes, size_t from, size_t to)
{
    if (!w->copy)
        return t->kernels->read_streams(window + from, (int64_t)(to - from), w->streams,
                                        w->ahead);
    copy(t->kernels, w, window + bytes / 2 + from / 2, window + from / 2,
         (to - from) / 2);
    return 1;
}

/* Bytes a second of one run: the window once, or as often as makes WINDOW bytes. */
static double traffic_run(struct traffic *t, const struct way *w)
{
    const size_t bytes = t->bytes < WINDOW ? t->bytes : WINDOW;
    const size_t passes = bytes ? WINDOW / bytes : 0;
    double       begin = INFINITY, end = 0;
    uint64_t     total = 0;

    if (t->at + bytes > t->bytes) t->at = 0;
    char *const window = t->buffer + t->at;
    t->at += bytes;
#pragma omp parallel num_threads(team_size(t->threads)) reduction(+ : total) \
    reduction(min : begin) reduction(max : end)
    {
        const size_t i = (size_t)omp_get_thread_num();
        const size_t of = (size_t)omp_get_num_threads();
        const size_t parts = bytes / PART;
        const size_t from = parts * i / of * PART, to = parts * (i + 1) / of * PART;

#pragma omp barrier
        begin = measure_now();
        for (size_t n = 0; n < passes; n++)
            total += pass(t, w, window, bytes, from, to);
        end = measure_now();
    }
    /* The sum is looked at, so that nothing of it can be left out. */
    return total ? (double)(passes * bytes) / (end - begin) : 0;
}

/* In bytes; 0: the system does not say. */
static size_t last_cache(void)
{
#if defined(_SC_LEVEL3_CACHE_SIZE)
    const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? (size_t)bytes : 0;
#else
    return 0;
#endif
}

/* Bytes of the buffer: the requested ones, at least a part for each thread; or twice the
 * last-level cache. */
static size_t buffer_bytes(size_t asked, int threads)
{
    const size_t least = PART * (size_t)threads;
    const size_t beyond = 2 * last_cache() > LEAST ? 2 * last_cache() : LEAST;
    const size_t bytes = asked && asked < beyond ? asked : beyond;

    return (bytes < least ? least : bytes) / PART * PART;
}

foci_status measure_traffic(foci_ctx *ctx, foci_machine *m)
{
    const size_t bytes = buffer_bytes((size_t)m->working_set, ctx->threads);
    char        *buffer = ctx_alloc(ctx, bytes, 1);
    if (!buffer) return FOCI_ERR_MEMORY;
    memset(buffer, 1, bytes);

    struct traffic t = { &ctx->kernels, buffer, bytes, 0, ctx->threads };
    m->working_set = (double)bytes;
    m->copy_bytes = m->read_bytes = 0;
    for (int i = 0; i < TRIES; i++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            double *const best = ways[w].copy ? &m->copy_bytes : &m->read_bytes;
            const double  rate = traffic_run(&t, &ways[w]);
            if (rate > *best) *best = rate;
        }
    ctx_free(ctx, buffer, bytes, 1);
    return FOCI_OK;
}
