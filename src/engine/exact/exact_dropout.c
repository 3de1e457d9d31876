/* exact_dropout.c -- dropout of weights.
 *
 * Whether weight (b, h, i, j) is dropped follows from these numbers and the seed alone:
 * a hash absorbs them in this order, and its last output, as a number from 0 to 1, is
 * below the probability.  So forward and backward, tiles of any size and any number of
 * threads agree, and no mask is stored.
 */
#include <math.h>

#include "engine/exact/exact_score.h"
#include "engine/exact/slots/exact_slots.h"

uint64_t exact_dropout_key(const struct exact *x, int64_t b, int64_t h, int64_t row)
{
    return rng_drop_key(x->io->dropout_seed, b, h, row);
}

void exact_dropout_keys(const struct exact *x, const struct exact_block *b,
                        uint64_t *keys)
{
    for (int i = 0; x->dropout.on && i < LANES; i++)
        keys[i] = exact_dropout_key(x, b->seq->s.b, b->h, b->seq->s.q0 + b->i0 + i);
}

/* The top 53 bits of the hash are below p 2^53 where the hash is below 2^11 times the
 * next whole number. */
void exact_dropout_mask(const struct exact *x, const uint64_t *keys, int64_t first,
                        int n, uint64_t *dropout_mask)
{
    const uint64_t bound = (uint64_t)ceil(x->p->dropout * 0x1p53) << 11;
    x->k->dropout_keys(dropout_mask, n, keys, (uint64_t)first + 1, bound);
}

int64_t exact_dropout_column(const struct exact_seq *s, int64_t t)
{
    const int level = exact_slot_level(s, t);

    if (level < 0) return s->s.k0 + t * TILE;
    return (level + 1) * (INT64_C(1) << 40) + exact_first_slot(s, level, t);
}
