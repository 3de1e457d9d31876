/* remote.c -- executions on memory of the host, also where the plan runs on a device:
 * everything is copied there, executed, and copied back. */
#include "support/remote.h"

#include <stdio.h>

#include "device/device.h"
#include "test.h"

enum { MOST = 24 };

/* Specs that a device refuses are left out: what was run is told, and which kernels took
 * it. */
static long                 n_executions;
static struct cuda_launches taken;

static void tell(void)
{
    printf(
        "%ld executions on the device; forward, backward, split: hopper %ld %ld %ld, "
        "mma %ld %ld %ld\n",
        n_executions, taken.hopper[CUDA_FORWARD], taken.hopper[CUDA_BACKWARD],
        taken.hopper[CUDA_DECODE], taken.mma[CUDA_FORWARD], taken.mma[CUDA_BACKWARD],
        taken.mma[CUDA_DECODE]);
}

/* The library counts for as long as it is open; `by` is -1 before an execution and 1
 * after it. */
static void count_launches(const foci_ctx *ctx, int by)
{
    struct cuda_launches now;

    ctx->device->calls->exact_launches(&now);
    for (int what = 0; what < CUDA_N_PASSES; what++) {
        taken.hopper[what] += by * now.hopper[what];
        taken.mma[what] += by * now.mma[what];
    }
}

/* A block of the host and its image on the device. */
struct image {
    void  *host, *device;
    size_t bytes;
};

struct images {
    foci_ctx    *ctx;
    struct image image[MOST];
    int          n;
};

/* The place on the device of what lies at `host`, copied there; NULL of NULL. */
static void *send(struct images *all, const void *host, size_t bytes)
{
    if (!host) return NULL;
    struct image *i = &all->image[all->n++];

    assert_true(all->n <= MOST);
    *i = (struct image){ .host = (void *)host, .bytes = bytes };
    assert_int_equal(foci_device_alloc(all->ctx, bytes, &i->device), FOCI_OK);
    assert_int_equal(foci_device_write(all->ctx, i->device, host, bytes), FOCI_OK);
    return i->device;
}

/* All back, results or not: inputs must not have changed. */
static void fetch(struct images *all)
{
    for (int n = 0; n < all->n; n++) {
        struct image *i = &all->image[n];
        assert_int_equal(foci_device_read(all->ctx, i->host, i->device, i->bytes),
                         FOCI_OK);
        foci_device_free(all->ctx, i->device, i->bytes);
    }
}

static size_t extent(const foci_problem *p, const foci_layout *l, int64_t rows,
                     int64_t heads, int64_t dim)
{
    if (!p->batch || !rows || !heads) return 0;
    return (size_t)((p->batch - 1) * l->batch + (rows - 1) * l->row +
                    (heads - 1) * l->head + dim) *
           foci_dtype_bytes(p->dtype);
}

static foci_io send_io(struct images *all, const foci_plan *plan, const foci_io *io)
{
    const foci_problem *p = &plan->p;
    const size_t pairs = (size_t)(p->mask_batch * p->mask_heads * p->len_q * p->len_k);
    const size_t lens = (size_t)p->batch * sizeof(int32_t);
    foci_io      there = *io;

    there.q = send(all, io->q, extent(p, &p->q, p->len_q, p->heads, p->dim_qk));
    there.k = send(all, io->k, extent(p, &p->k, p->len_k, p->kv_heads, p->dim_qk));
    there.v = send(all, io->v, extent(p, &p->v, p->len_k, p->kv_heads, p->dim_v));
    there.o = send(all, io->o, extent(p, &p->o, p->len_q, p->heads, p->dim_v));
    there.lse =
        send(all, io->lse, (size_t)(p->batch * p->heads * p->len_q) * sizeof(float));
    there.len_q = send(all, io->len_q, lens);
    there.len_k = send(all, io->len_k, lens);
    there.docs = send(all, io->docs, (size_t)(io->n_docs + 1) * sizeof(int32_t));
    there.params = send(all, io->params, (size_t)plan->n_floats * sizeof(float));
    there.mask = send(all, io->mask, pairs);
    there.bias = send(all, io->bias, pairs * sizeof(float));
    there.work = send(all, io->work, plan->work_bytes);
    there.saved = send(all, io->saved, plan->saved_bytes);
    return there;
}

static foci_grads send_grads(struct images *all, const foci_plan *plan,
                             const foci_grads *g)
{
    const foci_problem *p = &plan->p;
    const size_t pairs = (size_t)(p->mask_batch * p->mask_heads * p->len_q * p->len_k);
    foci_grads   there = *g;

    there.d_o = send(all, g->d_o, extent(p, &p->o, p->len_q, p->heads, p->dim_v));
    there.dq = send(all, g->dq, extent(p, &p->q, p->len_q, p->heads, p->dim_qk));
    there.dk = send(all, g->dk, extent(p, &p->k, p->len_k, p->kv_heads, p->dim_qk));
    there.dv = send(all, g->dv, extent(p, &p->v, p->len_k, p->kv_heads, p->dim_v));
    there.dparams = send(all, g->dparams, (size_t)plan->n_floats * sizeof(float));
    there.dbias = send(all, g->dbias, pairs * sizeof(float));
    return there;
}

foci_status remote_execute(const foci_plan *plan, const foci_io *io,
                           const foci_grads *grads)
{
    struct images all = { .ctx = plan->ctx };

    if (plan->ctx->device && !n_executions++) atexit(tell);
    if (!plan->ctx->device)
        return grads ? foci_backward(plan, io, grads) : foci_forward(plan, io);
    const foci_io    there = send_io(&all, plan, io);
    const foci_grads of =
        grads ? send_grads(&all, plan, grads) : (foci_grads){ .size = 0 };
    count_launches(plan->ctx, -1);
    foci_status status =
        grads ? foci_backward(plan, &there, &of) : foci_forward(plan, &there);
    count_launches(plan->ctx, 1);
    if (!status) status = foci_device_wait(plan->ctx, NULL);
    if (status) {
        char text[256] = "";
        foci_io_check(plan, &there, grads ? &of : NULL, text, sizeof text);
        print_error("%s %s\n", foci_errmsg(plan->ctx), text);
    }
    fetch(&all);
    return status;
}
