/* markup.c -- text that grows, and what people wrote in HTML, SVG, JSON and CSV. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/markup.h"

void markup_free(struct markup *m)
{
    free(m->bytes);
    *m = (struct markup){ 0 };
}

/* Room for n more bytes and a zero. */
static void grow(struct markup *m, size_t n)
{
    if (m->cap - m->n > n) return;
    const size_t cap = 2 * (m->n + n) + 1024;
    char        *bytes = need(cap, 1);
    if (m->n) memcpy(bytes, m->bytes, m->n);
    free(m->bytes);
    m->bytes = bytes;
    m->cap = cap;
}

void markup_bytes(struct markup *m, const void *bytes, size_t n)
{
    grow(m, n);
    if (n) memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
    m->bytes[m->n] = '\0';
}

void markup_put(struct markup *m, const char *format, ...)
{
    va_list list, again;

    va_start(list, format);
    va_copy(again, list);
    const int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (n > 0) {
        grow(m, (size_t)n);
        vsnprintf(m->bytes + m->n, (size_t)n + 1, format, list);
        m->n += (size_t)n;
    }
    va_end(list);
}

/*
 * Characters
 */

uint32_t markup_next(const char **text)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const unsigned char  *p = (const unsigned char *)*text;
    const int             n = p[0] < 0x80             ? 1
                              : (p[0] & 0xe0) == 0xc0 ? 2
                              : (p[0] & 0xf0) == 0xe0 ? 3
                              : (p[0] & 0xf8) == 0xf0 ? 4
                                                      : 0;
    uint32_t              c = n < 2 ? p[0] : p[0] & (0xffU >> (n + 1));

    ++*text;
    if (n == 1) return c;
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0xfffd;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (!n || c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0xfffd;
    *text += n - 1;
    return c;
}

/* Controls of C1 and of direction, ends of lines, marks that nobody sees, and what is no
 * character. */
static bool is_hidden(uint32_t c)
{
    return (c >= 0x80 && c < 0xa0) || c == 0xad || c == 0x61c ||
           (c >= 0x200b && c <= 0x200f && c != 0x200c && c != 0x200d) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
           c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) || (c & 0xfffe) == 0xfffe;
}

static void put_utf8(struct markup *m, uint32_t c)
{
    char text[4];
    int  n = 0;

    if (c < 0x80) {
        text[n++] = (char)c;
    } else if (c < 0x800) {
        text[n++] = (char)(0xc0 | c >> 6);
    } else if (c < 0x10000) {
        text[n++] = (char)(0xe0 | c >> 12);
        text[n++] = (char)(0x80 | (c >> 6 & 0x3f));
    } else {
        text[n++] = (char)(0xf0 | c >> 18);
        text[n++] = (char)(0x80 | (c >> 12 & 0x3f));
        text[n++] = (char)(0x80 | (c >> 6 & 0x3f));
    }
    if (c >= 0x80) text[n++] = (char)(0x80 | (c & 0x3f));
    markup_bytes(m, text, (size_t)n);
}

char *markup_visible(const char *text)
{
    enum { PICTURES = 0x2400, OF_DELETE = 0x2421 };
    struct markup m = { 0 };

    markup_bytes(&m, "", 0);
    while (text && *text) {
        const uint32_t c = markup_next(&text);
        if (c < ' ')
            put_utf8(&m, PICTURES + c);
        else if (c == 127)
            put_utf8(&m, OF_DELETE);
        else if (is_hidden(c))
            markup_put(&m, "<U+%04X>", (unsigned)c);
        else
            put_utf8(&m, c);
    }
    return m.bytes;
}

void markup_text(struct markup *m, const char *text)
{
    char *visible = markup_visible(text);

    for (const char *p = visible; *p; p++)
        switch (*p) {
        case '&': markup_put(m, "&amp;"); break;
        case '<': markup_put(m, "&lt;"); break;
        case '>': markup_put(m, "&gt;"); break;
        case '"': markup_put(m, "&quot;"); break;
        default: markup_bytes(m, p, 1); break;
        }
    free(visible);
}

/*
 * Other languages
 */

/* A script ends at the first </, whatever it means in JSON; and <!-- begins a comment. */
void markup_json(struct markup *m, const json_t *value)
{
    char *text =
        json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));

    for (const char *p = text; p && *p; p++)
        if (*p == '<' || *p == '>' || *p == '&')
            markup_put(m, "\\u%04x", (unsigned)*p);
        else
            markup_bytes(m, p, 1);
    free(text);
}

void markup_base64(struct markup *m, const void *bytes, size_t n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = bytes;

    for (size_t i = 0; i < n; i += 3) {
        const size_t   left = n - i;
        const uint32_t x = (uint32_t)p[i] << 16 |
                           (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                           (left > 2 ? p[i + 2] : 0);
        const char text[4] = { digits[x >> 18], digits[x >> 12 & 63],
                               left > 1 ? digits[x >> 6 & 63] : '=',
                               left > 2 ? digits[x & 63] : '=' };
        markup_bytes(m, text, sizeof text);
    }
}

void markup_csv(struct markup *m, const char *cell)
{
    char      *end;
    const bool number = (strtod(cell, &end), *cell && !*end);
    const bool formula = *cell && !number && strchr("=+-@\t\r", *cell) != NULL;
    const bool quoted = strpbrk(cell, ",\"\r\n") != NULL;

    if (quoted) markup_put(m, "\"");
    if (formula) markup_put(m, "'");
    for (; *cell; cell++) {
        if (*cell == '"') markup_put(m, "\"");
        markup_bytes(m, cell, 1);
    }
    if (quoted) markup_put(m, "\"");
}
