/* families.c -- which family of kernels takes a launch. */
#include "cuda/exact.h"

static const struct cuda_family *const families[] = { &cuda_family_hopper,
                                                      &cuda_family_mma };

const struct cuda_family *cuda_exact_family(const struct cuda_exact *x, int what)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i]->fits && families[i]->fits(x, what)) return families[i];
    return NULL;
}

size_t cuda_exact_work_bytes(const struct cuda_exact *x, int what)
{
    const struct cuda_family *f = cuda_exact_family(x, what);
    return f && f->work_bytes ? f->work_bytes(x, what) : 0;
}

int cuda_exact_forward(const struct cuda_exact *x)
{
    return cuda_exact_family(x, CUDA_FORWARD)->forward(x);
}

int cuda_exact_backward(const struct cuda_exact *x)
{
    return cuda_exact_family(x, CUDA_BACKWARD)->backward(x);
}

int cuda_exact_decode(const struct cuda_exact *x)
{
    return cuda_exact_family(x, CUDA_DECODE)->decode(x);
}
