/* Launches of decoding: which kernel, how keys are cut into units, work memory. */
#include "cuda/hopper_decode.cuh"
#include "cuda/hopper_launch.cuh"

namespace hopper {

static int64_t decode_seqs(const struct cuda_exact *x)
{
    return x->seqs ? x->n_seqs : x->batch;
}

static int64_t decode_blocks(const struct cuda_exact *x)
{
    return (x->len_k + 127) / 128 * decode_seqs(x) * x->kv_heads;
}

/* Blocks of a unit: one unit for each multiprocessor. */
static int decode_unit(const struct cuda_exact *x)
{
    return (int)((decode_blocks(x) + x->n_sm - 1) / x->n_sm);
}

static int64_t decode_units(const struct cuda_exact *x)
{
    const int unit = decode_unit(x);
    return (decode_blocks(x) + unit - 1) / unit;
}

static int decode_rows(const struct cuda_exact *x)
{
    return x->heads / x->kv_heads * (int)x->len_q;
}

static int decode_width(const struct cuda_exact *x)
{
    return (x->d > x->dv ? x->d : x->dv) <= 64 ? 64 : 128;
}

/* Every row must see every key of its sequence: values of hidden ones would meet weights
 * of 0 in a product. */
bool decode_fits(const struct cuda_exact *x)
{
    return decode_rows(x) <= 16 && (x->len_q == 1 || !x->causal) && x->d <= 128 &&
           x->dv <= 128 && !x->tiles.row0 && !x->packed &&
           decode_blocks(x) < INT32_MAX && x->kv_heads < 65536 &&
           x->n_sm <= decode_most_units;
}

size_t decode_work_bytes(const struct cuda_exact *x)
{
    const int rows = decode_rows(x) <= 8 ? 8 : 16;
    return (size_t)decode_units(x) * 2 * rows * (decode_width(x) + 2) * sizeof(float);
}

/* Pages are entries of a batch, of 64 rows each; there is no telling how many. */
static int decode_map(CUtensorMap *map, const struct cuda_exact *x, struct cuda_in in,
                      int columns, int64_t page)
{
    if (!x->pages.table)
        return encode_map(map, in, x->dtype, columns, x->len_k, x->kv_heads, x->batch,
                          128);
    in.seq = page;
    return encode_map(map, in, x->dtype, columns, 64, x->kv_heads, INT32_MAX, 64);
}

/* A launch that may start while the one before it ends. */
template <typename Kernel, typename... Args>
static int launch_early(Kernel kernel, dim3 grid, int threads, int bytes, void *stream,
                        Args... args)
{
    cudaLaunchAttribute early;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = (size_t)bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = &early, config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, args...);
}

template <class C> static int launch_decode(const struct cuda_exact *x)
{
    CUtensorMap mk, mv;
    int         error = decode_map(&mk, x, x->k, x->d, x->pages.k_page);
    if (!error) error = decode_map(&mv, x, x->v, x->dv, x->pages.v_page);
    if (!error) error = allow_shared(decode_kernel<C>, C::shared_bytes);
    if (error) return error;
    DecodeArgs a;
    a.x = *x;
    a.partial = (float *)x->work;
    a.unit = decode_unit(x);
    a.blocks = (int)((x->len_k + 127) / 128);
    cudaStream_t stream = (cudaStream_t)x->stream;
    decode_kernel<C>
        <<<(unsigned)decode_units(x), C::threads, C::shared_bytes, stream>>>(mk, mv, a);
    error = cudaGetLastError();
    if (error) return error;
    return launch_early(
        decode_merge<C>,
        dim3((unsigned)decode_seqs(x), (unsigned)x->kv_heads, (unsigned)decode_rows(x)),
        C::d, 0, stream, a);
}

template <class T> static int decode_of_type(const struct cuda_exact *x)
{
    const bool few = decode_rows(x) <= 8;
    if (decode_width(x) == 64)
        return few ? launch_decode<DecodeShape<T, 64, 8>>(x)
                   : launch_decode<DecodeShape<T, 64, 16>>(x);
    return few ? launch_decode<DecodeShape<T, 128, 8>>(x)
               : launch_decode<DecodeShape<T, 128, 16>>(x);
}

int decode(const struct cuda_exact *x)
{
    return x->dtype == CUDA_BF16 ? decode_of_type<Bf16>(x) : decode_of_type<F16>(x);
}

} // namespace hopper
