/* utf8.c -- characters in bytes, and the classes of characters. */
#include <string.h>

#include "text/utf8.h"

bool utf8_begins(const char *p, int64_t n)
{
    uint32_t  c;
    const int first = (unsigned char)*p;
    const int whole = first < 0xc2   ? 1
                      : first < 0xe0 ? 2
                      : first < 0xf0 ? 3
                      : first < 0xf5 ? 4
                                     : 1;
    return n < whole && utf8_next(p, p + n, &c) == n && c == UTF8_BAD;
}

int utf8_put(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    const int      n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    const unsigned mark = n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0;
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(mark | c);
    return n;
}

/* How many of n bytes, from the first on, are ASCII for sure. */
static int64_t ascii_run(const char *p, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, sizeof word);
        if (word & 0x8080808080808080u) break;
    }
    return i;
}

/* Where n bytes at p end.  No bytes may lie at a null pointer, which nothing is added to. */
static const char *end_of(const char *p, int64_t n) { return n ? p + n : p; }

bool utf8_valid(const char *p, int64_t n)
{
    const char *end = end_of(p, n);
    uint32_t    c;

    while (p < end) {
        p += ascii_run(p, end - p);
        if (p == end) break;
        p += utf8_next(p, end, &c);
        if (c == UTF8_BAD) return false;
    }
    return true;
}

int64_t utf8_repair(const char *p, int64_t n, char *out)
{
    const char *end = end_of(p, n);
    int64_t     used = 0;
    char        unknown[UTF8_MOST];
    const int   n_unknown = utf8_put(UTF8_UNKNOWN, unknown);

    while (p < end) {
        uint32_t    c;
        int         len = utf8_next(p, end, &c);
        const char *from = c == UTF8_BAD ? unknown : p;
        p += len;
        if (c == UTF8_BAD) len = n_unknown;
        if (out) memcpy(out + used, from, (size_t)len);
        used += len;
    }
    return used;
}

/* Where the class changes, in order: 4 * code point + class. */
static const uint32_t changes[] = {
#include "text/unicode.def"
};

enum char_class char_class_beyond(uint32_t c)
{
    if (c > 0x10ffff) return CHAR_OTHER;
    const uint32_t key = 4 * c + 3; /* the last change at or before c is not above it */
    size_t         low = 0, high = sizeof changes / sizeof *changes;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (changes[middle] <= key)
            low = middle;
        else
            high = middle;
    }
    return (enum char_class)(changes[low] & 3);
}

#define L CHAR_LETTER
#define N CHAR_NUMBER
#define S CHAR_SPACE
const unsigned char char_class_ascii[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, S, S, S, S, S, 0, 0, /* \t \n \v \f \r */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* */
    S, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* the blank */
    N, N, N, N, N, N, N, N, N, N, 0, 0, 0, 0, 0, 0, /* 0 to 9 */
    0, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, /* A to O */
    L, L, L, L, L, L, L, L, L, L, L, 0, 0, 0, 0, 0, /* P to Z */
    0, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, /* a to o */
    L, L, L, L, L, L, L, L, L, L, L, 0, 0, 0, 0, 0, /* p to z */
};
#undef L
#undef N
#undef S
