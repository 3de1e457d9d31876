/* compiler.h -- names for the compiler extensions that kernels use. */
#ifndef FOCI_SIMD_COMPILER_H
#define FOCI_SIMD_COMPILER_H

#include <stdint.h>

/* Bodies with constant arguments are our templates: they must be inlined. */
#define INLINE static inline __attribute__((always_inline))

/* Before a loop of at most n constant steps, so that arrays of vectors indexed in
 * it become registers; builds with sanitizers keep the loop. */
#define PRAGMA(text) _Pragma(#text)
#if defined(KEEP_LOOPS)
#define UNROLL(n)
#elif defined(__clang__)
#define UNROLL(n) PRAGMA(clang loop unroll(full))
#else
#define UNROLL(n) PRAGMA(GCC unroll n)
#endif

/* Prefetch the cache line at p, any address, into the outer levels of the cache: the first
 * level is full of what is being read. */
#define PREFETCH(p) __builtin_prefetch((p), 0, 1)

/* Prefetch a line into the second level, and one that will be written, in the exclusive
 * state. */
#define PREFETCH_L2(p) __builtin_prefetch((p), 0, 2)
#if defined(__x86_64__)
#define PREFETCH_WRITE(p) __asm__ volatile("prefetchw %0" : : "m"(*(const char *)(p)))
#else
#define PREFETCH_WRITE(p) __builtin_prefetch((p), 1, 2)
#endif

/* Prefetch the line 8 kB after p, for readers whose pauses between loads stop the hardware
 * prefetcher.  Any address is allowed. */
#define PREFETCH_FAR(p) PREFETCH((const void *)((uintptr_t)(p) + 8192))

/* Prefetch `bytes` bytes at p + distance, which the next call will read: rows of several heads
 * are too far apart for the hardware prefetcher. */
INLINE void prefetch_bytes(const void *p, int64_t distance, int bytes)
{
    enum { LINE = 64 };
    const uintptr_t at = (uintptr_t)p + (uintptr_t)distance;

    UNROLL(4)
    for (int c = 0; c < bytes; c += LINE)
        PREFETCH((const void *)(at + (uintptr_t)c));
}

/* Prefetch the row of floats that is `rows` rows away. */
INLINE void prefetch_row(const float *row, int64_t ld, int64_t rows, int floats)
{
    const int size = (int)sizeof *row;
    prefetch_bytes(row, ld * rows * size, floats * size);
}

#endif
