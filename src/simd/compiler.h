/* compiler.h -- the extensions that the kernels lean on, by name. */
#ifndef FOCI_SIMD_COMPILER_H
#define FOCI_SIMD_COMPILER_H

/* Bodies with constant arguments are our templates: they must be inlined. */
#define INLINE static inline __attribute__((always_inline))

/* Before a loop of at most n constant steps, so that arrays of vectors indexed in
 * it become registers. */
#define PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define UNROLL(n) PRAGMA(clang loop unroll(full))
#else
#define UNROLL(n) PRAGMA(GCC unroll n)
#endif

/* Ask for the cache line at p, which need not be ours, to be brought near: not into the
 * first level, which is full of what is being read. */
#define PREFETCH(p) __builtin_prefetch((p), 0, 1)

#endif
