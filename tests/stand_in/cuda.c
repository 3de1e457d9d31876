/* cuda.c -- a libfoci_cuda.so without a device: what programs and the command do on one can
 * be tested where there is none.
 *
 * Its device has 64 MiB, in memory of the host.  Of exact attention it computes a softmax
 * of scaled products of floats, dense or causal; other passes do nothing.  The variable
 * STAND_IN says what is wrong: "driver" there is none, "launch" launches fail, "lost" the
 * device stops answering. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/interface.h"

enum { MEMORY = 64 << 20, MOST = 256 };
enum { OUT_OF_MEMORY = 2, NO_DRIVER = 35, LAUNCH_FAILED = 719, LOST = 46 };

static struct {
    char  *at;
    size_t bytes;
} blocks[MOST];
static size_t used;

static int wrong(const char *what)
{
    const char *is = getenv("STAND_IN");
    return is && strcmp(is, what) == 0;
}

static const char *error_text(int error)
{
    switch (error) {
    case OUT_OF_MEMORY: return "out of memory";
    case NO_DRIVER:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case LOST: return "CUDA-capable device(s) is/are busy or unavailable";
    default: return "unspecified launch failure";
    }
}

static int count(int *n)
{
    *n = 1;
    return wrong("driver") ? NO_DRIVER : 0;
}

static int info(int device, struct cuda_info *to)
{
    *to = (struct cuda_info){ .name = "stand-in",
                              .sm = 90,
                              .n_sm = 8 - device,
                              .memory_bytes = MEMORY,
                              .free_bytes = MEMORY - used };
    return 0;
}

static int enter(int device, int *before)
{
    *before = device;
    return wrong("lost") ? LOST : 0;
}

static void leave(int before) { (void)before; }

static int alloc(void **memory, size_t bytes)
{
    const size_t whole = (bytes + 255) / 256 * 256;

    for (int i = 0; i < MOST && used + whole <= MEMORY; i++) {
        if (blocks[i].at) continue;
        blocks[i].at = *memory = aligned_alloc(256, whole);
        if (!*memory) return OUT_OF_MEMORY;
        memset(*memory, 0xa5, whole);
        blocks[i].bytes = whole;
        used += whole;
        return 0;
    }
    return OUT_OF_MEMORY;
}

static int release(void *memory)
{
    for (int i = 0; i < MOST; i++) {
        if (blocks[i].at != memory) continue;
        free(blocks[i].at);
        used -= blocks[i].bytes;
        blocks[i].at = NULL;
    }
    return 0;
}

static int copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return 0;
}

static int wait(void *stream)
{
    (void)stream;
    return wrong("launch") ? LAUNCH_FAILED : 0;
}

static int place(const void *memory, int *device)
{
    const char *at = memory;

    *device = 0;
    for (int i = 0; i < MOST; i++)
        if (blocks[i].at && at >= blocks[i].at && at < blocks[i].at + blocks[i].bytes)
            return CUDA_ON_DEVICE;
    return CUDA_ON_HOST;
}

static int stream_device(void *stream, int *device)
{
    (void)stream;
    *device = -1;
    return 0;
}

static int measure(int n_sm, struct cuda_peaks *peaks)
{
    *peaks = (struct cuda_peaks){ n_sm * 1e12, n_sm * 1e11, n_sm * 1e11, n_sm * 1e11 };
    return 0;
}

/* What a kernel of ours would do with x. */
static const char *exact_name(const struct cuda_exact *x, int what)
{
    (void)x;
    return what == CUDA_DECODE ? NULL : "stand-in";
}

static size_t exact_work_bytes(const struct cuda_exact *x, int what)
{
    return what == CUDA_FORWARD ? (size_t)x->len_k * sizeof(float) : 64;
}

static const float *row_of(const struct cuda_in *in, int64_t b, int64_t row, int64_t h)
{
    return (const float *)in->at + b * in->seq + row * in->row + h * in->head;
}

/* One row of the output; a: weights. */
static void attend(const struct cuda_exact *x, int64_t b, int64_t h, int64_t i, float *a)
{
    const int64_t kv = h / (x->heads / x->kv_heads), pos = i + x->len_k - x->len_q;
    const int64_t n = x->causal && pos + 1 < x->len_k ? pos + 1 : x->len_k;
    const float  *q = row_of(&x->q, b, i, h);
    float        *o = (float *)x->o.at + b * x->o.seq + i * x->o.row + h * x->o.head;
    float         sum = 0;

    for (int c = 0; c < x->dv; c++)
        o[c] = 0;
    for (int64_t j = 0; j < n; j++) {
        const float *k = row_of(&x->k, b, j, kv);
        float        dot = 0;
        for (int c = 0; c < x->d; c++)
            dot += q[c] * k[c];
        a[j] = exp2f(dot * x->score.scale);
        sum += a[j];
    }
    for (int64_t j = 0; j < n; j++) {
        const float *v = row_of(&x->v, b, j, kv);
        for (int c = 0; c < x->dv; c++)
            o[c] += a[j] / sum * v[c];
    }
}

static int exact_forward(const struct cuda_exact *x)
{
    for (int64_t b = 0; x->dtype == CUDA_F32 && b < x->batch; b++)
        for (int64_t h = 0; h < x->heads; h++)
            for (int64_t i = 0; i < x->len_q; i++)
                attend(x, b, h, i, x->work);
    return 0;
}

static int  nothing(const struct cuda_exact *x) { return (void)x, 0; }
static void launches(struct cuda_launches *n)
{
    *n = (struct cuda_launches){ { 0 }, { 0 } };
}

static int seqs(const struct cuda_exact *x, const struct cuda_lengths *lengths,
                struct cuda_seq *to)
{
    return (void)x, (void)lengths, (void)to, 0;
}

static int clear(const struct cuda_exact *x, const struct cuda_out *rows, int heads,
                 int width_bytes, int element_bytes, int keys)
{
    return (void)x, (void)rows, (void)heads, (void)width_bytes, (void)element_bytes,
           (void)keys, 0;
}

static int zero(void *stream, void *at, size_t bytes)
{
    (void)stream;
    memset(at, 0, bytes);
    return 0;
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
    .measure = measure,
    .exact_name = exact_name,
    .exact_work_bytes = exact_work_bytes,
    .exact_forward = exact_forward,
    .exact_backward = nothing,
    .exact_launches = launches,
    .seqs = seqs,
    .clear = clear,
    .clear_lse = nothing,
    .zero = zero,
    .visible = nothing,
};

#pragma GCC visibility   push(default)
const struct cuda_calls *foci_cuda_calls(void);
#pragma GCC visibility   pop

const struct cuda_calls *foci_cuda_calls(void) { return &calls; }
