/* write.c -- write .npy and .safetensors files of floats, and files of bytes.
 *
 * A file is written beside its target under a temporary name, synced and renamed,
 * so the target is at all times the old file or the new one, whole.  The new one takes
 * the permissions of the old one, and where those forbid writing it is not replaced.  A
 * target that is a link stays one: the file behind it is replaced.  A target that is no
 * regular file (/dev/null, a pipe) is written to directly.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/format.h"

struct file_writer {
    foci_ctx   *ctx;
    const char *path;   /* as given, for messages */
    char       *target; /* links followed */
    char       *temp;   /* NULL: written to directly */
    int         fd;
};

static foci_status fail(struct file_writer *w, const char *what)
{
    return file_fail(w->ctx, w->path, "%s: %s", what, strerror(errno));
}

/* Make a file that was not there before, in the directory of the target.  Its name
 * is short, so that any name the target can have will do. */
static foci_status open_temp(struct file_writer *w, mode_t mode)
{
    const char  *slash = strrchr(w->target, '/');
    const size_t dir = slash ? (size_t)(slash - w->target) + 1 : 0, cap = dir + 64;

    w->temp = malloc(cap);
    if (!w->temp) return ctx_fail(w->ctx, FOCI_ERR_MEMORY, "no memory for a file name");
    memcpy(w->temp, w->target, dir);
    for (int n = 0; n < 1000; n++) {
        snprintf(w->temp + dir, cap - dir, ".foci-%ld-%d.tmp", (long)getpid(), n);
        w->fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (w->fd >= 0 || errno != EEXIST) break;
    }
    if (w->fd >= 0) return FOCI_OK;

    const foci_status status = fail(w, "cannot be made");
    free(w->temp);
    w->temp = NULL;
    return status;
}

static foci_status open_new(struct file_writer *w)
{
    struct stat st;

    if (lstat(w->path, &st) == 0)
        return file_fail(w->ctx, w->path, "is a link to a file that is not there");
    w->target = malloc(strlen(w->path) + 1);
    if (!w->target)
        return ctx_fail(w->ctx, FOCI_ERR_MEMORY, "no memory for a file name");
    strcpy(w->target, w->path);
    return open_temp(w, 0666);
}

/* Nobody may see in the new file, not even for a moment, what the old one hid. */
static foci_status open_instead(struct file_writer *w, mode_t mode)
{
    if (faccessat(AT_FDCWD, w->path, W_OK, AT_EACCESS))
        return fail(w, "cannot be written");
    w->target = realpath(w->path, NULL);
    if (!w->target) return fail(w, "cannot be resolved");
    TRY(open_temp(w, 0600));
    (void)fchmod(w->fd, mode & 0777);
    return FOCI_OK;
}

static foci_status writer_open(struct file_writer *w, foci_ctx *ctx, const char *path)
{
    struct stat st;
    const bool  there = path && stat(path, &st) == 0;

    *w = (struct file_writer){ .ctx = ctx, .path = path, .fd = -1 };
    if (!path) return ctx_fail(ctx, FOCI_ERR_ARG, "a file to write needs a name");
    if (!there) return open_new(w);
    if (S_ISDIR(st.st_mode))
        return file_fail(ctx, path, "is a directory; the name of a file is needed");
    if (S_ISREG(st.st_mode)) return open_instead(w, st.st_mode);
    w->fd = open(path, O_WRONLY | O_CLOEXEC);
    return w->fd < 0 ? fail(w, "cannot be opened") : FOCI_OK;
}

/* A pipe may wait for its reader for ever, so that a signal ends it.  It takes pieces of
 * PIPE_BUF whole or not at all: none that waits has begun. */
static foci_status put(struct file_writer *w, const void *data, size_t bytes)
{
    enum { MOST = 1 << 28 };
    const size_t most = w->temp ? MOST : PIPE_BUF;
    const char  *p = data;
    while (bytes) {
        const ssize_t n = write(w->fd, p, bytes < most ? bytes : most);
        if (n < 0 && errno == EINTR && w->temp) continue;
        if (n < 0) return fail(w, "cannot be written");
        p += n;
        bytes -= (size_t)n;
    }
    return FOCI_OK;
}

/* Both formats are written least byte first.  Elements of `size` bytes. */
static foci_status put_elements(struct file_writer *w, const void *data, int64_t count,
                                size_t size)
{
    const unsigned char *from = data;

    if (host_is_little()) return put(w, data, (size_t)count * size);

    unsigned char run[4096];
    while (count) {
        const int64_t n = min64(count, (int64_t)(sizeof run / size));
        for (size_t i = 0; i < (size_t)n * size; i++)
            run[i] = from[i - i % size + (size - 1 - i % size)];
        TRY(put(w, run, (size_t)n * size));
        from += (size_t)n * size;
        count -= n;
    }
    return FOCI_OK;
}

/* Without this the new name may outlive a crash that its data did not.  Some file
 * systems cannot sync a directory; the file is there all the same. */
static void sync_directory(const char *target)
{
    const char  *slash = strrchr(target, '/');
    const size_t len = slash ? (size_t)(slash - target) + 1 : 1;
    char        *dir = malloc(len + 1);
    if (!dir) return;
    memcpy(dir, slash ? target : ".", len);
    dir[len] = '\0';
    const int fd = open(dir, O_RDONLY | O_CLOEXEC);
    free(dir);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

/* Give the file its name if `status` is good, remove it if not. */
static foci_status writer_close(struct file_writer *w, foci_status status)
{
    if (!status && w->temp && fsync(w->fd) != 0) status = fail(w, "cannot be synced");
    if (w->fd >= 0 && close(w->fd) != 0 && !status)
        status = fail(w, "cannot be written");
    if (!status && w->temp && rename(w->temp, w->target) != 0)
        status = fail(w, "cannot be renamed into place");
    if (w->temp) {
        if (status)
            unlink(w->temp);
        else
            sync_directory(w->target);
    }
    free(w->temp);
    free(w->target);
    return status;
}

foci_status foci_file_write(foci_ctx *ctx, const char *path, const void *data,
                            size_t bytes)
{
    struct file_writer w;

    if (!path || (bytes && !data))
        return ctx_fail(ctx, FOCI_ERR_ARG, "a file to write needs a name and data");
    foci_status status = writer_open(&w, ctx, path);
    if (!status) status = put(&w, data, bytes);
    return writer_close(&w, status);
}

/* The product of a shape that is to be written. */
static foci_status check_shape(foci_ctx *ctx, const char *path, int n_dims,
                               const int64_t *shape, const float *data, int64_t *count)
{
    size_t bytes;
    if (n_dims < 0 || n_dims > FOCI_MAX_DIMS || (n_dims && !shape) ||
        !shape_size(n_dims, shape, FOCI_ELTYPE_F32, count, &bytes) || (bytes && !data))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "%.200s: an array to write needs data, up to 8 axes and a size "
                        "that can be counted",
                        path ? path : "no name");
    return FOCI_OK;
}

/* The header of version 1.0, padded so that the data is 64-byte aligned. */
static size_t npy_header(char *out, size_t cap, int n_dims, const int64_t *shape)
{
    size_t n = 10;
    n += (size_t)snprintf(out + n, cap - n,
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int a = 0; a < n_dims; a++)
        n += (size_t)snprintf(out + n, cap - n, a ? ", %lld" : "%lld",
                              (long long)shape[a]);
    n += (size_t)snprintf(out + n, cap - n, n_dims == 1 ? ",), }" : "), }");
    while ((n + 1) % 64)
        out[n++] = ' ';
    out[n++] = '\n';
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)((n - 10) & 255);
    out[9] = (char)((n - 10) >> 8);
    return n;
}

static foci_status put_npy(struct file_writer *w, int n_dims, const int64_t *shape,
                           const float *data, int64_t count)
{
    char         header[512];
    const size_t n = npy_header(header, sizeof header, n_dims, shape);

    TRY(put(w, header, n));
    return put_elements(w, data, count, sizeof *data);
}

foci_status foci_npy_write(foci_ctx *ctx, const char *path, int n_dims,
                           const int64_t *shape, const float *data)
{
    int64_t            count = 0;
    struct file_writer w;

    TRY(check_shape(ctx, path, n_dims, shape, data, &count));
    foci_status status = writer_open(&w, ctx, path);
    if (!status) status = put_npy(&w, n_dims, shape, data, count);
    return writer_close(&w, status);
}

foci_status foci_npy_send(foci_ctx *ctx, int fd, int n_dims, const int64_t *shape,
                          const float *data)
{
    int64_t            count = 0;
    char               name[32];
    struct file_writer w = { .ctx = ctx, .path = name, .fd = fd };

    snprintf(name, sizeof name, "descriptor %d", fd);
    TRY(check_shape(ctx, name, n_dims, shape, data, &count));
    return put_npy(&w, n_dims, shape, data, count);
}

/* One entry of the header; NULL without memory. */
static json_t *describe(const foci_array *a, int64_t begin, int64_t end)
{
    json_t *entry =
        json_pack("{s:s, s:[], s:[I,I]}", "dtype", safetensors_dtype(a->type), "shape",
                  "data_offsets", (json_int_t)begin, (json_int_t)end);
    json_t *shape = json_object_get(entry, "shape");

    for (int i = 0; i < a->n_dims; i++)
        if (json_array_append_new(shape, json_integer(a->shape[i]))) {
            json_decref(entry);
            return NULL;
        }
    return entry;
}

/* Whether text is UTF-8, as JSON wants it. */
static bool is_utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    while (*s) {
        const int n = *s < 0x80   ? 0
                      : *s < 0xc2 ? -1
                      : *s < 0xe0 ? 1
                      : *s < 0xf0 ? 2
                                  : 3;
        uint32_t  c = *s++;
        if (n < 0) return false;
        if (n > 0) c &= 0x3fu >> n;
        for (int i = 0; i < n; i++, s++) {
            if ((*s & 0xc0) != 0x80) return false;
            c = c << 6 | (*s & 0x3f);
        }
        if (n == 2 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) return false;
        if (n == 3 && (c < 0x10000 || c > 0x10ffff)) return false;
    }
    return true;
}

/* Add a tensor whose data begins at byte *at, and move that to its end. */
static foci_status add_entry(foci_ctx *ctx, const char *path, const foci_array *a,
                             int64_t *at, json_t *root)
{
    const int64_t size = (int64_t)eltype_bytes(a->type);

    if (a->count > (INT64_MAX - *at) / size)
        return ctx_fail(ctx, FOCI_ERR_ARG, "%.200s: more bytes than can be counted",
                        path);
    if (!a->name || strcmp(a->name, "__metadata__") == 0 ||
        json_object_get(root, a->name))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "%.200s: tensor name '%.64s' is reserved or given twice", path,
                        a->name ? a->name : "");
    if (!is_utf8(a->name))
        return ctx_fail(ctx, FOCI_ERR_ARG, "%.200s: tensor name '%.64s' is not UTF-8",
                        path, a->name);
    const int64_t end = *at + size * a->count;
    if (json_object_set_new(root, a->name, describe(a, *at, end)))
        return ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory for a header");
    *at = end;
    return FOCI_OK;
}

struct header {
    char  *text; /* of the context */
    size_t bytes;
};

/* json_dumps() would leave out what it has no room for; a buffer of the right size has
 * room for all. */
static foci_status print_header(foci_ctx *ctx, const json_t *root, struct header *h)
{
    h->bytes = json_dumpb(root, NULL, 0, JSON_COMPACT);
    if (!h->bytes) return ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory for a header");
    h->text = ctx_alloc(ctx, h->bytes, 1);
    if (!h->text) return FOCI_ERR_MEMORY;
    if (json_dumpb(root, h->text, h->bytes, JSON_COMPACT) == h->bytes) return FOCI_OK;
    ctx_free(ctx, h->text, h->bytes, 1);
    return ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory for a header");
}

static foci_status make_header(foci_ctx *ctx, const char *path, const foci_array *arrays,
                               int n, json_t *metadata, struct header *h)
{
    json_t     *root = json_object();
    int64_t     at = 0;
    foci_status status = FOCI_OK;

    if (metadata && json_object_set(root, "__metadata__", metadata))
        status = ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory for a header");
    for (int i = 0; i < n && !status; i++)
        status = add_entry(ctx, path, &arrays[i], &at, root);
    if (!status) status = print_header(ctx, root, h);
    json_decref(root);
    return status;
}

static foci_status put_header(struct file_writer *w, const struct header *h)
{
    static const char blanks[8] = "        ";
    unsigned char     length[8];
    const size_t      padded = (h->bytes + 7) / 8 * 8;

    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    TRY(put(w, length, sizeof length));
    TRY(put(w, h->text, h->bytes));
    return put(w, blanks, padded - h->bytes);
}

foci_status safetensors_write(foci_ctx *ctx, const char *path, const foci_array *arrays,
                              int n, json_t *metadata)
{
    struct header      h = { 0 };
    struct file_writer w;

    TRY(make_header(ctx, path, arrays, n, metadata, &h));
    foci_status status = writer_open(&w, ctx, path);
    if (!status) status = put_header(&w, &h);
    for (int i = 0; i < n && !status; i++)
        status = put_elements(&w, arrays[i].data, arrays[i].count,
                              eltype_bytes(arrays[i].type));
    ctx_free(ctx, h.text, h.bytes, 1);
    return writer_close(&w, status);
}

/* Arrays of floats, with their sizes checked. */
static foci_status take_named(foci_ctx *ctx, const char *path, const foci_named *named,
                              int n, foci_array *arrays)
{
    for (int i = 0; i < n; i++) {
        const foci_named *a = &named[i];
        foci_array       *to = &arrays[i];
        *to = (foci_array){ FOCI_SIZED(foci_array), .name = a->name,
                            .type = FOCI_ELTYPE_F32, .n_dims = a->n_dims,
                            .data = a->data };
        TRY(check_shape(ctx, path, a->n_dims, a->shape, a->data, &to->count));
        for (int d = 0; d < a->n_dims; d++)
            to->shape[d] = a->shape[d];
    }
    return FOCI_OK;
}

foci_status foci_safetensors_write(foci_ctx *ctx, const char *path,
                                   const foci_named *arrays, int n)
{
    if (!ctx || !path || n < 0 || (n && !arrays))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "foci_safetensors_write: a context, a path and %d arrays are "
                        "needed; 0 or more can be written",
                        n);
    foci_array *all = n ? ctx_alloc(ctx, (size_t)n, sizeof *all) : NULL;
    if (n && !all) return FOCI_ERR_MEMORY;
    foci_status status = take_named(ctx, path, arrays, n, all);
    if (!status) status = safetensors_write(ctx, path, all, n, NULL);
    if (all) ctx_free(ctx, all, (size_t)n, sizeof *all);
    return status;
}
