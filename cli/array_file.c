/* array_file.c -- files of arrays by name. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/array_file.h"

static char *joined(const char *a, const char *b, size_t n)
{
    char *text = need(strlen(a) + n + 1, 1);

    strcpy(text, a);
    memcpy(text + strlen(a), b, n);
    return text;
}

/* A pipe can be read once; *first remembers for what. */
static int claim_stdin(const struct args *a, const char *prefix)
{
    static char first[64];

    if (*first)
        return usage_error(a, "%s-: standard input can be read once, and %s- reads it",
                           prefix, first);
    if (isatty(STDIN_FILENO) == 1)
        return usage_error(a,
                           "%s-: standard input is a terminal; an array comes from a "
                           "file or a pipe",
                           prefix);
    snprintf(first, sizeof first, "%s", prefix);
    return EXIT_OK;
}

static int failed(const struct array_file *f)
{
    const char *why = foci_errmsg(f->ctx);
    const bool  named = strncmp(why, f->path, strlen(f->path)) == 0;

    return failure(f->a, "%s%s", f->shown, named ? why + strlen(f->path) : why);
}

static int read_stdin(struct array_file *f)
{
    foci_reader reader;

    int code = text_open(f->a, "-", &reader);
    if (code) return code;
    reader.name = f->path;
    const foci_status status = foci_file_read(f->ctx, &reader, &f->file);
    foci_reader_close(&reader);
    return status ? failed(f) : EXIT_OK;
}

static int open_any(struct array_file *f, const char *prefix)
{
    char name[NPZ_NAME];
    int  code = EXIT_OK;

    if (strcmp(f->path, "-") == 0) {
        code = claim_stdin(f->a, prefix);
        if (!code) code = read_stdin(f);
    } else if (npz_is(f->path)) {
        code = npz_list(f->a, f->path, f->shown, &f->npz);
        while (!code && npz_name(f->npz, f->n, name))
            f->n++;
        return code;
    } else if (foci_file_open(f->ctx, f->path, &f->file)) {
        code = failed(f);
    }
    if (!code) f->n = foci_file_count(f->file);
    return code;
}

int array_file_open(const struct args *a, foci_ctx *ctx, const char *prefix,
                    const char *text, struct array_file *f)
{
    const char  *name = array_of_path(text);
    const size_t n = name ? (size_t)(name - 1 - text) : strlen(text);

    *f = (struct array_file){ .a = a, .ctx = ctx, .wanted = name };
    f->path = joined("", text, n);
    f->shown = joined(prefix, f->path, n);
    return open_any(f, prefix);
}

const char *array_file_name(struct array_file *f, int i)
{
    foci_array array = { FOCI_SIZED(foci_array) };

    if (f->npz) return npz_name(f->npz, i, f->name) ? f->name : "";
    return foci_file_array(f->file, i, &array) ? "" : array.name;
}

int array_file_get(struct array_file *f, int i, foci_array *out)
{
    foci_reader reader;

    if (f->npz) {
        foci_file_free(f->file);
        f->file = NULL;
        const int code = npz_member(f->a, f->npz, i, &reader);
        if (code) return code;
        const foci_status status = foci_file_read(f->ctx, &reader, &f->file);
        foci_reader_close(&reader);
        if (status) return failure(f->a, "%s", foci_errmsg(f->ctx));
        i = 0;
    }
    const foci_status status = foci_file_array(f->file, i, out);
    return status ? library_error(f->a, f->ctx, status, f->shown) : EXIT_OK;
}

/* The names there are, as far as there is room. */
static const char *list_names(struct array_file *f, char text[256])
{
    size_t n = 0;

    for (int i = 0; i < f->n; i++) {
        if (n > 150) {
            snprintf(text + n, 256 - n, ", ...");
            break;
        }
        n += (size_t)snprintf(text + n, 256 - n, "%s%.64s", i ? ", " : "",
                              array_file_name(f, i));
    }
    return text;
}

static int not_there(struct array_file *f, const char *name)
{
    char         hint[96], names[256] = "";
    struct guess near = { .word = name };
    char         best[NPZ_NAME] = "";

    for (int i = 0; i < f->n; i++) {
        guess_offer(&near, array_file_name(f, i));
        if (near.best && near.best != best) {
            snprintf(best, sizeof best, "%s", near.best);
            near.best = best;
        }
    }
    if (!f->n) return failure(f->a, "%s: holds no array", f->shown);
    failure(f->a, "%s%s%s: none of its %d arrays is called '%s'%s; it has %s%s%s%s",
            f->shown, f->wanted ? ":" : "", f->wanted ? f->wanted : "", f->n, name,
            guess_hint(&near, hint, sizeof hint), list_names(f, names),
            f->wanted ? "" : ": name one as ", f->wanted ? "" : f->path,
            f->wanted ? "" : ":NAME");
    return EXIT_FAILED;
}

int array_file_find(struct array_file *f, const char *name)
{
    const char *const wanted = f->wanted ? f->wanted : name;

    if (f->n == 1 && !*array_file_name(f, 0) && f->wanted) {
        failure(f->a, "%s:%s: a .npy file has one array, and no name for it", f->shown,
                f->wanted);
        return -1;
    }
    for (int i = 0; i < f->n; i++)
        if ((f->n == 1 && !f->wanted) || strcmp(array_file_name(f, i), wanted) == 0)
            return i;
    not_there(f, wanted);
    return -1;
}

void array_file_close(struct array_file *f)
{
    foci_file_free(f->file);
    npz_free(f->npz);
    free(f->path);
    free(f->shown);
}
