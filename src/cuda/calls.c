/* calls.c -- the table of what libfoci calls, and the few functions of it that are calls
 * of the CUDA runtime. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "cuda/interface.h"

static const char *error_text(int error)
{
    return cudaGetErrorString((cudaError_t)error);
}

static int count(int *n) { return (int)cudaGetDeviceCount(n); }

static int info(int device, struct cuda_info *to)
{
    struct cudaDeviceProp p;
    cudaError_t           error = cudaGetDeviceProperties(&p, device);

    if (error) return (int)error;
    *to = (struct cuda_info){ .sm = 10 * p.major + p.minor,
                              .n_sm = p.multiProcessorCount };
    snprintf(to->name, sizeof to->name, "%.95s", p.name);
    return (int)cudaMemGetInfo(&to->free_bytes, &to->memory_bytes);
}

static int enter(int device, int *before)
{
    const cudaError_t error = cudaGetDevice(before);
    if (error || *before == device) return (int)error;
    return (int)cudaSetDevice(device);
}

static void leave(int before)
{
    int now;
    if (!cudaGetDevice(&now) && now != before) (void)cudaSetDevice(before);
}

static int alloc(void **memory, size_t bytes)
{
    const cudaError_t error = cudaMalloc(memory, bytes);
    (void)cudaGetLastError(); /* a failure that was told is over */
    return (int)error;
}

static int release(void *memory) { return (int)cudaFree(memory); }

static int copy(void *to, const void *from, size_t bytes)
{
    return (int)cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}

static int wait(void *stream)
{
    return (int)(stream ? cudaStreamSynchronize((cudaStream_t)stream)
                        : cudaDeviceSynchronize());
}

static int place(const void *memory, int *device)
{
    struct cudaPointerAttributes a;

    *device = -1;
    const cudaError_t error = cudaPointerGetAttributes(&a, memory);
    if (error) { /* of a device that is lost nothing can be told: executing says why */
        (void)cudaGetLastError();
        return error == cudaErrorInvalidValue ? CUDA_ON_HOST : CUDA_ANYWHERE;
    }
    *device = a.device;
    if (a.type == cudaMemoryTypeManaged) return CUDA_ANYWHERE;
    return a.type == cudaMemoryTypeDevice ? CUDA_ON_DEVICE : CUDA_ON_HOST;
}

/* While a stream is captured it may not be asked: what is captured is tied to no device
 * that could be told. */
static int stream_device(void *stream, int *device)
{
    *device = -1;
#if CUDART_VERSION >= 12080
    enum cudaStreamCaptureStatus capture;
    if (!stream) return 0;
    const cudaError_t error = cudaStreamIsCapturing((cudaStream_t)stream, &capture);
    if (error || capture != cudaStreamCaptureStatusNone) return (int)error;
    return (int)cudaStreamGetDevice((cudaStream_t)stream, device);
#else
    (void)stream;
    return 0;
#endif
}

static const char *exact_name(const struct cuda_exact *x, int what)
{
    const struct cuda_family *f = cuda_exact_family(x, what);
    const struct cuda_family *split =
        what == CUDA_FORWARD ? cuda_exact_family(x, CUDA_DECODE) : NULL;

    if (split)
        return split == &cuda_family_mma ? "mma (keys split)" : "hopper (keys split)";
    return f ? f->name : NULL;
}

static const struct cuda_calls calls = {
    .version = FOCI_VERSION,
    .size = sizeof calls,
    .error_text = error_text,
    .count = count,
    .info = info,
    .enter = enter,
    .leave = leave,
    .alloc = alloc,
    .release = release,
    .copy = copy,
    .wait = wait,
    .place = place,
    .stream_device = stream_device,
    .measure = cuda_measure,
    .exact_name = exact_name,
    .exact_work_bytes = cuda_exact_work_bytes,
    .exact_forward = cuda_exact_forward,
    .exact_backward = cuda_exact_backward,
    .exact_launches = cuda_exact_launches,
    .seqs = cuda_pass_seqs,
    .clear = cuda_pass_clear,
    .clear_lse = cuda_pass_clear_lse,
    .zero = cuda_pass_zero,
    .heads = cuda_pass_heads,
    .rel = cuda_pass_rel,
    .visible = cuda_pass_visible,
    .map = cuda_pass_map,
    .map_back = cuda_pass_map_back,
    .bias_back = cuda_pass_bias_back,
    .tables_back = cuda_pass_tables_back,
    .sink_back = cuda_pass_sink_back,
    .factors_back = cuda_pass_factors_back,
};

#pragma GCC visibility   push(default)
const struct cuda_calls *foci_cuda_calls(void);
#pragma GCC visibility   pop

const struct cuda_calls *foci_cuda_calls(void) { return &calls; }
