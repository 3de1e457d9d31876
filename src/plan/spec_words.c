/* spec_words.c -- names, words and numbers of specs, and how messages show them. */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/spec.h"

bool span_is(struct text_span a, const char *text)
{
    return strlen(text) == a.len && !memcmp(a.s, text, a.len);
}

/* A byte inside a character of UTF-8. */
static bool follows(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

/* Bytes of the character at s, of n at most; 0: none that can be shown. */
static size_t character(const char *s, size_t n)
{
    const unsigned char c = (unsigned char)*s;
    const size_t        len = c < 0x80   ? 1
                              : c < 0xc2 ? 0
                              : c < 0xe0 ? 2
                              : c < 0xf0 ? 3
                              : c < 0xf5 ? 4
                                         : 0;

    if (c < 32 || c == 127 || len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if (!follows(s[i])) return 0;
    return len;
}

static struct quote shorten(struct text_span a, const char *mark)
{
    struct quote q;
    const size_t room = sizeof q.text - 6; /* two marks, three dots, the end */
    size_t       n = a.len < room ? a.len : room;
    size_t       to = (size_t)snprintf(q.text, sizeof q.text, "%s", mark);

    while (n < a.len && n && follows(a.s[n]))
        n--; /* no half of a character */
    for (size_t i = 0; i < n;) {
        const size_t len = character(a.s + i, n - i);
        if (len)
            memcpy(q.text + to, a.s + i, len);
        else
            q.text[to] = '?';
        to += len ? len : 1;
        i += len ? len : 1;
    }
    snprintf(q.text + to, sizeof q.text - to, "%s%s", n < a.len ? "..." : "", mark);
    return q;
}

struct quote span_quote(struct text_span a) { return shorten(a, "\""); }

struct quote span_bare(struct text_span a) { return shorten(a, ""); }

bool word_at(const char *words, int i, struct text_span *out)
{
    for (const char *s = words;; s++) {
        const size_t len = strcspn(s, "|");
        if (i-- == 0) {
            *out = (struct text_span){ s, len };
            return true;
        }
        s += len;
        if (!*s) return false;
    }
}

static const char *skip_digits(const char *s)
{
    while (*s >= '0' && *s <= '9')
        s++;
    return s;
}

/* [sign] digits [. digits] [e [sign] digits], with a digit before the exponent. */
static bool is_number(const char *s)
{
    if (*s == '-' || *s == '+') s++;
    const char *whole = s;
    s = skip_digits(s);
    int64_t n_digits = s - whole;
    if (*s == '.') {
        const char *fraction = ++s;
        s = skip_digits(s);
        n_digits += s - fraction;
    }
    if (!n_digits) return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        if (*s == '-' || *s == '+') s++;
        const char *exponent = s;
        s = skip_digits(s);
        if (s == exponent) return false;
    }
    return !*s;
}

/* What strtod() and printf() put between whole and fraction. */
static const char *point(void)
{
    const char *p = localeconv()->decimal_point;
    return p && *p ? p : ".";
}

bool number_parse(struct text_span a, double *out)
{
    char text[64], local[80];
    if (a.len >= sizeof text) return false;
    memcpy(text, a.s, a.len);
    text[a.len] = 0;
    if (strlen(text) != a.len || !is_number(text)) return false;

    const size_t whole = strcspn(text, ".");
    if (text[whole])
        snprintf(local, sizeof local, "%.*s%s%s", (int)whole, text, point(),
                 text + whole + 1);
    else
        snprintf(local, sizeof local, "%s", text);
    *out = strtod(local, NULL);
    return isfinite(*out);
}

void number_print(double x, char text[32])
{
    if (x == floor(x) && fabs(x) < 0x1p53) {
        snprintf(text, 32, "%.0f", x);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    const char *p = point();
    char       *found = strcmp(p, ".") ? strstr(text, p) : NULL;
    if (found) {
        *found = '.';
        memmove(found + 1, found + strlen(p), strlen(found + strlen(p)) + 1);
    }
}
