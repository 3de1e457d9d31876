/* words.c -- the words that byte pair encoding does not merge across.
 *
 * They are the matches of the pattern of GPT-2 (Radford et al., "Language Models are
 * Unsupervised Multitask Learners", 2019, code),
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * which match everywhere, one after the other.  Found by hand: the first character tells
 * which of them it is.  What is not UTF-8 is none of \s, \p{L} and \p{N}.
 */
#include "text/text.h"
#include "text/utf8.h"

/* Bytes of 's, 't, 're, 've, 'm, 'll or 'd at p, where an apostrophe stands; 0: none. */
static int64_t contraction(const char *p, const char *end)
{
    if (end - p < 2) return 0;
    if (p[1] == 's' || p[1] == 't' || p[1] == 'm' || p[1] == 'd') return 2;
    if (end - p < 3) return 0;
    if ((p[1] == 'r' || p[1] == 'v') && p[2] == 'e') return 3;
    return p[1] == 'l' && p[2] == 'l' ? 3 : 0;
}

static enum char_class class_at(const char *p, const char *end, int *bytes)
{
    uint32_t c;

    if ((unsigned char)*p < 0x80) {
        *bytes = 1;
        return (enum char_class)char_class_ascii[(unsigned char)*p];
    }
    *bytes = utf8_next(p, end, &c);
    return char_class_beyond(c);
}

/* From p on, the end of the characters of a class; *last is where the last one begins. */
static const char *run_of(enum char_class class, const char *p, const char *end,
                          const char **last)
{
    int bytes;

    while (p < end && class_at(p, end, &bytes) == class) {
        *last = p;
        p += bytes;
    }
    return p;
}

int64_t word_next(const char *p, const char *end)
{
    const char *start = p, *last = p;
    int         bytes;
    enum char_class class = class_at(p, end, &bytes);

    if (*p == '\'') {
        const int64_t n = contraction(p, end);
        if (n) return n;
    }
    if (*p == ' ' && p + 1 < end) {
        const enum char_class next = class_at(p + 1, end, &bytes);
        if (next != CHAR_SPACE) {
            class = next;
            p++;
        }
    }
    p = run_of(class, p, end, &last);

    /* White space leaves its last character to the word that follows, unless it has no
     * other. */
    if (class == CHAR_SPACE && p < end && last > start) p = last;
    return p - start;
}

uint32_t byte_to_char(unsigned char byte)
{
    /* Bytes that do not stand for themselves, before this one. */
    if (byte <= 0x20) return 0x100u + byte;
    if (byte < 0x7f) return byte;
    if (byte <= 0xa0) return 0x100u + 0x21 + (byte - 0x7fu);
    return byte == 0xad ? 0x100u + 0x43 : byte;
}

int char_to_byte(uint32_t c)
{
    if (c < 0x100) return byte_to_char((unsigned char)c) == c ? (int)c : -1;
    if (c < 0x100 + 0x21) return (int)(c - 0x100);
    if (c < 0x100 + 0x43) return (int)(c - 0x121 + 0x7f);
    return c == 0x143 ? 0xad : -1;
}
