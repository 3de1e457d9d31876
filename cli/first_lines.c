/* first_lines.c -- the first lines of a file, as a reader of its own. */
#include <stdlib.h>
#include <string.h>

#include "cli/gz.h"

struct first_lines {
    foci_reader from;
    int64_t     lines, left;
};

static int64_t read_first(void *user, void *to, int64_t bytes)
{
    struct first_lines *f = user;

    if (!f->left) return 0;
    const int64_t n = f->from.read(f->from.user, to, bytes);
    const char   *at = to, *end = at + (n > 0 ? n : 0);
    while (f->left && (at = memchr(at, '\n', (size_t)(end - at)))) {
        at++;
        f->left--;
    }
    return f->left ? n : at - (const char *)to;
}

static int rewind_first(void *user)
{
    struct first_lines *f = user;

    f->left = f->lines;
    return f->from.rewind ? f->from.rewind(f->from.user) : -1;
}

static void close_first(void *user)
{
    struct first_lines *f = user;

    foci_reader_close(&f->from);
    free(f);
}

static const char *error_first(void *user)
{
    const struct first_lines *f = user;
    return f->from.error ? f->from.error(f->from.user) : "it cannot be read";
}

int text_open_first(const struct args *a, const char *path, int64_t lines,
                    foci_reader *reader)
{
    foci_reader from = { 0 };

    const int code = text_open(a, path, lines ? &from : reader);
    if (code || !lines) return code;
    struct first_lines *f = need(1, sizeof *f);
    *f = (struct first_lines){ from, lines, lines };
    *reader = (foci_reader){
        FOCI_SIZED(foci_reader), .name = from.name,      .user = f,
        .read = read_first,      .rewind = rewind_first, .close = close_first,
        .error = error_first
    };
    return EXIT_OK;
}
