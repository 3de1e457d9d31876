/* families.c -- which family of kernels takes a launch. */
#include <stdbool.h>

#include "cuda/exact.h"
#include "cuda/passes.h"

static const struct cuda_family *const families[] = { &cuda_family_hopper,
                                                      &cuda_family_mma };

enum { N_FAMILIES = sizeof families / sizeof *families };

/* Launches that families took, for tests. */
static _Atomic long n_launches[N_FAMILIES][CUDA_N_PASSES];

void cuda_exact_launches(struct cuda_launches *launches)
{
    for (int what = 0; what < CUDA_N_PASSES; what++) {
        launches->hopper[what] = n_launches[0][what];
        launches->mma[what] = n_launches[1][what];
    }
}

static bool takes(const struct cuda_family *f, const struct cuda_exact *x, int what)
{
    return f->fits && f->fits(x, what);
}

const struct cuda_family *cuda_exact_family(const struct cuda_exact *x, int what)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (takes(families[i], x, what)) return families[i];
    return NULL;
}

static size_t most_bytes(const struct cuda_exact *x, int what)
{
    size_t most = 0;

    for (size_t i = 0; i < N_FAMILIES; i++) {
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

/* The kernels of Hopper make all three gradients. */
static bool asked_for_all(const struct cuda_exact *x)
{
    return x->dq.at && x->dk.at && x->dv_out.at;
}

/* The first family that takes it with the work memory there is. */
static const struct cuda_family *choose(const struct cuda_exact *x, int what)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const struct cuda_family *f = families[i];

        if (!takes(f, x, what)) continue;
        if (f == &cuda_family_hopper && what == CUDA_BACKWARD && !asked_for_all(x))
            continue;
        if (f->work_bytes && f->work_bytes(x, what) > x->work_bytes) continue;
        n_launches[i][what]++;
        return f;
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
