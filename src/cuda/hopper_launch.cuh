/* From a description of exact attention to launches of the Hopper kernels. */
#ifndef FOCI_CUDA_HOPPER_LAUNCH_CUH
#define FOCI_CUDA_HOPPER_LAUNCH_CUH

#include <cuda_runtime.h>

#include "cuda/hopper_forward_consumer.cuh"

namespace hopper {

/* A map of (column, row, head, batch entry) in 16-bit elements for boxes of 64 columns;
 * what lies outside reads as zero. Dimensions of one entry may have any distance. */
int encode_map(CUtensorMap *map, const struct cuda_in &in, int dtype, int columns,
               int64_t rows, int heads, int64_t batch, int box_rows);

/* Whether the copy engine can reach rows so laid out. */
bool rows_fit(const struct cuda_in &in, int columns, int heads, int64_t batch);

template <typename Kernel> static inline int allow_shared(Kernel kernel, int bytes)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                bytes);
}

/* Query blocks of one sequence at most; those aligned in positions may lead. */
static inline int64_t query_blocks(int64_t nq, int64_t nk, int size, bool aligned)
{
    const int64_t pos0 = nk - nq;
    if (!aligned) return (nq + size - 1) / size;
    const int64_t low = pos0 < 0 ? -((-pos0 + size - 1) / size) : pos0 / size;
    const int64_t high = nk > 0 ? (nk - 1) / size : -1;
    return high - low + 1;
}

template <class C> int launch_forward(const struct cuda_exact *x)
{
    CUtensorMap mq, mk, mv;
    int         error =
        encode_map(&mq, x->q, x->dtype, x->d, x->len_q, x->heads, x->batch, C::rows);
    if (!error)
        error = encode_map(&mk, x->k, x->dtype, x->d, x->len_k, x->kv_heads, x->batch,
                           C::box_keys);
    if (!error)
        error = encode_map(&mv, x->v, x->dtype, x->dv, x->len_k, x->kv_heads, x->batch,
                           C::box_keys);
    if (!error) error = allow_shared(forward_kernel<C>, C::shared_bytes);
    if (error) return error;
    ForwardArgs a;
    a.x = *x;
    a.counter = (int *)x->work;
    const int64_t blocks =
        query_blocks(x->len_q, x->len_k, C::rows, C::listed && x->tiles.row0);
    int64_t most = blocks * x->batch;
    if (x->seqs)
        most = (x->packed ? blocks : blocks * x->n_seqs) + 2 * (int64_t)x->n_seqs;
    most *= x->heads;
    a.row_tiles = (int)blocks;
    a.tiles = (int)most;
    const int64_t bytes = x->len_k * (x->d + x->dv) * 2 * x->kv_heads / x->heads + 1;
    const int64_t fit = ((int64_t)32 << 20) / bytes, heads = x->heads * x->batch;
    a.heads_at_once = (int)(C::support == support_full || fit < 1 ? 1
                            : fit < heads                         ? fit
                                                                  : heads);
    const int grid = (int)(most < x->n_sm ? most : x->n_sm);
    a.dynamic = most > grid;
    cudaStream_t stream = (cudaStream_t)x->stream;
    if (a.dynamic) error = cudaMemsetAsync(x->work, 0, sizeof(int), stream);
    if (error) return error;
    forward_kernel<C><<<grid, C::threads, C::shared_bytes, stream>>>(mq, mk, mv, a);
    return cudaGetLastError();
}

/* Products times a positive scale alone are logits. */
bool plain_logits(const struct cuda_exact *x);

int forward_bf16(const struct cuda_exact *x);
int forward_f16(const struct cuda_exact *x);

bool   backward_fits(const struct cuda_exact *x);
size_t backward_work_bytes(const struct cuda_exact *x);
int    backward(const struct cuda_exact *x);

bool   decode_fits(const struct cuda_exact *x);
size_t decode_work_bytes(const struct cuda_exact *x);
int    decode(const struct cuda_exact *x);

} // namespace hopper
#endif
