/* interface.h -- what libfoci calls in libfoci_cuda.so, which it opens when a device is
 * asked for.  One symbol leads to all of it. */
#ifndef FOCI_CUDA_INTERFACE_H
#define FOCI_CUDA_INTERFACE_H

#include "cuda/exact.h"
#include "cuda/passes.h"
#include "foci/foci.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_info {
    char   name[96];
    int    sm, n_sm; /* 90 for compute capability 9.0; multiprocessors */
    size_t memory_bytes, free_bytes;
};

/* Per second, measured: products of bf16, of floats as three of TF32; bytes. */
struct cuda_peaks {
    double bf16_flops, f32_flops, read_bytes, copy_bytes;
};

/* measure.cu: takes half a second and a gigabyte. */
int cuda_measure(int n_sm, struct cuda_peaks *peaks);

/* Where memory lies. */
enum { CUDA_ON_HOST, CUDA_ON_DEVICE, CUDA_ANYWHERE };

/* Results are 0 or a cudaError_t, which error_text() explains. */
struct cuda_calls {
    const char *version; /* FOCI_VERSION that it was built with */
    size_t      size;    /* of this struct */

    const char *(*error_text)(int error);
    int (*count)(int *n);
    int (*info)(int device, struct cuda_info *info);
    int (*enter)(int device, int *before); /* make it current */
    void (*leave)(int before);
    int (*alloc)(void **memory, size_t bytes);
    int (*release)(void *memory);
    int (*copy)(void *to, const void *from, size_t bytes); /* waits */
    int (*wait)(void *stream);                             /* NULL: for all of them */
    int (*place)(const void *memory, int *device);         /* CUDA_ON_HOST... */
    int (*stream_device)(void *stream, int *device);       /* -1: cannot be told */

    int (*measure)(int n_sm, struct cuda_peaks *peaks);

    const char *(*exact_name)(const struct cuda_exact *x, int what);
    size_t (*exact_work_bytes)(const struct cuda_exact *x, int what);
    int (*exact_forward)(const struct cuda_exact *x);
    int (*exact_backward)(const struct cuda_exact *x);
    void (*exact_launches)(struct cuda_launches *launches);

    int (*seqs)(const struct cuda_exact *x, const struct cuda_lengths *lengths,
                struct cuda_seq *seqs);
    int (*clear)(const struct cuda_exact *x, const struct cuda_out *rows, int heads,
                 int width_bytes, int element_bytes, int keys);
    int (*clear_lse)(const struct cuda_exact *x);
    int (*zero)(void *stream, void *at, size_t bytes);
    int (*heads)(void *stream, const struct cuda_factors *f, double by, int heads,
                 float *out);
    int (*rel)(void *stream, const struct cuda_tables *t, int heads, int64_t n_rel,
               int64_t rel0, float *rel);
    int (*visible)(const struct cuda_exact *x);
    int (*map)(const struct cuda_exact *x, const struct cuda_map *m, int keys,
               const struct cuda_in *from, const struct cuda_out *to, int ld);
    int (*map_back)(const struct cuda_exact *x, const struct cuda_map *m, int keys,
                    const struct cuda_in *of, const struct cuda_in *d_mapped,
                    const struct cuda_out *to);
    int (*bias_back)(const struct cuda_exact *x, float *dbias);
    int (*tables_back)(const struct cuda_exact *x, const struct cuda_tables *t,
                       int64_t rel0, int first_band, int n_bands, float *sums,
                       float *dparams);
    int (*sink_back)(const struct cuda_exact *x, float *dparams, int64_t at);
    int (*factors_back)(const struct cuda_exact *x, const struct cuda_factors *f,
                        double by, float *dparams);
};

/* The only symbol of the library. */
const struct cuda_calls *foci_cuda_calls(void);

#ifdef __cplusplus
}
#endif
#endif
