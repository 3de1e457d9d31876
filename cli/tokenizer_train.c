/* tokenizer_train.c -- foci tokenizer train. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/gzip.h"
#include "cli/tokenizer.h"

/* A file among others, whose reading is seen. */
struct watched {
    foci_reader      inner;
    struct progress *progress;
    int64_t          before; /* bytes of the files before it */
};

static int64_t read_watched(void *user, void *to, int64_t bytes)
{
    struct watched *w = user;
    const int64_t   n = w->inner.read(w->inner.user, to, bytes);

    progress_tick(w->progress, (w->before + gzip_offset(&w->inner)) / 1000000,
                  w->inner.name);
    return n;
}

static const char *error_watched(void *user)
{
    struct watched *w = user;
    return w->inner.error(w->inner.user);
}

static int64_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : 0;
}

static int train(const struct args *a, foci_ctx *ctx, const char *kind, int n,
                 struct watched *files, foci_tokenizer **t)
{
    const foci_tokenizer_options options = { FOCI_SIZED(foci_tokenizer_options),
                                             .min_count = opt_int(a, "min-count", 0) };
    struct progress              progress;
    foci_reader                 *readers = need((size_t)n, sizeof *readers);
    int64_t                      total = 0;

    for (int i = 0; i < n; i++) {
        files[i].progress = &progress;
        files[i].before = total;
        total += size_of(opt_nth(a, "data", i));
        readers[i] = (foci_reader){ FOCI_SIZED(foci_reader),
                                    .name = files[i].inner.name, .user = &files[i],
                                    .read = read_watched, .error = error_watched };
    }
    progress_begin(&progress, a, "MB", total / 1000000);
    const foci_status status = foci_tokenizer_train(ctx, kind, &options, readers, n, t);
    progress_end(&progress);
    free(readers);
    return status ? failure(a, "%s", foci_errmsg(ctx)) : EXIT_OK;
}

static int train_on_files(const struct args *a, foci_ctx *ctx, const char *kind, int n,
                          foci_tokenizer **t)
{
    struct watched *files = need((size_t)n, sizeof *files);
    int             opened = 0, code = EXIT_OK;

    for (; opened < n && !code; opened++) {
        const char *path = opt_nth(a, "data", opened);
        const char *why = gzip_open(path, &files[opened].inner);
        if (why) code = failure(a, "%s: cannot be read: %s", path, why);
    }
    if (!code) code = train(a, ctx, kind, n, files, t);
    while (opened-- > 0)
        foci_reader_close(&files[opened].inner);
    free(files);
    return code;
}

static bool ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* What is no .json file is a directory, made if it is not there. */
static int save(const struct args *a, foci_ctx *ctx, const foci_tokenizer *t,
                const char *out)
{
    if (!ends_in(out, ".json") && mkdir(out, 0777) != 0 && errno != EEXIST)
        return failure(a, "%s: cannot be made: %s", out, strerror(errno));
    return foci_tokenizer_save(t, out) ? failure(a, "%s", foci_errmsg(ctx)) : EXIT_OK;
}

int tokenizer_train(const struct args *a, foci_ctx *ctx, const char *kind)
{
    const char     *out = opt_text(a, "out");
    foci_tokenizer *t;
    int             n = 0;

    while (opt_nth(a, "data", n))
        n++;
    if (foci_tokenizer_check(ctx, kind)) return usage_error(a, "%s", foci_errmsg(ctx));
    if (!out) return usage_error(a, "train needs --out, a .json file or a directory");
    if (!n && strcmp(kind, "bytes") != 0)
        return usage_error(a, "train %s needs --data, a text", kind);

    int code = train_on_files(a, ctx, kind, n, &t);
    if (code) return code;
    code = save(a, ctx, t, out);
    if (!code) code = tokenizer_show(a, t);
    foci_tokenizer_free(t);
    return code;
}
