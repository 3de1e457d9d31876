/* measure.cu -- what a device can do, measured now: products on registers, in bf16 and,
 * by TF32 in three parts, as floats; memory read, and copied.  Medians of a few launches. */
#include "cuda/interface.h"
#include "cuda/mma.cuh"

enum { STEPS = 4096, CHAINS = 8, REPS = 7 };

/* Chains of products that do not wait for one another. */
__global__ void __launch_bounds__(256) products_kernel(float *out, int tf32)
{
    float    c[CHAINS][4] = {};
    uint32_t a[4], b[2];

    for (int i = 0; i < 4; i++)
        a[i] = 0x3f803f80u + threadIdx.x * 0x00010003u; /* about 1, never 0 */
    b[0] = 0x3f813f82u + threadIdx.x;
    b[1] = 0xbf833f84u + threadIdx.x;
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int i = 0; i < CHAINS; i++) {
            if (tf32)
                multiply_tf32(c[i], a[0], a[1], a[2], a[3], b[0], b[1]);
            else
                Product<__nv_bfloat16>::add(c[i], a, b[0], b[1]);
        }
    float sum = 0;
    for (int i = 0; i < CHAINS; i++)
        sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
    if (sum == 1.2345f) *out = sum; /* nothing is left out */
}

__global__ void __launch_bounds__(512)
    read_kernel(const uint4 *from, int64_t n, float *out)
{
    uint32_t sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const uint4 x = __ldcs(from + i);
        sum += x.x ^ x.y ^ x.z ^ x.w;
    }
    if (sum == 0x12345678u) *out = 1;
}

struct Timing {
    cudaEvent_t begin, end;
    float       ms[REPS];
};

static float median(float *x)
{
    for (int i = 1; i < REPS; i++)
        for (int j = i; j > 0 && x[j] < x[j - 1]; j--) {
            const float swap = x[j];
            x[j] = x[j - 1];
            x[j - 1] = swap;
        }
    return x[REPS / 2];
}

/* What: 0 bf16, 1 TF32, 2 read, 3 copy; the result is seconds. */
static int run_once(int what, char *memory, size_t bytes, int n_sm)
{
    float *out = (float *)memory;

    if (what < 2)
        products_kernel<<<2 * n_sm, 256>>>(out, what);
    else if (what == 2)
        read_kernel<<<4 * n_sm, 512>>>((const uint4 *)memory, (int64_t)(bytes / 16),
                                       out);
    else
        return cudaMemcpyAsync(memory + bytes / 2, memory, bytes / 2,
                               cudaMemcpyDeviceToDevice, 0);
    return cudaGetLastError();
}

static int time_one(Timing *t, int what, char *memory, size_t bytes, int n_sm,
                    double *seconds)
{
    int error = run_once(what, memory, bytes, n_sm);

    for (int i = 0; i < REPS && !error; i++) {
        error = cudaEventRecord(t->begin, 0);
        if (!error) error = run_once(what, memory, bytes, n_sm);
        if (!error) error = cudaEventRecord(t->end, 0);
        if (!error) error = cudaEventSynchronize(t->end);
        if (!error) error = cudaEventElapsedTime(&t->ms[i], t->begin, t->end);
    }
    if (!error) *seconds = (double)median(t->ms) * 1e-3;
    return error;
}

int cuda_measure(int n_sm, struct cuda_peaks *peaks)
{
    const size_t bytes = (size_t)1 << 30;
    const double steps = 2.0 * n_sm * 8 * STEPS * CHAINS; /* products of warps */
    Timing       t = {};
    double       s[4] = {};
    char        *memory = NULL;
    int          error = cudaMalloc(&memory, bytes);

    if (!error) error = cudaMemset(memory, 1, bytes);
    if (!error) error = cudaEventCreate(&t.begin);
    if (!error) error = cudaEventCreate(&t.end);
    for (int i = 0; i < 4 && !error; i++)
        error = time_one(&t, i, memory, bytes, n_sm, &s[i]);
    if (!error) {
        peaks->bf16_flops = steps * 2 * 16 * 8 * 16 / s[0];
        peaks->f32_flops = steps * 2 * 16 * 8 * 8 / 3 / s[1];
        peaks->read_bytes = (double)bytes / s[2];
        peaks->copy_bytes = (double)bytes / s[3];
    }
    if (t.begin) cudaEventDestroy(t.begin);
    if (t.end) cudaEventDestroy(t.end);
    cudaFree(memory);
    return error;
}
