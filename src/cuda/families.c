/* families.c -- which family of kernels takes a launch. */
#include "cuda/exact.h"
#include "cuda/passes.h"

static const struct cuda_family *const families[] = { &cuda_family_hopper,
                                                      &cuda_family_mma };

const struct cuda_family *cuda_exact_family(const struct cuda_exact *x, int what)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i]->fits && families[i]->fits(x, what)) return families[i];
    return NULL;
}

/* Few queries with many keys are decoded. */
static int what_of(const struct cuda_exact *x, int what)
{
    return what == CUDA_FORWARD && cuda_exact_family(x, CUDA_DECODE) ? CUDA_DECODE
                                                                     : what;
}

size_t cuda_exact_work_bytes(const struct cuda_exact *x, int what)
{
    const int                 kind = what_of(x, what);
    const struct cuda_family *f = cuda_exact_family(x, kind);

    return f && f->work_bytes ? f->work_bytes(x, kind) : 0;
}

/* At execution: the first family that takes it with the work memory there is.  Planning
 * knew neither where tensors lie nor all that is given, so another may take it than the
 * one that the memory was counted for. */
static const struct cuda_family *choose(const struct cuda_exact *x, int what)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct cuda_family *f = families[i];

        if (!f->fits || !f->fits(x, what)) continue;
        /* The kernels of Hopper make all three gradients. */
        if (f == &cuda_family_hopper && what == CUDA_BACKWARD &&
            !(x->dq.at && x->dk.at && x->dv_out.at))
            continue;
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
