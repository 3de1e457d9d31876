/* device_check.c -- what a device refuses: stages that it does not implement, when planning;
 * pointers of the host and streams of other devices, when executing. */
#include <stdio.h>

#include "device/device.h"

/* Modifiers by what they do. */
static const char *against_mods(const struct stage *s)
{
    const foci_mech *m = &s->group->mech;

    for (size_t i = 0; i < m->n_mods; i++) {
        const unsigned does = m->mods[i].def->does;
        if (does & (FOCI_MOD_SHAW | FOCI_MOD_TXL)) return m->mods[i].def->name;
    }
    return NULL;
}

/* What the mechanism asks for besides pairs of q and k in tiles. */
static const char *against_mech(const foci_plan *plan, const struct stage *s)
{
    const foci_mech     *m = &s->group->mech;
    const foci_mech_def *def = m->def;

    if (def->engine != FOCI_ENGINE_EXACT)
        return "only exact attention has a form there";
    if (def->two_pass && def->two_pass(m)) return "second passes have no form there";
    if (s->order.label) return "labels have no form there";
    if (s->n_levels) return "slots have no form there";
    if (mech_sources(m) != FOCI_SOURCE_QK)
        return "logits that do not come from queries and keys have no form there";
    if (def->map == FOCI_MAP_PROJECT) return "projected rows have no form there";
    if (def->stop && plan->p.flags & FOCI_FLAG_TRAIN)
        return "pairs without a gradient have no form there";
    if (def->by_length && plan->p.max_docs)
        return "its mask depends on the length, which documents have each their own";
    return NULL;
}

static const char *against_problem(const foci_plan *plan)
{
    const foci_problem *p = &plan->p;
    const int64_t       most = p->dtype == FOCI_F32 ? 128 : 256;

    if (p->dim_qk > most || p->dim_v > most)
        return p->dtype == FOCI_F32 ? "rows of f32 have up to 128 elements there"
                                    : "rows have up to 256 elements there";
    if (p->len_q > INT32_MAX / 2 || p->len_k > INT32_MAX / 2)
        return "sequences have up to 2^30 rows there";
    if (p->batch > UINT16_MAX || p->heads > UINT16_MAX)
        return "batches and heads go up to 65535 there";
    return NULL;
}

foci_status device_refuse(const foci_plan *plan, const struct stage *s)
{
    const foci_mech_def *def = s->group->mech.def;
    const char          *name = plan->ctx->device->name;
    const char          *why = against_mech(plan, s);
    const char          *mod = against_mods(s);

    if (!why) why = against_problem(plan);
    if (why)
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP, "column %d: %s on %s: %s",
                        s->group->column, def->name, name, why);
    if (mod)
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP, "column %d: %s has no form on %s",
                        s->group->column, mod, name);
    return FOCI_OK;
}

/*
 * Pointers
 */

struct pointer {
    const char *name;
    const void *at;
};

static foci_status check_pointer(const struct device *d, struct pointer p, char *text,
                                 size_t cap)
{
    int       device;
    const int place = p.at ? d->calls->place(p.at, &device) : CUDA_ANYWHERE;

    if (place == CUDA_ANYWHERE || (place == CUDA_ON_DEVICE && device == d->index))
        return FOCI_OK;
    if (place == CUDA_ON_DEVICE)
        snprintf(text, cap, "%s is memory of cuda:%d, and this plan runs on %s", p.name,
                 device, d->name);
    else
        snprintf(text, cap, "%s is memory of the host, and this plan runs on %s",
                 p.name, d->name);
    return FOCI_ERR_ARG;
}

static foci_status check_stream(const struct device *d, const foci_io *io, char *text,
                                size_t cap)
{
    int       device = -1;
    const int error = d->calls->stream_device(io->stream, &device);

    if (!error && (device < 0 || device == d->index)) return FOCI_OK;
    if (error)
        snprintf(text, cap, "io.stream is no stream: %s", d->calls->error_text(error));
    else
        snprintf(text, cap, "io.stream is of cuda:%d, and this plan runs on %s", device,
                 d->name);
    return FOCI_ERR_ARG;
}

static foci_status check_lengths(const foci_plan *plan, const foci_io *io, char *text,
                                 size_t cap)
{
    if (io->docs && (io->len_q || io->len_k)) {
        snprintf(text, cap,
                 "docs and lengths are both given: documents have their own lengths");
        return FOCI_ERR_ARG;
    }
    if (io->docs && (io->n_docs < 0 || io->n_docs > plan->p.max_docs)) {
        snprintf(text, cap,
                 "n_docs is %lld: this plan takes 0 to %lld (problem.max_docs)",
                 (long long)io->n_docs, (long long)plan->p.max_docs);
        return FOCI_ERR_ARG;
    }
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const foci_mech_def *def = plan->spec.groups[g].mech.def;
        if (def->by_length && (io->len_q || io->len_k)) {
            snprintf(text, cap,
                     "the mask of %s depends on the length: on %s all sequences are as "
                     "long as planned",
                     def->name, plan->ctx->device->name);
            return FOCI_ERR_ARG;
        }
    }
    return FOCI_OK;
}

static foci_status check_grads(const struct device *d, const foci_grads *g, char *text,
                               size_t cap)
{
    const struct pointer pointers[] = {
        { "grads.d_o", g->d_o },     { "grads.dq", g->dq },
        { "grads.dk", g->dk },       { "grads.dv", g->dv },
        { "grads.dx", g->dx },       { "grads.dparams", g->dparams },
        { "grads.dbias", g->dbias },
    };

    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++)
        TRY(check_pointer(d, pointers[i], text, cap));
    return FOCI_OK;
}

foci_status device_check_io(const foci_plan *plan, const foci_io *io,
                            const foci_grads *grads, char *text, size_t cap)
{
    const struct device *d = plan->ctx->device;
    const struct pointer pointers[] = {
        { "io.q", io->q },         { "io.k", io->k },       { "io.v", io->v },
        { "io.o", io->o },         { "io.lse", io->lse },   { "io.len_q", io->len_q },
        { "io.len_k", io->len_k }, { "io.docs", io->docs }, { "io.params", io->params },
        { "io.saved", io->saved }, { "io.work", io->work }, { "io.mask", io->mask },
        { "io.bias", io->bias },
    };

    TRY(check_lengths(plan, io, text, cap));
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++)
        TRY(check_pointer(d, pointers[i], text, cap));
    TRY(check_stream(d, io, text, cap));
    return grads ? check_grads(d, grads, text, cap) : FOCI_OK;
}
