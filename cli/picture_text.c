/* picture_text.c -- the letters of a text: UTF-8, of any origin. */
#include <string.h>

#include "cli/picture.h"

enum { UNKNOWN = 0xfffd };

/* Controls, what turns the direction of writing around, and what XML does not take. */
static bool is_foreign(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) ||
           c == 0xfffe || c == 0xffff;
}

uint32_t picture_next(const char **text)
{
    const uint32_t c = markup_next(text);
    return is_foreign(c) ? UNKNOWN : c;
}

/* Of the cells of a terminal: East Asian letters and pictures take two, accents none. */
static int width_of(uint32_t c)
{
    static const uint32_t wide[][2] = {
        { 0x1100, 0x115f },   { 0x2e80, 0xa4cf },   { 0xac00, 0xd7a3 },
        { 0xf900, 0xfaff },   { 0xfe30, 0xfe6f },   { 0xff00, 0xff60 },
        { 0x1f300, 0x1faff }, { 0x20000, 0x3fffd },
    };

    if (c >= 0x300 && c < 0x370) return 0;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (c >= wide[i][0] && c <= wide[i][1]) return 2;
    return 1;
}

int picture_letters(const char *text)
{
    int n = 0;

    while (*text)
        n += width_of(picture_next(&text));
    return n;
}

void picture_cut(const char *text, int letters, char *out, size_t cap)
{
    static const char ellipsis[] = "\xe2\x80\xa6";
    const bool        whole = picture_letters(text) <= letters;
    const char       *at = text;
    int               n = whole ? 0 : 1;
    size_t            bytes = 0;

    while (*at) {
        const char *next = at;
        n += width_of(picture_next(&next));
        if (n > letters || (size_t)(next - text) + sizeof ellipsis > cap) break;
        bytes = (size_t)(next - text);
        at = next;
    }
    memcpy(out, text, bytes);
    strcpy(out + bytes, *at ? ellipsis : "");
}
