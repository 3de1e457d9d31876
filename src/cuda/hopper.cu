/* The family of Hopper kernels: which problems they take, and tensor maps. */
#include "cuda/hopper_launch.cuh"

namespace hopper {

typedef CUresult (*EncodeTiled)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                const cuuint64_t *, const cuuint64_t *,
                                const cuuint32_t *, const cuuint32_t *,
                                CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function, found at run time: nothing links against the driver. */
static EncodeTiled find_encode()
{
    void                           *at = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, 12000,
                                         cudaEnableDefault, &found))
        return nullptr;
    return found == cudaDriverEntryPointSuccess ? (EncodeTiled)at : nullptr;
}

int encode_map(CUtensorMap *map, const struct cuda_in &in, int dtype, int columns,
               int64_t rows, int heads, int64_t batch, int box_rows)
{
    static const EncodeTiled encode = find_encode();
    const cuuint64_t         size[4] = { (cuuint64_t)columns, (cuuint64_t)rows,
                                         (cuuint64_t)heads, (cuuint64_t)batch };
    const cuuint64_t         row = (cuuint64_t)(rows > 1 ? in.row : columns) * 2;
    const cuuint64_t stride[3] = { row, heads > 1 ? (cuuint64_t)in.head * 2 : row,
                                   batch > 1 ? (cuuint64_t)in.seq * 2 : row };
    const cuuint32_t box[4] = { 64, (cuuint32_t)box_rows, 1, 1 },
                     step[4] = { 1, 1, 1, 1 };
    if (!encode) return cudaErrorNotSupported;
    const CUresult error =
        encode(map,
               dtype == CUDA_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                  : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
               4, const_cast<void *>(in.at), size, stride, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return error ? cudaErrorInvalidValue : 0;
}

static bool stride_fits(int64_t elements)
{
    return elements > 0 && elements % 8 == 0 && elements < (int64_t)1 << 38;
}

bool rows_fit(const struct cuda_in &in, int columns, int heads, int64_t batch)
{
    return (uintptr_t)in.at % 16 == 0 && columns % 8 == 0 && columns <= 256 &&
           stride_fits(in.row) && (heads == 1 || stride_fits(in.head)) &&
           (batch == 1 || stride_fits(in.seq));
}

static bool rows_fit(const struct cuda_out &out, int columns, int heads, int64_t batch)
{
    const struct cuda_in in = { out.at, out.seq, out.row, out.head };
    return rows_fit(in, columns, heads, batch);
}

/* Softmax of 16-bit rows that the copy engine reaches, with logits that the kernels
 * know how to make. */
static bool common_fit(const struct cuda_exact *x)
{
    const struct cuda_score *f = &x->score;
    return x->sm == 90 && (x->dtype == CUDA_BF16 || x->dtype == CUDA_F16) &&
           x->weigh == CUDA_SOFTMAX && x->len_q > 0 && x->len_k > 0 && x->batch > 0 &&
           x->heads > 0 && !f->row_scale && !f->rel && !x->mask.at && !x->bias.at &&
           !x->drop_bound && rows_fit(x->q, x->d, x->heads, x->batch) &&
           rows_fit(x->k, x->d, x->kv_heads, x->batch) &&
           rows_fit(x->v, x->dv, x->kv_heads, x->batch);
}

bool plain_logits(const struct cuda_exact *x)
{
    const struct cuda_score *f = &x->score;
    return !f->head_scale && f->cap <= 0 && !f->slope && f->scale > 0;
}

static int fits(const struct cuda_exact *x, int what)
{
    if (!common_fit(x)) return 0;
    switch (what) {
    case CUDA_FORWARD:
        return !x->pages.table && rows_fit(x->o, x->dv, x->heads, x->batch);
    case CUDA_BACKWARD:
        return !x->pages.table && backward_fits(x) &&
               rows_fit(x->d_o, x->dv, x->heads, x->batch) &&
               rows_fit(x->dq, x->d, x->heads, x->batch) &&
               rows_fit(x->dk, x->d, x->kv_heads, x->batch) &&
               rows_fit(x->dv_out, x->dv, x->kv_heads, x->batch);
    case CUDA_DECODE: return plain_logits(x) && decode_fits(x);
    default: return 0;
    }
}

static size_t work_bytes(const struct cuda_exact *x, int what)
{
    switch (what) {
    case CUDA_FORWARD: return 16;
    case CUDA_BACKWARD: return backward_work_bytes(x);
    case CUDA_DECODE: return decode_work_bytes(x);
    default: return 0;
    }
}

static int forward(const struct cuda_exact *x)
{
    return x->dtype == CUDA_BF16 ? forward_bf16(x) : forward_f16(x);
}

} // namespace hopper

extern const struct cuda_family cuda_family_hopper = {
    "hopper",        hopper::fits,     hopper::work_bytes,
    hopper::forward, hopper::backward, hopper::decode,
};
