/* exact_describe.c -- the text that describes a stage of the exact engine. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/exact/exact_back.h"
#include "engine/exact/exact_fused.h"
#include "engine/exact/exact_product.h"

/* "gemm_f32 (avx512)": a kernel and the CPU level it comes from. */
static const char *kernel_text(const foci_ctx *ctx, int id, char *text, size_t cap)
{
    const char *level = "";
    const char *name = foci_kernel(ctx, id, &level);

    snprintf(text, cap, "%s (%s)", name, level);
    return text;
}

/* How keys and values are packed. */
static const char *packing(const struct exact *x)
{
    const bool keys = exact_keys_in_place(x), values = exact_values_in_place(x);

    return keys && values ? "keys and values in place"
           : keys         ? "values once, keys in place"
           : values       ? "keys once, values in place"
                          : "keys and values once";
}

/* Append like snprintf, after the `used` characters of the text. */
static int add(char *text, size_t cap, int used, const char *format, ...)
    PRINTF_LIKE(4, 5);

static int add(char *text, size_t cap, int used, const char *format, ...)
{
    const size_t left = (size_t)used < cap ? cap - (size_t)used : 0;
    va_list      args;

    va_start(args, format);
    const int n = vsnprintf(left ? text + used : NULL, left, format, args);
    va_end(args);
    return n > 0 ? used + n : used;
}

static int add_labels(const struct stage *s, char *text, size_t cap, int used)
{
    static const char *const by[] = {
        [FOCI_LABEL_PLACE] = "by position",
        [FOCI_LABEL_NEAREST] = "by the nearest centroid",
        [FOCI_LABEL_ANGULAR] = "by angular hashes",
        [FOCI_LABEL_FLOOR] = "by floor hashes",
    };
    const foci_order      *o = &s->order;
    const struct labelled *l = &s->labelled;
    const int64_t          rounds = max64(o->rounds, 1), nq = s->group->mech.dims.len_q;

    if (!o->label) return used;
    used = add(text, cap, used, "    labels   %s", by[o->label]);
    if (l->labels) used = add(text, cap, used, ", %" PRId64 " of them", l->labels);
    if (rounds > 1) used = add(text, cap, used, ", %" PRId64 " rounds", rounds);
    if (o->chunk)
        used = add(text, cap, used, ", sorted in chunks of %" PRId64, o->chunk);
    if (o->topk)
        used = add(text, cap, used, ", of which each takes %" PRId64 " rows", o->topk);
    return add(text, cap, used, "; about %.3g keys a query\n",
               nq ? l->met / (double)nq : 0);
}

static int add_slots(const struct stage *s, char *text, size_t cap, int used)
{
    for (int i = 0; i < s->n_levels; i++) {
        const foci_slots *slots = &s->levels[i].slots;
        const int64_t     n = slots_of(slots, s->group->mech.dims.len);
        if (slots->tail == 1)
            used = add(text, cap, used,
                       "    slots    %" PRId64 ", the last of every %" PRId64 " keys\n",
                       n, slots->run_len);
        else if (slots->tail)
            used = add(text, cap, used,
                       "    slots    %" PRId64 ", the last %" PRId64
                       " of every %" PRId64 " keys\n",
                       n, slots->tail, slots->run_len);
        else if (slots->learned)
            used =
                add(text, cap, used,
                    "    slots    %" PRId64 ", learned sums of %" PRId64 " keys each\n",
                    n, slots->run_len);
        else
            used = add(text, cap, used,
                       "    slots    %" PRId64 ", means of %" PRId64 " keys each\n", n,
                       slots->run_len);
    }
    return used;
}

/* Append the kernels of both passes. */
static int add_kernels(const struct exact *x, char *text, size_t cap, int used)
{
    const bool train = x->p->flags & FOCI_FLAG_TRAIN;
    char       attend[64], gemm[64], weigh[64], grad[64];

    kernel_text(x->plan->ctx, K_attend_bf16, attend, sizeof attend);
    kernel_text(x->plan->ctx, x->bf16 ? K_gemm_bf16 : K_gemm_f32, gemm, sizeof gemm);
    kernel_text(x->plan->ctx, x->bf16 ? K_weigh_bf16 : K_weigh_f32, weigh, sizeof weigh);
    kernel_text(x->plan->ctx,
                back_has_panels(x) ? K_grad_panel_bf16
                : x->bf16          ? K_grad_bf16
                                   : K_grad_f32,
                grad, sizeof grad);
    if (!x->fused)
        return add(text, cap, used, "    kernels  %s, %s%s%s\n", gemm, weigh,
                   train ? ", " : "", train ? grad : "");
    used = add(text, cap, used, "    kernels  %s", attend);
    return train ? add(text, cap, used, "; %s, %s\n", gemm, grad)
                 : add(text, cap, used, "\n");
}

int exact_describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap)
{
    struct exact x;
    foci_cost    c = { 0 };

    exact_geometry(&x, plan, s);
    exact_fused_geometry(&x);
    engine_exact.cost(plan, s, &c);
    int used = add(text, cap, 0, "    pack     %s, as %s, widths %d and %d%s\n",
                   packing(&x), x.bf16 ? "bf16" : "f32",
                   exact_keys_in_place(&x) ? x.d.q
                   : x.bf16                ? x.d.q_pad
                                           : x.d.ldq,
                   exact_values_in_place(&x) ? x.d.v
                   : x.bf16                  ? x.d.v_pad
                                             : x.d.ldv,
                   s->score.unit ? ", rows of q and k normalised" : "");
    used = add_labels(s, text, cap, used);
    used = add_slots(s, text, cap, used);
    used = add(text, cap, used,
               "    exact    tiles %" PRId64 " full, %" PRId64 " partial, %" PRId64
               " skipped; %d mask%s",
               c.tiles_full, c.tiles_part, c.tiles_skipped, (int)s->support.n_masks,
               s->support.n_masks == 1 ? "" : "s");
    used = x.fused ? add(text, cap, used, "; up to %d keys at once\n",
                         ATTEND_GROUPS * ATTEND_KEYS)
                   : add(text, cap, used, "; panels of %d keys\n", x.panel);
    return add_kernels(&x, text, cap, used);
}
