/* families.c -- which family of kernels takes a launch. */
#include <stdbool.h>

#include "cuda/exact.h"
#include "cuda/passes.h"

static const struct cuda_family *const families[] = { &cuda_family_hopper,
                                                      &cuda_family_mma };

/* The sums of dQ in Hopper's backward have no fixed order, and results must repeat bit by
 * bit: gradients are mma's (dev/cuda-hopper.md). */
static bool takes(const struct cuda_family *f, const struct cuda_exact *x, int what)
{
    if (f == &cuda_family_hopper && what == CUDA_BACKWARD) return false;
    return f->fits && f->fits(x, what);
}

const struct cuda_family *cuda_exact_family(const struct cuda_exact *x, int what)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (takes(families[i], x, what)) return families[i];
    return NULL;
}

static size_t most_bytes(const struct cuda_exact *x, int what)
{
    size_t most = 0;

    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct cuda_family *f = families[i];
        const size_t              bytes =
            takes(f, x, what) && f->work_bytes ? f->work_bytes(x, what) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Planning does not know where tensors will lie nor all that will be given, so any of the
 * families that could take the problem may; few queries with many keys are decoded. */
size_t cuda_exact_work_bytes(const struct cuda_exact *x, int what)
{
    const size_t bytes = most_bytes(x, what);
    const size_t split = what == CUDA_FORWARD ? most_bytes(x, CUDA_DECODE) : 0;

    return split > bytes ? split : bytes;
}

/* The first family that takes it with the work memory there is. */
static const struct cuda_family *choose(const struct cuda_exact *x, int what)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct cuda_family *f = families[i];

        if (!takes(f, x, what)) continue;
        if (!f->work_bytes || f->work_bytes(x, what) <= x->work_bytes) return f;
    }
    return NULL;
}

int cuda_exact_forward(const struct cuda_exact *x)
{
    const struct cuda_family *split = choose(x, CUDA_DECODE);

    return split ? split->decode(x) : choose(x, CUDA_FORWARD)->forward(x);
}

int cuda_exact_backward(const struct cuda_exact *x)
{
    const int error = cuda_pass_delta(x);
    return error ? error : choose(x, CUDA_BACKWARD)->backward(x);
}

int cuda_exact_decode(const struct cuda_exact *x)
{
    return choose(x, CUDA_DECODE)->decode(x);
}
