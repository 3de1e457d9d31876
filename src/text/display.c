/* display.c -- a token as it is shown to people.
 *
 * Blanks, controls, characters that cannot be seen and bytes that are no character are spelled
 * out, as C does it, so that a token is one line of text and never turns its surroundings
 * around.
 */
#include <inttypes.h>
#include <string.h>

#include "text/text.h"
#include "text/utf8.h"

/* Blanks other than U+0020, formatting, and what turns the direction of writing. */
static bool is_unseen(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        { 0x0000, 0x001f },    { 0x007f, 0x00a0 }, { 0x00ad, 0x00ad },
        { 0x034f, 0x034f },    { 0x061c, 0x061c }, { 0x115f, 0x1160 },
        { 0x1680, 0x1680 },    { 0x17b4, 0x17b5 }, { 0x180b, 0x180f },
        { 0x2000, 0x200f },    { 0x2028, 0x202f }, { 0x205f, 0x206f },
        { 0x2800, 0x2800 },    { 0x3000, 0x3000 }, { 0x3164, 0x3164 },
        { 0xe000, 0xf8ff },    { 0xfe00, 0xfe0f }, { 0xfeff, 0xfeff },
        { 0xffa0, 0xffa0 },    { 0xfff0, 0xfffb }, { 0xffff, 0xffff },
        { 0xe0000, 0x10ffff },
    };

    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return (c & 0xfffe) == 0xfffe;
}

static void add_character(struct printer *to, const char *at, int n, uint32_t c)
{
    static const char from[] = "\n\t\r\\", letters[] = "ntr\\";
    const char *const found = c && c < 0x80 ? strchr(from, (int)c) : NULL;

    if (c == ' ')
        printer_add(to, "\xe2\x90\xa3"); /* U+2423, an open box */
    else if (found)
        printer_add(to, "\\%c", letters[found - from]);
    else if (c < 0x80 && is_unseen(c))
        printer_add(to, "\\x%02" PRIx32, c);
    else if (is_unseen(c))
        printer_add(to, "\\u{%" PRIx32 "}", c);
    else
        printer_add(to, "%.*s", n, at);
}

int foci_token_display(const foci_tokenizer *tokenizer, int32_t id, char *text,
                       size_t cap)
{
    struct printer to = { text, text ? cap : 0, 0 };
    int64_t        bytes = 0;
    const char    *at = tokenizer ? foci_tokenizer_token(tokenizer, id, &bytes) : NULL;

    printer_add(&to, "%s", "");
    if (!at) printer_add(&to, "%" PRId32, id);
    for (const char *end = at ? at + bytes : NULL; at < end;) {
        uint32_t  c;
        const int n = utf8_next(at, end, &c);
        if (c == UTF8_BAD)
            for (int i = 0; i < n; i++)
                printer_add(&to, "\\x%02x", (unsigned)(unsigned char)at[i]);
        else
            add_character(&to, at, n, c);
        at += n;
    }
    return to.used;
}
