/* device.c -- contexts with a device: find and open the library that drives it, memory
 * and copies for programs that do not know it. */
#define _GNU_SOURCE /* dladdr() */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

static const char library_name[] = "libfoci_cuda.so";

/* dlopen() of the library in `folder` of the file that this code is in, or, folder NULL,
 * where the system looks. */
static void *open_in(const char *folder, char *path, size_t cap)
{
    Dl_info here;

    if (!folder)
        snprintf(path, cap, "%s", library_name);
    else {
        if (!dladdr(library_name, &here) || !here.dli_fname) return NULL;
        const char *slash = strrchr(here.dli_fname, '/');
        const int   n = slash ? (int)(slash - here.dli_fname) + 1 : 0;
        if (!n) return NULL;
        snprintf(path, cap, "%.*s%s%s", n, here.dli_fname, folder, library_name);
    }
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* $FOCI_CUDA_LIBRARY names the file; else it lies beside the one that this code is in, or
 * where the system looks. */
static void *open_library(void)
{
    static const char *const folders[] = { "", "../", "../lib/", NULL };
    char                     path[PATH_MAX + 64];
    const char              *named = getenv("FOCI_CUDA_LIBRARY");

    if (named && *named) return dlopen(named, RTLD_NOW | RTLD_LOCAL);

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        void *library = open_in(folders[i], path, sizeof path);
        if (library) return library;
    }
    return NULL;
}

/* "cuda" is "cuda:0". */
static int parse_index(const char *name)
{
    char *end;

    if (strncmp(name, "cuda", 4) != 0) return -1;
    if (!name[4]) return 0;
    if (name[4] != ':' || name[5] < '0' || name[5] > '9') return -1;
    const long index = strtol(name + 5, &end, 10);
    return *end || index > 1023 ? -1 : (int)index;
}

foci_status device_status(foci_ctx *ctx, int error, const char *doing)
{
    if (!error) return FOCI_OK;
    const struct device *d = ctx->device;
    return ctx_fail(ctx, FOCI_ERR_DEVICE, "%s: %s: %s", d->name, doing,
                    d->calls->error_text(error));
}

static foci_status no_such_device(const char *name)
{
    return ctx_fail(NULL, FOCI_ERR_ARG,
                    "device=%.40s: no such device; there are cuda, cuda:0, cuda:1...",
                    name);
}

foci_status device_use(foci_ctx *ctx, const char *name, const struct cuda_calls *calls,
                       void *library)
{
    const int index = parse_index(name);
    int       n = 0;

    if (index < 0) return no_such_device(name);
    if (calls->size != sizeof *calls || strcmp(calls->version, FOCI_VERSION) != 0)
        return ctx_fail(
            NULL, FOCI_ERR_DEVICE,
            "device %.40s: %s does not belong to this library, " FOCI_VERSION
            ": build and install both together",
            name, library_name);
    int error = calls->count(&n);
    if (error)
        return ctx_fail(NULL, FOCI_ERR_DEVICE,
                        "device %.40s: no driver or no device: %s", name,
                        calls->error_text(error));
    if (index >= n)
        return ctx_fail(NULL, FOCI_ERR_DEVICE,
                        "device %.40s: this machine has %d device%s", name, n,
                        n == 1 ? "" : "s");

    struct device *d = ctx_alloc(ctx, 1, sizeof *d);
    if (!d) return ctx_fail(NULL, FOCI_ERR_MEMORY, "no memory for a device");
    int before = 0;
    error = calls->enter(index, &before);
    if (!error) error = calls->info(index, &d->info);
    calls->leave(before);
    if (error) {
        ctx_free(ctx, d, 1, sizeof *d);
        return ctx_fail(NULL, FOCI_ERR_DEVICE, "device %.40s: %s", name,
                        calls->error_text(error));
    }
    d->calls = calls;
    d->library = library;
    d->index = index;
    snprintf(d->name, sizeof d->name, "cuda:%d", index);
    ctx->device = d;
    return FOCI_OK;
}

foci_status device_open(foci_ctx *ctx, const char *name)
{
    if (parse_index(name) < 0) return no_such_device(name);
    void *library = open_library();

    if (!library)
        return ctx_fail(
            NULL, FOCI_ERR_DEVICE,
            "device %.40s: %s is not there: `make cuda` builds it where nvcc is; "
            "it lies beside this library, or $FOCI_CUDA_LIBRARY names it (%.120s)",
            name, library_name, dlerror());
    const struct cuda_calls *(*calls)(void);
    *(void **)&calls = dlsym(library, "foci_cuda_calls");
    if (!calls) {
        dlclose(library);
        return ctx_fail(NULL, FOCI_ERR_DEVICE, "device %.40s: %s is another library",
                        name, library_name);
    }
    const foci_status status = device_use(ctx, name, calls(), library);
    if (status) dlclose(library);
    return status;
}

void device_close(foci_ctx *ctx)
{
    struct device *d = ctx->device;

    if (!d) return;
    if (d->library) dlclose(d->library);
    ctx_free(ctx, d, 1, sizeof *d);
    ctx->device = NULL;
}

/*
 * Memory
 */

foci_status foci_device_alloc(foci_ctx *ctx, size_t bytes, void **memory)
{
    if (!ctx || !memory)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_device_alloc: %s is NULL",
                        ctx ? "memory" : "the context");
    *memory = NULL;
    struct device *d = ctx->device;
    if (!d) {
        *memory = ctx->alloc(ctx->user, NULL, 0, bytes ? bytes : 64);
        return *memory
                   ? FOCI_OK
                   : ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory for %zu bytes", bytes);
    }
    int before;
    int error = d->calls->enter(d->index, &before);
    if (!error) error = d->calls->alloc(memory, bytes ? bytes : 64);
    d->calls->leave(before);
    if (error)
        return ctx_fail(ctx, FOCI_ERR_MEMORY, "%s: no memory for %zu bytes: %s",
                        d->name, bytes, d->calls->error_text(error));
    return FOCI_OK;
}

void foci_device_free(foci_ctx *ctx, void *memory, size_t bytes)
{
    if (!ctx || !memory) return;
    struct device *d = ctx->device;
    if (!d)
        ctx->alloc(ctx->user, memory, bytes ? bytes : 64, 0);
    else
        (void)d->calls->release(memory);
}

static foci_status copy(foci_ctx *ctx, void *to, const void *from, size_t bytes)
{
    if (!ctx || (bytes && (!to || !from)))
        return ctx_fail(ctx, FOCI_ERR_ARG, "copying: %s is NULL",
                        !ctx ? "the context"
                        : to ? "from"
                             : "to");
    struct device *d = ctx->device;
    if (!bytes) return FOCI_OK;
    if (!d) {
        memcpy(to, from, bytes);
        return FOCI_OK;
    }
    int before;
    int error = d->calls->enter(d->index, &before);
    if (!error) error = d->calls->copy(to, from, bytes);
    d->calls->leave(before);
    return device_status(ctx, error, "copying");
}

foci_status foci_device_write(foci_ctx *ctx, void *to, const void *from, size_t bytes)
{
    return copy(ctx, to, from, bytes);
}

foci_status foci_device_read(foci_ctx *ctx, void *to, const void *from, size_t bytes)
{
    return copy(ctx, to, from, bytes);
}

foci_status foci_device_wait(foci_ctx *ctx, void *stream)
{
    if (!ctx)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_device_wait: the context is NULL");
    struct device *d = ctx->device;
    if (!d) return FOCI_OK;
    int before;
    int error = d->calls->enter(d->index, &before);
    if (!error) error = d->calls->wait(stream);
    d->calls->leave(before);
    return device_status(ctx, error, "executing");
}

foci_status device_measure(foci_ctx *ctx, foci_machine *machine)
{
    struct device    *d = ctx->device;
    struct cuda_peaks peaks = { 0 };
    int               before = 0;
    int               error = d->calls->enter(d->index, &before);

    if (!error) error = d->calls->measure(d->info.n_sm, &peaks);
    d->calls->leave(before);
    TRY(device_status(ctx, error, "measuring"));
    const foci_machine whole = { .f32_flops = peaks.f32_flops,
                                 .bf16_flops = peaks.bf16_flops,
                                 .copy_bytes = peaks.copy_bytes,
                                 .read_bytes = peaks.read_bytes };
    return sized_out(ctx, "foci_machine", machine, &whole, sizeof whole);
}

foci_status foci_ctx_get_device(const foci_ctx *ctx, foci_device *device)
{
    foci_device whole = { 0 };

    if (!ctx)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_ctx_get_device: the context is NULL");
    const struct device *d = ctx->device;
    if (d) {
        whole.name = d->name;
        whole.model = d->info.name;
        whole.processors = d->info.n_sm;
        whole.capability = d->info.sm;
        whole.memory_bytes = d->info.memory_bytes;
    }
    return sized_out((foci_ctx *)ctx, "foci_device", device, &whole, sizeof whole);
}
