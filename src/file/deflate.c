/* deflate.c -- compression for pictures: zlib streams (RFC 1950, 1951).
 *
 * One block with the codes that the format fixes.  Matches are taken greedily, the
 * longer of two: where the next three bytes were seen last, and one row above.  For
 * drawings, which are flat areas and repeated rows, that is near what zlib does; for
 * photographs it is not.
 */
#include <string.h>

#include "file/format.h"

enum {
    MIN_MATCH = 3,
    MAX_MATCH = 258,
    WINDOW = 32768,
    END = 256,          /* of the block */
    FIRST_LENGTH = 257, /* codes of matches follow those of bytes */
};

static const uint16_t length_base[] = { 3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                        15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                        67, 83, 99, 115, 131, 163, 195, 227, 258 };
static const uint8_t  length_extra[] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                         2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0 };
static const uint16_t distance_base[] = { 1,    2,    3,    4,     5,     7,
                                          9,    13,   17,   25,    33,    49,
                                          65,   97,   129,  193,   257,   385,
                                          513,  769,  1025, 1537,  2049,  3073,
                                          4097, 6145, 8193, 12289, 16385, 24577 };

struct bits {
    uint8_t *out;
    size_t   n;
    uint32_t held; /* the lowest `count` bits, written when there are eight */
    int      count;
};

/* The lowest bit first, as numbers are sent. */
static void put_bits(struct bits *b, uint32_t value, int count)
{
    b->held |= value << b->count;
    for (b->count += count; b->count >= 8; b->count -= 8) {
        b->out[b->n++] = (uint8_t)b->held;
        b->held >>= 8;
    }
}

/* The highest bit first, as codes are sent. */
static void put_code(struct bits *b, uint32_t code, int count)
{
    uint32_t turned = 0;
    for (int i = 0; i < count; i++)
        turned |= (code >> i & 1) << (count - 1 - i);
    put_bits(b, turned, count);
}

/* A byte, the end, or the code of a length (RFC 1951, 3.2.6). */
static void put_symbol(struct bits *b, uint32_t symbol)
{
    if (symbol < 144)
        put_code(b, 0x30 + symbol, 8);
    else if (symbol < END)
        put_code(b, 0x190 + symbol - 144, 9);
    else if (symbol < 280)
        put_code(b, symbol - END, 7);
    else
        put_code(b, 0xc0 + symbol - 280, 8);
}

static void put_match(struct bits *b, size_t length, size_t distance)
{
    uint32_t t = sizeof length_base / sizeof *length_base - 1;
    while (length_base[t] > length)
        t--;
    put_symbol(b, FIRST_LENGTH + t);
    put_bits(b, (uint32_t)length - length_base[t], length_extra[t]);

    t = sizeof distance_base / sizeof *distance_base - 1;
    while (distance_base[t] > distance)
        t--;
    put_code(b, t, 5);
    put_bits(b, (uint32_t)distance - distance_base[t], t < 4 ? 0 : (int)t / 2 - 1);
}

/* Bytes that in[at..n) has in common with what lies `distance` before. */
static size_t match(const uint8_t *in, size_t n, size_t at, size_t distance)
{
    const size_t most = n - at < MAX_MATCH ? n - at : MAX_MATCH;
    size_t       t = 0;

    if (distance == 0 || distance > at || distance > WINDOW) return 0;
    while (t < most && in[at + t] == in[at + t - distance])
        t++;
    return t;
}

static size_t hash(const uint8_t *p)
{
    const uint32_t three = (uint32_t)(p[0] | p[1] << 8 | p[2] << 16);
    return three * UINT32_C(2654435761) >> 18;
}

static void put_adler(struct bits *b, const uint8_t *in, size_t n)
{
    enum { PRIME = 65521 };
    uint32_t low = 1, high = 0;

    for (size_t i = 0; i < n; i++) {
        low = (low + in[i]) % PRIME;
        high = (high + low) % PRIME;
    }
    const uint32_t sum = high << 16 | low;
    for (int shift = 24; shift >= 0; shift -= 8)
        b->out[b->n++] = (uint8_t)(sum >> shift);
}

/* No byte takes more than nine bits, no match more than its bytes would. */
size_t deflate_room(size_t n) { return n + n / 8 + 16; }

size_t deflate_pack(const uint8_t *in, size_t n, size_t row, int64_t *heads,
                    uint8_t *out)
{
    struct bits b = { .out = out };
    size_t      length;

    memset(heads, -1, DEFLATE_HEADS * sizeof *heads);
    put_bits(&b, 0x0178, 16); /* a window of 32 KiB, fastest */
    put_bits(&b, 3, 3);       /* the last block, fixed codes */
    for (size_t i = 0; i < n; i += length) {
        size_t distance = row;
        length = match(in, n, i, row);
        if (n - i >= MIN_MATCH && heads[hash(in + i)] >= 0) {
            const size_t back = i - (size_t)heads[hash(in + i)];
            const size_t other = match(in, n, i, back);
            if (other > length) length = other, distance = back;
        }
        if (length >= MIN_MATCH) {
            put_match(&b, length, distance);
        } else {
            put_symbol(&b, in[i]);
            length = 1;
        }
        for (size_t t = i; t < i + length && n - t >= MIN_MATCH; t++)
            heads[hash(in + t)] = (int64_t)t;
    }
    put_symbol(&b, END);
    put_bits(&b, 0, 7); /* up to a whole byte */
    put_adler(&b, in, n);
    return b.n;
}
