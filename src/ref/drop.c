/* drop.c -- dropout: a weight is dropped or not by a hash of the seed, the batch entry,
 * the head, the row and the column, whatever the order in which weights are made. */
#include "ref/ref.h"

static const uint64_t step = UINT64_C(0x9E3779B97F4A7C15);

static uint64_t hash(uint64_t key, int64_t number)
{
    uint64_t z = key + step * ((uint64_t)number + 1);

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Keys are counted in the tensors, slots from 2^40 times their level on, levels from
 * 1. */
static int64_t number_of(const struct ref_head *h, int64_t column)
{
    if (column < h->nk) return h->p->seq->k0 + column;
    const int level = ref_slot_level(h, column);
    return ((int64_t)level + 1) * ((int64_t)1 << 40) + column - h->first[level];
}

void ref_drop(const struct ref_head *h, int64_t i, struct ref_row *r)
{
    const struct ref_call *c = h->p->call;
    const double           p = c->plan->p.dropout;
    uint64_t               key;

    key = hash(c->io->dropout_seed, h->p->seq->b);
    key = hash(key, h->p->head);
    key = hash(key, h->p->seq->q0 + i);
    for (int64_t j = 0; j < h->cols; j++) {
        const uint64_t z = p > 0 ? hash(key, number_of(h, j)) : 0;
        const bool     dropped = p > 0 && (double)(z >> 11) * 0x1p-53 < p;
        r->keep[j] = dropped ? 0 : 1 / (1 - p);
    }
}
