/* reader.c -- readers of plain files. */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text/text.h"

struct plain {
    foci_ctx *ctx;
    int       fd, error;
    size_t    bytes;
    char      name[]; /* the path */
};

static int64_t read_plain(void *user, void *to, int64_t bytes)
{
    struct plain *p = user;
    const size_t  most = 1 << 28;
    ssize_t       n;

    do
        n = read(p->fd, to, (uint64_t)bytes < most ? (size_t)bytes : most);
    while (n < 0 && errno == EINTR);
    if (n < 0) p->error = errno;
    return n;
}

static int rewind_plain(void *user)
{
    struct plain *p = user;

    if (lseek(p->fd, 0, SEEK_SET) == 0) return 0;
    p->error = errno;
    return -1;
}

static const char *error_plain(void *user)
{
    const struct plain *p = user;
    return strerror(p->error);
}

static void close_plain(void *user)
{
    struct plain *p = user;

    close(p->fd);
    ctx_free(p->ctx, p, p->bytes, 1);
}

static foci_status open_fd(foci_ctx *ctx, const char *path, int *fd)
{
    struct stat st;

    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd >= 0 && fstat(*fd, &st) == 0 && !S_ISDIR(st.st_mode)) return FOCI_OK;
    const int why = *fd >= 0 ? EISDIR : errno;
    if (*fd >= 0) close(*fd);
    return text_fail(ctx, FOCI_ERR_FILE, path, "cannot be read: %s", strerror(why));
}

foci_status foci_reader_open(foci_ctx *ctx, const char *path, foci_reader *reader)
{
    foci_reader       whole = { FOCI_SIZED(foci_reader), .read = read_plain,
                                .rewind = rewind_plain, .close = close_plain,
                                .error = error_plain };
    const foci_reader none = { 0 }; /* what it is where it cannot be opened */
    int               fd;

    if (!ctx || !path)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_reader_open: %s is NULL",
                        ctx ? "path" : "the context");
    TRY(sized_out(ctx, "foci_reader", reader, &none, sizeof none));
    TRY(open_fd(ctx, path, &fd));
    const size_t  bytes = sizeof(struct plain) + strlen(path) + 1;
    struct plain *p = ctx_alloc(ctx, bytes, 1);
    if (!p) {
        close(fd);
        return FOCI_ERR_MEMORY;
    }
    *p = (struct plain){ .ctx = ctx, .fd = fd, .bytes = bytes };
    strcpy(p->name, path);
    whole.name = p->name;
    whole.user = p;
    return sized_out(ctx, "foci_reader", reader, &whole, sizeof whole);
}

void foci_reader_close(foci_reader *reader)
{
    if (!reader) return;
    if (reader->close) reader->close(reader->user);
    *reader = (foci_reader){ .size = reader->size };
}
