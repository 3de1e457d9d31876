/* pcg64.c -- the random numbers of numpy.random.default_rng(), so that resamples are those
 * that others have drawn.
 *
 * PCG XSL RR 128/64 (O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically
 * Good Algorithms for Random Number Generation", 2014), seeded by the hash of NumPy's
 * SeedSequence (after O'Neill's seed_seq_fe); integers below n by multiplication (Lemire,
 * "Fast Random Integer Generation in an Interval", 2019).  NumPy takes 32-bit integers from
 * the lower, then the upper half of a word, and bits from the lowest on.
 */
#include "stats/stats.h"

/* The upper half of a product. */
static uint64_t multiply_high(uint64_t a, uint64_t b)
{
    const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    const uint64_t other = a0 * b1 + (uint32_t)middle;

    return a1 * b1 + (middle >> 32) + (other >> 32);
}

static void add(struct pcg64 *r, uint64_t high, uint64_t low)
{
    r->state_low += low;
    r->state_high += high + (r->state_low < low);
}

/* state = state * factor + step, mod 2^128. */
static void advance(struct pcg64 *r)
{
    const uint64_t high = UINT64_C(0x2360ED051FC65DA4),
                   low = UINT64_C(0x4385DF649FCCF645);

    r->state_high =
        r->state_high * low + r->state_low * high + multiply_high(r->state_low, low);
    r->state_low *= low;
    add(r, r->step_high, r->step_low);
}

static uint64_t next_word(struct pcg64 *r)
{
    advance(r);
    const uint64_t folded = r->state_high ^ r->state_low;
    const unsigned by = (unsigned)(r->state_high >> 58);
    return folded >> by | folded << (-by & 63);
}

static uint32_t next_half(struct pcg64 *r)
{
    r->has_kept = !r->has_kept;
    if (!r->has_kept) return r->kept;
    const uint64_t word = next_word(r);
    r->kept = (uint32_t)(word >> 32);
    return (uint32_t)word;
}

/*
 * Seeds
 */

enum { POOL = 4 };

/* A hash whose key goes on from one value to the next. */
static uint32_t hash(uint32_t value, uint32_t *key, uint32_t factor)
{
    value ^= *key;
    *key *= factor;
    value *= *key;
    return value ^ value >> 16;
}

static uint32_t mix(uint32_t a, uint32_t b)
{
    const uint32_t sum = a * UINT32_C(0xCA01F9DD) - b * UINT32_C(0x4973F715);
    return sum ^ sum >> 16;
}

static void make_pool(uint64_t seed, uint32_t pool[POOL])
{
    const uint32_t factor = UINT32_C(0x931E8875);
    uint32_t       key = UINT32_C(0x43B0D7E5);

    for (int i = 0; i < POOL; i++)
        pool[i] = hash(i < 2 ? (uint32_t)(seed >> 32 * i) : 0, &key, factor);
    for (int from = 0; from < POOL; from++)
        for (int to = 0; to < POOL; to++)
            if (from != to) pool[to] = mix(pool[to], hash(pool[from], &key, factor));
}

void pcg64_seed(struct pcg64 *r, uint64_t seed)
{
    uint32_t pool[POOL], key = UINT32_C(0x8B51F9DD);
    uint64_t words[4] = { 0 };

    make_pool(seed, pool);
    for (int i = 0; i < 8; i++)
        words[i / 2] |= (uint64_t)hash(pool[i % POOL], &key, UINT32_C(0x58F38DED))
                        << 32 * (i % 2);
    *r = (struct pcg64){ .step_high = words[2] << 1 | words[3] >> 63,
                         .step_low = words[3] << 1 | 1 };
    advance(r);
    add(r, words[0], words[1]);
    advance(r);
}

/*
 * Draws
 */

uint32_t pcg64_below(struct pcg64 *r, uint32_t n)
{
    if (n == 1) return 0; /* which draws nothing */
    const uint32_t uneven = -n % n;
    uint64_t       product;

    do
        product = (uint64_t)next_half(r) * n;
    while ((uint32_t)product < uneven);
    return (uint32_t)(product >> 32);
}

bool pcg64_coin(struct pcg64 *r)
{
    if (r->n_bits-- == 0) {
        r->bits = next_half(r);
        r->n_bits = 31;
    }
    const bool bit = r->bits & 1;
    r->bits >>= 1;
    return bit;
}
