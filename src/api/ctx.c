/* ctx.c -- contexts: options, and queries of a context. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "device/device.h"

int foci_ctx_threads(const foci_ctx *ctx) { return ctx->threads; }

/* An empty variable counts as none. */
static const char *env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static foci_status choose_threads(foci_ctx *ctx, int asked)
{
    if (asked < 0 || asked > MAX_THREADS)
        return ctx_fail(NULL, FOCI_ERR_ARG,
                        "threads=%d: a context takes 1 to %d, or 0 to choose", asked,
                        MAX_THREADS);
    ctx->threads = asked ? asked : cpu_count();

    const char *text = env("FOCI_THREADS");
    if (asked || !text) return FOCI_OK;

    int n = 0;
    for (const char *s = text; *s; s++) {
        if (*s < '0' || *s > '9' || n > MAX_THREADS) {
            n = 0;
            break;
        }
        n = 10 * n + (*s - '0');
    }
    if (n < 1 || n > MAX_THREADS)
        return ctx_fail(NULL, FOCI_ERR_ARG,
                        "FOCI_THREADS=%.40s: a whole number from 1 to %d is wanted",
                        text, MAX_THREADS);
    ctx->threads = n;
    return FOCI_OK;
}

static foci_status unknown_level(const char *name, const char *origin)
{
    char   names[128] = "";
    size_t len = 0;
    for (int l = 0; l < N_LEVELS && len < sizeof names; l++)
        len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", l ? ", " : "",
                                level_names[l]);
    return ctx_fail(NULL, FOCI_ERR_ARG, "%s=%.40s: no such CPU level; there are %s",
                    origin, name, names);
}

static foci_status choose_levels(foci_ctx *ctx, const char *asked)
{
    const char *origin = asked ? "cpu" : "FOCI_CPU";
    const char *name = asked ? asked : env("FOCI_CPU");
    int         top = N_LEVELS - 1;

    if (name) {
        for (top = 0; top < N_LEVELS && strcmp(name, level_names[top]) != 0; top++)
            ;
        if (top == N_LEVELS) return unknown_level(name, origin);
    }
    ctx->levels = kernels_detect((enum level)top, ctx->why);
    for (int l = top + 1; l < N_LEVELS; l++)
        ctx->why[l] =
            asked ? "above the level asked for" : "above the level in FOCI_CPU";
    const struct cpu_model cpu = kernels_cpu();
    ctx->levels = models_choose(&cpu, ctx->levels, name ? top : N_LEVELS, ctx->why);
    kernels_init(&ctx->kernels, ctx->levels);
    models_tune(&cpu, &ctx->kernels);
    ctx->l2_bytes = cpu_l2_bytes();
    return FOCI_OK;
}

foci_status foci_ctx_create(const foci_options *options, foci_ctx **out)
{
    if (!out)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_ctx_create: no place for the context");
    *out = NULL;

    foci_options o = { 0 };
    if (options) TRY(sized_in(NULL, "foci_options", &o, options, sizeof o));

    const foci_alloc_fn alloc = o.alloc ? o.alloc : default_alloc;
    foci_ctx           *ctx = alloc(o.user, NULL, 0, sizeof *ctx);
    if (!ctx)
        return ctx_fail(NULL, FOCI_ERR_MEMORY, "no memory for a context of %zu bytes",
                        sizeof *ctx);

    memset(ctx, 0, sizeof *ctx);
    ctx->alloc = alloc;
    ctx->user = o.user;
    ctx->number = ctx_number();

    team_init();
    foci_status status = choose_threads(ctx, o.threads);
    if (!status) status = choose_levels(ctx, o.cpu);
    if (!status && o.device) status = device_open(ctx, o.device);
    if (status) {
        foci_ctx_free(ctx);
        return status;
    }
    *out = ctx;
    return FOCI_OK;
}

void foci_ctx_free(foci_ctx *ctx)
{
    if (!ctx) return;
    device_close(ctx);
    for (int i = 0; i < ctx->n_own; i++)
        ctx_free(ctx, ctx->own[i], 1, sizeof *ctx->own[i]);
    ctx_free(ctx, ctx->own, (size_t)ctx->n_own, sizeof *ctx->own);
    ctx->alloc(ctx->user, ctx, sizeof *ctx, 0);
}

int foci_cpu_level_count(const foci_ctx *ctx)
{
    (void)ctx;
    return N_LEVELS;
}

int foci_kernel_count(const foci_ctx *ctx)
{
    (void)ctx;
    return N_KERNELS;
}

const char *foci_cpu_level(const foci_ctx *ctx, int level, const char **state)
{
    if (level < 0 || level >= N_LEVELS) return NULL;
    if (state) {
        const unsigned from_here = ctx->levels >> level;
        if (!(from_here & 1))
            *state = ctx->why[level] ? ctx->why[level] : "not available";
        else
            *state = from_here == 1 ? "chosen" : "available";
    }
    return level_names[level];
}

/* The lowest level with which the slot holds what it holds in the context. */
const char *foci_kernel(const foci_ctx *ctx, int i, const char **level)
{
    if (i < 0 || i >= N_KERNELS) return NULL;
    if (level) {
        const kernel_fn chosen = kernels_slot(&ctx->kernels, i);
        struct kernels  table;
        int             l = 0;
        for (; l < N_LEVELS - 1; l++) {
            kernels_init(&table, ctx->levels & ((2u << l) - 1));
            if (kernels_slot(&table, i) == chosen) break;
        }
        *level = level_names[l];
    }
    return kernel_names[i];
}
