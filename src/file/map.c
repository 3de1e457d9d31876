/* map.c -- open a file of arrays: map it, or take what a reader gives, and see by the first
 * bytes what it is.
 *
 * The mapping is private and read only.  A file that another program shortens
 * while it is mapped ends the process (SIGBUS), as with any mapping; writers that
 * rename, as ours do, never shorten a file in place.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/format.h"

foci_status file_fail(foci_ctx *ctx, const char *path, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    ctx_fail_in(ctx, FOCI_ERR_FILE, path, format, args);
    va_end(args);
    return FOCI_ERR_FILE;
}

size_t eltype_bytes(foci_eltype type)
{
    static const size_t bytes[] = {
        [FOCI_ELTYPE_BOOL] = 1, [FOCI_ELTYPE_I8] = 1,   [FOCI_ELTYPE_U8] = 1,
        [FOCI_ELTYPE_I16] = 2,  [FOCI_ELTYPE_U16] = 2,  [FOCI_ELTYPE_I32] = 4,
        [FOCI_ELTYPE_U32] = 4,  [FOCI_ELTYPE_I64] = 8,  [FOCI_ELTYPE_U64] = 8,
        [FOCI_ELTYPE_F16] = 2,  [FOCI_ELTYPE_BF16] = 2, [FOCI_ELTYPE_F32] = 4,
        [FOCI_ELTYPE_F64] = 8,
    };
    return bytes[type];
}

bool shape_size(int n_dims, const int64_t *shape, foci_eltype type, int64_t *count,
                size_t *bytes)
{
    size_t product = 1, size;
    bool   empty = false;

    for (int a = 0; a < n_dims; a++) {
        if (shape[a] < 0) return false;
        if (shape[a] == 0)
            empty = true;
        else if (!mul_size(product, (size_t)shape[a], &product))
            return false;
    }
    if (!mul_size(product, eltype_bytes(type), &size) || size > INT64_MAX) return false;
    *count = empty ? 0 : (int64_t)product;
    *bytes = empty ? 0 : size;
    return true;
}

static foci_status map_fd(struct foci_file *f, int fd)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return file_fail(f->ctx, f->path, "cannot be examined: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return file_fail(f->ctx, f->path, "is %s; a regular file is needed",
                         S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
    if (st.st_size == 0)
        return file_fail(f->ctx, f->path,
                         "is empty; a .npy or .safetensors file is needed");
    if ((uintmax_t)st.st_size > SIZE_MAX)
        return file_fail(f->ctx, f->path, "is too large for this machine to map");

    const size_t bytes = (size_t)st.st_size;
    void        *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return file_fail(f->ctx, f->path, "cannot be mapped: %s", strerror(errno));
    f->map = map;
    f->bytes = bytes;
    return FOCI_OK;
}

static foci_status map_path(struct foci_file *f)
{
    const int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return file_fail(f->ctx, f->path, "cannot be opened: %s", strerror(errno));
    const foci_status status = map_fd(f, fd);
    close(fd);
    return status;
}

static foci_status read_map(struct foci_file *f)
{
    if (f->bytes >= 6 && memcmp(f->map, "\x93NUMPY", 6) == 0) return npy_read(f);
    if (f->bytes >= 9 && f->map[8] == '{') return safetensors_read(f);
    return file_fail(f->ctx, f->path,
                     "is neither .npy (begins with \\x93NUMPY) nor .safetensors "
                     "(eight bytes of length, then '{')");
}

/*
 * What a reader gives
 */

/* Twice the room, at least `least`. */
static foci_status grow(struct foci_file *f, unsigned char **data, size_t least)
{
    const size_t   room = f->room > least / 2 ? 2 * f->room : least;
    unsigned char *more = room > f->room ? ctx_alloc(f->ctx, room, 1) : NULL;

    if (!more) return FOCI_ERR_MEMORY;
    if (*data && f->bytes) memcpy(more, *data, f->bytes);
    if (*data) ctx_free(f->ctx, *data, f->room, 1);
    f->map = *data = more;
    f->room = room;
    return FOCI_OK;
}

static foci_status take_all(struct foci_file *f, const foci_reader *r)
{
    enum { PIECE = 1 << 16 };
    unsigned char *data = NULL;

    for (;;) {
        if (f->room - f->bytes < PIECE) TRY(grow(f, &data, f->bytes + PIECE));
        const int64_t n = r->read(r->user, data + f->bytes, PIECE);
        if (n < 0)
            return file_fail(f->ctx, f->path, "cannot be read: %s",
                             r->error ? r->error(r->user) : "its reader failed");
        f->bytes += (size_t)n;
        if (!n) break;
    }
    return f->bytes ? FOCI_OK
                    : file_fail(f->ctx, f->path,
                                "is empty; a .npy or .safetensors file is needed");
}

/*
 * Opening
 */

/* From a path, or from a reader. */
static foci_status open_from(foci_ctx *ctx, const char *path, const foci_reader *reader,
                             foci_file **file)
{
    struct foci_file *f = ctx_alloc(ctx, 1, sizeof *f);

    if (!f) return FOCI_ERR_MEMORY;
    f->ctx = ctx;
    f->path_bytes = strlen(path) + 1;

    foci_status status = FOCI_ERR_MEMORY;
    f->path = ctx_alloc(ctx, f->path_bytes, 1);
    if (f->path) {
        memcpy(f->path, path, f->path_bytes);
        status = reader ? take_all(f, reader) : map_path(f);
    }
    if (!status) status = read_map(f);
    if (status) {
        foci_file_free(f);
        return status;
    }
    *file = f;
    return FOCI_OK;
}

foci_status foci_file_open(foci_ctx *ctx, const char *path, foci_file **file)
{
    if (file) *file = NULL;
    if (!ctx || !path || !file)
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "foci_file_open needs a context, a path and a place for the file");
    return open_from(ctx, path, NULL, file);
}

foci_status foci_file_read(foci_ctx *ctx, const foci_reader *reader, foci_file **file)
{
    foci_reader r = { 0 };

    if (file) *file = NULL;
    if (!ctx || !reader || !file)
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "foci_file_read needs a context, a reader and a place for the file");
    TRY(sized_in(ctx, "foci_reader", &r, reader, sizeof r));
    if (!r.read)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "foci_file_read: the reader has no function that reads");
    return open_from(ctx, r.name ? r.name : "text", &r, file);
}

void foci_file_free(foci_file *file)
{
    if (!file) return;
    foci_ctx   *ctx = file->ctx;
    void *const map = (void *)(uintptr_t)file->map;
    if (map && file->room)
        ctx_free(ctx, map, file->room, 1);
    else if (map)
        munmap(map, file->bytes);
    if (file->arrays)
        ctx_free(ctx, file->arrays, (size_t)file->cap, sizeof *file->arrays);
    if (file->path) ctx_free(ctx, file->path, file->path_bytes, 1);
    json_decref(file->header);
    ctx_free(ctx, file, 1, sizeof *file);
}

int foci_file_count(const foci_file *file) { return file->n; }

foci_status foci_file_array(const foci_file *file, int i, foci_array *array)
{
    if (!file) return ctx_fail(NULL, FOCI_ERR_ARG, "foci_file_array: the file is NULL");
    if (i < 0 || i >= file->n)
        return ctx_fail(file->ctx, FOCI_ERR_ARG, "array %d of %s: it holds %d", i,
                        file->path, file->n);
    return sized_out(file->ctx, "foci_array", array, &file->arrays[i], sizeof *array);
}
