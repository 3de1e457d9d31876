/* mask.c -- tokens that are hidden from an mlm, which are its labels.
 *
 * Of the tokens that are not special each is chosen with probability `mask`; where none is,
 * the one that came nearest to it.  Of the chosen ones 80 % become <mask>, 10 % any token,
 * 10 % stay.  What is chosen follows from the seed, the pass (in an evaluation: none) and
 * the place of the row in the text.
 *
 * Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019.
 */
#include "data/data.h"

static bool is_special(const foci_data *d, int32_t id)
{
    return foci_tokenizer_is_special(d->tokenizer[0], id) != 0;
}

/* Any token that is not special; where that is hard to find, the one that is there. */
static int32_t draw_token(const foci_data *d, struct rng *r, int32_t there)
{
    for (int tries = 0; tries < 100; tries++) {
        const int32_t id = (int32_t)rng_below(r, d->vocab[0]);
        if (!is_special(d, id)) return id;
    }
    return there;
}

static int32_t hide(const foci_data *d, struct rng *r, int32_t id)
{
    const double u = rng_uniform(r);

    if (u < 0.8) return d->mask;
    return u < 0.9 ? draw_token(d, r, id) : id;
}

void mask_row(const foci_data *d, const struct data_row *row, int32_t *ids,
              int32_t *labels)
{
    const int64_t n = row->n[0];
    struct rng    r =
        data_stream(d, DRAW_MASK, is_once(d) ? 0 : d->pass + 1, d->block.index);
    double  least = 1;
    int64_t nearest = -1;
    bool    any = false;

    r.state = rng_absorb(r.state, (uint64_t)row->begin[0] + 1);
    for (int64_t i = 0; i < n; i++) {
        const double u = rng_uniform(&r);
        labels[i] = -1;
        if (is_special(d, ids[i])) continue;
        if (u < d->o.mask) labels[i] = ids[i];
        any |= u < d->o.mask;
        if (u < least) nearest = i;
        if (u < least) least = u;
    }
    if (!any && nearest >= 0) labels[nearest] = ids[nearest];
    for (int64_t i = 0; i < n; i++)
        if (labels[i] >= 0) ids[i] = hide(d, &r, ids[i]);
}
