/* utf8.h -- characters in bytes, and the classes of characters. */
#ifndef FOCI_UTF8_H
#define FOCI_UTF8_H

#include <stdbool.h>
#include <stdint.h>

enum {
    UTF8_MOST = 4,        /* bytes of a character */
    UTF8_UNKNOWN = 0xfffd /* the replacement character */
};

/* Not a character but an ill-formed sequence. */
#define UTF8_BAD UINT32_MAX

/* The character at p < end, or UTF8_BAD, into *c; the result is its bytes.  An ill-formed
 * sequence is the longest beginning of a character, else one byte (Unicode 16, section
 * 3.9, "U+FFFD Substitution of Maximal Subparts"). */
static inline int utf8_next(const char *p, const char *end, uint32_t *c)
{
    const unsigned char *s = (const unsigned char *)p;
    const int64_t        room = end - p;
    const uint32_t       first = s[0];

    if (first < 0x80) {
        *c = first;
        return 1;
    }
    *c = UTF8_BAD;
    const int more = first < 0xc2   ? 0
                     : first < 0xe0 ? 1
                     : first < 0xf0 ? 2
                     : first < 0xf5 ? 3
                                    : 0;
    /* The second byte has bounds of its own: no overlong forms, no surrogates, nothing
     * beyond U+10FFFF. */
    const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    uint32_t       sum = first & (0x3fu >> more);

    if (!more || room < 2 || s[1] < low || s[1] > high) return 1;
    for (int i = 1; i <= more; i++) {
        if (i >= room || (s[i] & 0xc0) != 0x80) return i;
        sum = sum << 6 | (s[i] & 0x3f);
    }
    *c = sum;
    return more + 1;
}

/* Of n bytes, 1 to 3, whether they begin a character without completing it. */
bool utf8_begins(const char *p, int64_t n);

/* Put a character to out[UTF8_MOST]; the result is its bytes. */
int utf8_put(uint32_t c, char *out);

/* Whether all n bytes are UTF-8. */
bool utf8_valid(const char *p, int64_t n);

/* Bytes of the text with U+FFFD for each ill-formed sequence, written to `out` unless
 * that is NULL. */
int64_t utf8_repair(const char *p, int64_t n, char *out);

enum char_class { CHAR_OTHER, CHAR_LETTER, CHAR_NUMBER, CHAR_SPACE };

/* \p{L}, \p{N}, \s or none of them, for any c >= 0x80; UTF8_BAD is none. */
enum char_class char_class_beyond(uint32_t c);

/* The same of ASCII. */
extern const unsigned char char_class_ascii[128];

static inline enum char_class char_class(uint32_t c)
{
    return c < 128 ? (enum char_class)char_class_ascii[c] : char_class_beyond(c);
}

#endif
