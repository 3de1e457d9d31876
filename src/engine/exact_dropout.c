/* exact_dropout.c -- weights that are dropped by chance.
 *
 * Whether weight (b, h, i, j) is dropped follows from these and the seed alone: a hash
 * takes them in one after the other, and its last output, as a number from 0 to 1, is
 * below the share to drop.  Forward and backward, tiles of any size and any number of
 * threads thus agree without a word being kept.
 */
#include <math.h>

#include "engine/exact_score.h"
#include "engine/exact_slots.h"

uint64_t exact_drop_key(const struct exact *x, int64_t b, int64_t h, int64_t row)
{
    return rng_drop_key(x->io->dropout_seed, b, h, row);
}

void exact_drop_keys(const struct exact *x, const struct block *b, uint64_t *keys)
{
    for (int i = 0; x->drops && i < LANES; i++)
        keys[i] = exact_drop_key(x, b->seq->s.b, b->h, b->seq->s.q0 + b->i0 + i);
}

/* The top 53 bits of the hash are below p 2^53 where the hash is below 2^11 times the
 * next whole number. */
void exact_drop_keep(const struct exact *x, const uint64_t *keys, int64_t first, int n,
                     uint64_t *keep)
{
    const uint64_t bound = (uint64_t)ceil(x->p->dropout * 0x1p53) << 11;
    x->k->chances(keep, n, keys, (uint64_t)first + 1, bound);
}

int64_t exact_drop_number(const struct exact_seq *s, int64_t t)
{
    const int level = exact_level(s, t);

    if (level < 0) return s->s.k0 + t * TILE;
    return (level + 1) * (INT64_C(1) << 40) + exact_slot_of(s, level, t);
}
