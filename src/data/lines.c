/* lines.c -- the lines of a reader. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "data/lines.h"

enum { CHUNK = 1 << 16 };

void lines_open(struct line_reader *l, foci_ctx *ctx, const foci_reader *reader)
{
    enum { SHOWN = 200 }; /* the end of a path says more than its beginning */
    const char  *name = reader->name ? reader->name : "text";
    const size_t bytes = strlen(name);

    l->ctx = ctx;
    l->reader = *reader;
    snprintf(l->name, sizeof l->name, "%s%s", bytes > SHOWN ? "..." : "",
             name + (bytes > SHOWN ? bytes - SHOWN : 0));
}

foci_status lines_fail(const struct line_reader *l, const struct data_line *line,
                       const char *format, ...)
{
    char    text[400], where[40] = "";
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (line) snprintf(where, sizeof where, ", line %lld", (long long)line->number + 1);
    return ctx_fail(l->ctx, FOCI_ERR_FILE, "%s%s: %s", *l->name ? l->name : "the data",
                    where, text);
}

static const char *reason(const struct line_reader *l)
{
    const char *why = l->reader.error ? l->reader.error(l->reader.user) : NULL;
    return why ? why : "the reason is not known";
}

/* Make room for more bytes behind those that are there. */
static foci_status reserve(struct line_reader *l)
{
    if (l->begin) {
        memmove(l->buffer, l->buffer + l->begin, (size_t)(l->end - l->begin));
        l->end -= l->begin;
        l->begin = 0;
    }
    if (l->cap - l->end >= CHUNK) return FOCI_OK;

    const int64_t cap = max64((int64_t)4 * CHUNK, 2 * l->cap);
    char         *bigger = ctx_alloc(l->ctx, (size_t)cap, 1);
    if (!bigger) return FOCI_ERR_MEMORY;
    if (l->end) memcpy(bigger, l->buffer, (size_t)l->end);
    if (l->buffer) ctx_free(l->ctx, l->buffer, (size_t)l->cap, 1);
    l->buffer = bigger;
    l->cap = cap;
    return FOCI_OK;
}

static foci_status read_more(struct line_reader *l)
{
    if (l->cap - l->end < CHUNK) TRY(reserve(l));
    const int64_t n =
        l->reader.read(l->reader.user, l->buffer + l->end, l->cap - l->end);
    if (n < 0) return lines_fail(l, NULL, "cannot be read: %s", reason(l));
    if (n > l->cap - l->end)
        return lines_fail(l, NULL,
                          "its reader gave %lld bytes where %lld were asked for",
                          (long long)n, (long long)(l->cap - l->end));
    l->end += n;
    l->ended = n == 0;
    return FOCI_OK;
}

static bool begins(const struct line_reader *l, const char *what)
{
    const int64_t n = (int64_t)strlen(what);
    return l->end - l->begin >= n && !memcmp(l->buffer + l->begin, what, (size_t)n);
}

void lines_take(struct line_reader *l, int64_t bytes)
{
    l->begin += bytes;
    l->offset += bytes;
}

/* What a text editor or a generator put before the first line. */
static foci_status start(struct line_reader *l)
{
    struct data_line line;

    if (l->started) return FOCI_OK;
    while (!l->ended && l->end - l->begin < 16)
        TRY(read_more(l));
    if (begins(l, "\xef\xbb\xbf")) lines_take(l, 3);
    l->started = true;
    if (l->header && begins(l, "# foci ")) TRY(lines_next(l, false, &line));
    return FOCI_OK;
}

/* Where a piece ends: before its last blank, or between two characters. */
static int64_t cut(const char *text)
{
    int64_t n = PIECE_MOST;

    while (n > 0 && text[n] != ' ')
        n--;
    if (n > 0) return n;
    for (n = PIECE_MOST; ((unsigned char)text[n] & 0xc0) == 0x80 && n > PIECE_MOST - 4;)
        n--;
    return n;
}

/* Take `bytes` of which `skip` are no text but the end of the line. */
static void take(struct line_reader *l, struct data_line *line, int64_t bytes,
                 int64_t skip)
{
    const char *text = l->buffer + l->begin;

    *line = (struct data_line){ .text = text,
                                .bytes = bytes,
                                .number = l->number,
                                .offset = l->offset,
                                .closed = skip > 0 };
    if (skip && bytes && text[bytes - 1] == '\r') line->bytes--;
    lines_take(l, bytes + skip);
    l->number += skip;
}

foci_status lines_next(struct line_reader *l, bool pieces, struct data_line *line)
{
    int64_t seen = 0;

    TRY(start(l));
    for (;;) {
        const int64_t there = l->end - l->begin;
        assert(!there || l->buffer);
        const char *text = there ? l->buffer + l->begin : NULL;
        const char *newline = text && there > seen
                                  ? memchr(text + seen, '\n', (size_t)(there - seen))
                                  : NULL;

        seen = newline ? newline - text : there;
        if (pieces && seen > PIECE_MOST) {
            take(l, line, cut(text), 0);
            return FOCI_OK;
        }
        if (newline) {
            take(l, line, seen, 1);
            return FOCI_OK;
        }
        if (l->ended) break;
        if (seen > LINE_MOST) {
            *line = (struct data_line){ .number = l->number };
            return lines_fail(
                l, line,
                "is longer than %d bytes; examples stand in lines of their "
                "own",
                LINE_MOST);
        }
        TRY(read_more(l));
    }
    *line = (struct data_line){ .number = l->number, .offset = l->offset };
    if (seen) take(l, line, seen, 0);
    return FOCI_OK;
}

foci_status lines_more(struct line_reader *l, bool *more)
{
    TRY(start(l));
    while (!l->ended && l->begin == l->end)
        TRY(read_more(l));
    *more = l->begin < l->end;
    return FOCI_OK;
}

foci_status lines_look(struct line_reader *l, int64_t want, const char **at,
                       int64_t *there)
{
    while (!l->ended && l->end - l->begin < want)
        TRY(read_more(l));
    *there = min64(l->end - l->begin, want);
    *at = *there ? l->buffer + l->begin : "";
    return FOCI_OK;
}

foci_status lines_rewind(struct line_reader *l)
{
    if (!l->reader.rewind)
        return lines_fail(
            l, NULL,
            "is read more than once, and its reader cannot go back to its "
            "start; give a file, or memory for all of it");
    if (l->reader.rewind(l->reader.user))
        return lines_fail(l, NULL, "cannot be read from its start again: %s", reason(l));
    l->begin = l->end = l->offset = l->number = 0;
    l->ended = l->started = false;
    return FOCI_OK;
}

foci_status lines_measure(struct line_reader *l, int64_t *bytes)
{
    while (!l->ended) {
        lines_take(l, l->end - l->begin);
        TRY(read_more(l));
    }
    lines_take(l, l->end - l->begin);
    *bytes = l->offset;
    return lines_rewind(l);
}

void lines_close(struct line_reader *l) { foci_reader_close(&l->reader); }

void lines_free(struct line_reader *l)
{
    lines_close(l);
    if (l->buffer) ctx_free(l->ctx, l->buffer, (size_t)l->cap, 1);
    l->buffer = NULL;
}
