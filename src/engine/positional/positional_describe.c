/* positional_describe.c -- checks, cost and printing of the positional engine. */
#include <inttypes.h>
#include <stdio.h>

#include "engine/positional/positional.h"

/* Words of a sequence start at 0 and each is the one before or the next. */
static foci_status check_words(const foci_plan *plan, const struct stage *s,
                               const foci_io *io, char *text, size_t cap)
{
    const foci_problem *p = &plan->p;

    if (!(mech_reads(&s->group->mech) & FOCI_READ_WORDS)) return FOCI_OK;
    for (int64_t b = 0; b < (io->docs ? io->n_docs : p->batch); b++) {
        const int64_t from = io->docs ? io->docs[b] : b * p->len_q;
        const int64_t n = io->docs    ? io->docs[b + 1] - from
                          : io->len_q ? io->len_q[b]
                                      : p->len_q;

        for (int64_t i = 0; i < n; i++) {
            const int64_t word = io->words[from + i];
            const int64_t before = i ? io->words[from + i - 1] : 0;

            if (word == before || (i && word == before + 1)) continue;
            snprintf(text, cap,
                     "words: token %" PRId64 " of sequence %" PRId64
                     " is in word %" PRId64
                     "%s: words are numbered from 0, each token in the same as the one "
                     "before or in the next",
                     i, b, word, i ? " after another" : "");
            return FOCI_ERR_ARG;
        }
    }
    return FOCI_OK;
}

foci_status positional_check(const foci_plan *plan, const struct stage *s,
                             const foci_io *io, char *text, size_t cap)
{
    TRY(check_words(plan, s, io, text, cap));
    if (!io->lse) return FOCI_OK;
    snprintf(text, cap, "io.lse is given, but %s has no logits: leave it NULL",
             s->group->mech.def->name);
    return FOCI_ERR_ARG;
}

/* A multiply and an add for each element and row. */
void positional_cost(const foci_plan *plan, const struct stage *s, foci_cost *cost)
{
    const foci_problem *p = &plan->p;
    const double rows = (double)p->batch * (double)s->group->heads * (double)p->len_q;
    const double flops = 2 * rows * (double)p->dim_v;
    const double bytes = rows * (double)p->dim_v * (double)foci_dtype_bytes(p->dtype);

    cost->forward_flops += flops;
    cost->backward_flops += flops;
    cost->forward_bytes += 2 * bytes;
    cost->backward_bytes += 2 * bytes;
}

int positional_describe(const foci_plan *plan, const struct stage *s, char *text,
                        size_t cap)
{
    struct positional x;

    positional_geometry(&x, plan, s);
    if (positional_is_taps(&x.kind))
        return snprintf(text, cap, "    taps     %" PRId64 " a head, in f32\n",
                        positional_tap_count(&x));
    return snprintf(text, cap, "    scan     %s, means in doubles\n",
                    x.kind.words ? "words" : "tokens");
}
