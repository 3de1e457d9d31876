/* Launches of the backward kernels: which one, work memory, the pass over dQ. */
#include "cuda/hopper_backward_consumer.cuh"
#include "cuda/hopper_backward_finish.cuh"
#include "cuda/hopper_launch.cuh"

namespace hopper {

static bool backward_listed(const struct cuda_exact *x)
{
    return x->tiles.row0 || x->seqs || !plain_logits(x);
}

static int backward_width(const struct cuda_exact *x)
{
    return (x->d > x->dv ? x->d : x->dv) <= 64 ? 64 : 128;
}

/* Tiles of queries of all heads, at most. */
static int64_t backward_tiles(const struct cuda_exact *x)
{
    const int64_t of_one =
        query_blocks(x->len_q, x->len_k, 64, x->tiles.row0 != nullptr);
    int64_t tiles = of_one * x->batch;
    if (x->seqs)
        tiles = (x->packed ? of_one : of_one * x->n_seqs) + 2 * (int64_t)x->n_seqs;
    return tiles * x->heads;
}

bool backward_fits(const struct cuda_exact *x)
{
    return x->d <= 128 && x->dv <= 128 && !x->memory && !x->row_ds &&
           !(x->score.head_scale && x->heads != x->kv_heads) &&
           backward_tiles(x) < INT32_MAX;
}

/* Sums of dQ, then their turns. */
static size_t dq_bytes(const struct cuda_exact *x)
{
    return (size_t)backward_tiles(x) * 64 * (size_t)backward_width(x) * sizeof(float);
}

size_t backward_work_bytes(const struct cuda_exact *x)
{
    return dq_bytes(x) + (size_t)backward_tiles(x) * sizeof(int);
}

template <class C> static int launch_backward(const struct cuda_exact *x)
{
    CUtensorMap mq, mk, mv, mo;
    int error = encode_map(&mq, x->q, x->dtype, x->d, x->len_q, x->heads, x->batch, 64);
    if (!error)
        error =
            encode_map(&mo, x->d_o, x->dtype, x->dv, x->len_q, x->heads, x->batch, 64);
    if (!error)
        error = encode_map(&mk, x->k, x->dtype, x->d, x->len_k, x->kv_heads, x->batch,
                           C::keys);
    if (!error)
        error = encode_map(&mv, x->v, x->dtype, x->dv, x->len_k, x->kv_heads, x->batch,
                           C::keys);
    if (!error) error = allow_shared(backward_kernel<C>, C::shared_bytes);
    if (error) return error;
    BackwardArgs a;
    a.x = *x;
    a.dq = (float *)x->work;
    a.turns = (int *)((char *)x->work + dq_bytes(x));
    a.row_tiles = (int)query_blocks(x->len_q, x->len_k, 64, x->tiles.row0 != nullptr);
    a.key_blocks = (int)((x->len_k + C::keys - 1) / C::keys);
    /* About eight blocks of a head run at once: they follow one another through the
     * queries, so that what they read stays in the L2; more would hold each other up. */
    const int64_t heads = x->kv_heads * x->batch, at_once = (x->n_sm + 7) / 8;
    a.heads_at_once = (int)(at_once < heads ? at_once : heads);
    int64_t blocks = a.key_blocks * x->batch;
    if (x->seqs)
        blocks =
            (x->packed ? a.key_blocks : a.key_blocks * (int64_t)x->n_seqs) + x->n_seqs;
    cudaStream_t  stream = (cudaStream_t)x->stream;
    const int64_t tiles = backward_tiles(x);
    error = cudaMemsetAsync(a.turns, 0, (size_t)tiles * sizeof(int), stream);
    if (error) return error;
    backward_kernel<C>
        <<<(unsigned)(blocks * x->kv_heads), C::threads, C::shared_bytes, stream>>>(
            mq, mk, mv, mo, a);
    error = cudaGetLastError();
    if (error) return error;
    const dim3 grid((unsigned)(tiles / x->heads), (unsigned)x->heads);
    backward_finish<C><<<grid, 256, 0, stream>>>(a);
    return cudaGetLastError();
}

template <class T, int d> static int backward_of_width(const struct cuda_exact *x)
{
    if (backward_listed(x))
        return plain_logits(x)
                   ? launch_backward<BackwardShape<T, d, false, true, false>>(x)
                   : launch_backward<BackwardShape<T, d, false, true, true>>(x);
    return x->causal ? launch_backward<BackwardShape<T, d, true, false, false>>(x)
                     : launch_backward<BackwardShape<T, d, false, false, false>>(x);
}

template <class T> static int backward_of_type(const struct cuda_exact *x)
{
    return backward_width(x) == 64 ? backward_of_width<T, 64>(x)
                                   : backward_of_width<T, 128>(x);
}

int backward(const struct cuda_exact *x)
{
    return x->dtype == CUDA_BF16 ? backward_of_type<Bf16>(x) : backward_of_type<F16>(x);
}

} // namespace hopper
