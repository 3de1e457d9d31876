/* npz.c -- arrays of NumPy's .npz archives: zip files with a member NAME.npy for each.
 *
 *     local headers and members ... central directory, end of it
 *
 * The directory at the end says where members lie, how long they are and how they are
 * packed: stored as they are, or deflated.  Every number is checked against the file, and
 * what was unpacked against its checksum.
 *
 * PKWARE, "APPNOTE.TXT - .ZIP File Format Specification", 6.3.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "cli/gz.h"

enum { STORED = 0, DEFLATED = 8, CHUNK = 1 << 16, NAME_MOST = 255 };
enum { END_BYTES = 22, COMMENT_MOST = 65535, ENTRY_BYTES = 46, LOCAL_BYTES = 30 };

/* A member that is being read. */
struct member {
    FILE         *file;
    long          begin; /* of its bytes in the file */
    unsigned long packed, bytes, crc;
    int           method;
    unsigned long taken, given, sum; /* of packed, of bytes, checksum so far */
    z_stream      z;
    bool          inflating;
    const char   *why;
    char         *name;
    unsigned char in[CHUNK];
};

static unsigned long number(const unsigned char *p, int bytes)
{
    unsigned long x = 0;
    for (int i = bytes - 1; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

/*
 * The directory
 */

struct archive {
    const char    *path;
    FILE          *file;
    long           bytes;
    unsigned char *entries; /* the central directory */
    unsigned long  n_bytes;
};

static bool read_at(FILE *file, long at, void *to, size_t bytes)
{
    return fseek(file, at, SEEK_SET) == 0 && fread(to, 1, bytes, file) == bytes;
}

/* Where the end of the directory stands in the last bytes of the file; -1: nowhere. */
static long find_end(const unsigned char *tail, long n)
{
    for (long i = n - END_BYTES; i >= 0; i--)
        if (!memcmp(tail + i, "PK\5\6", 4)) return i;
    return -1;
}

static int read_directory(const struct args *a, struct archive *z)
{
    static unsigned char tail[END_BYTES + COMMENT_MOST];

    if (fseek(z->file, 0, SEEK_END) != 0 || (z->bytes = ftell(z->file)) < 0)
        return failure(a, "%s: cannot be read: %s", z->path, strerror(errno));
    const long n = z->bytes < (long)sizeof tail ? z->bytes : (long)sizeof tail;
    if (!read_at(z->file, z->bytes - n, tail, (size_t)n))
        return failure(a, "%s: cannot be read", z->path);
    const long at = find_end(tail, n);
    if (at < 0)
        return failure(a, "%s: is no .npz archive, or one that was cut off", z->path);
    const unsigned long begin = number(tail + at + 16, 4);
    z->n_bytes = number(tail + at + 12, 4);
    if (begin == 0xffffffff)
        return failure(a, "%s: is larger than 4 GiB; write its arrays as .npy files",
                       z->path);
    if (begin > (unsigned long)z->bytes || z->n_bytes > (unsigned long)z->bytes - begin)
        return failure(a, "%s: its directory lies beyond its end", z->path);
    z->entries = need(z->n_bytes + 1, 1);
    if (!read_at(z->file, (long)begin, z->entries, z->n_bytes))
        return failure(a, "%s: cannot be read", z->path);
    return EXIT_OK;
}

/* The entry at `at`, which is moved behind it; NULL: there is none. */
static const unsigned char *next_entry(const struct archive *z, unsigned long *at)
{
    const unsigned char *e = z->entries + *at;

    if (z->n_bytes - *at < ENTRY_BYTES || memcmp(e, "PK\1\2", 4) != 0) return NULL;
    const unsigned long bytes =
        ENTRY_BYTES + number(e + 28, 2) + number(e + 30, 2) + number(e + 32, 2);
    if (bytes > z->n_bytes - *at) return NULL;
    *at += bytes;
    return e;
}

/* Whether the entry is NAME.npy. */
static bool is_called(const unsigned char *e, const char *name)
{
    const size_t n = number(e + 28, 2), m = strlen(name);
    const char  *own = (const char *)e + ENTRY_BYTES;

    return n == m + 4 && !memcmp(own, name, m) && !memcmp(own + m, ".npy", 4);
}

static const unsigned char *find_entry(const struct archive *z, const char *name)
{
    const unsigned char *e;
    unsigned long        at = 0;

    while ((e = next_entry(z, &at)))
        if (is_called(e, name)) return e;
    return NULL;
}

/* The names of all arrays, as far as there is room. */
static const char *list_names(const struct archive *z, char text[200])
{
    const unsigned char *e;
    unsigned long        at = 0;
    int                  n = 0;

    text[0] = '\0';
    while ((e = next_entry(z, &at)) && n < 150) {
        const int len = (int)number(e + 28, 2);
        n += snprintf(text + n, 200 - (size_t)n, "%s%.*s", n ? ", " : "",
                      len > 44  ? 40
                      : len > 4 ? len - 4
                                : len,
                      (const char *)e + ENTRY_BYTES);
    }
    return n ? text : "none";
}

/*
 * Reading a member
 */

static int fail_read(struct member *m, const char *why)
{
    m->why = why;
    return -1;
}

/* More packed bytes into m->in; the result is how many. */
static int64_t take(struct member *m)
{
    const unsigned long left = m->packed - m->taken;
    const size_t        n = left < CHUNK ? left : CHUNK;

    if (n && fread(m->in, 1, n, m->file) != n)
        return fail_read(m, "it ends before its array does");
    m->taken += n;
    return (int64_t)n;
}

static int64_t inflate_some(struct member *m, void *to, unsigned bytes)
{
    m->z.next_out = to;
    m->z.avail_out = bytes;
    while (m->z.avail_out == bytes) {
        if (!m->z.avail_in) {
            const int64_t n = take(m);
            if (n < 0) return -1;
            m->z.next_in = m->in;
            m->z.avail_in = (unsigned)n;
        }
        const int status = inflate(&m->z, Z_NO_FLUSH);
        if (status == Z_STREAM_END) break;
        if (status != Z_OK) return fail_read(m, "its compressed data are damaged");
    }
    return bytes - m->z.avail_out;
}

static int64_t copy_some(struct member *m, void *to, size_t bytes)
{
    const unsigned long left = m->packed - m->taken;
    const size_t        n = left < bytes ? left : bytes;

    if (n && fread(to, 1, n, m->file) != n)
        return fail_read(m, "it ends before its array does");
    m->taken += n;
    return (int64_t)n;
}

static int64_t read_member(void *user, void *to, int64_t bytes)
{
    struct member *m = user;
    const unsigned some = (unsigned)(bytes < 1 << 20 ? bytes : 1 << 20);
    const int64_t  n =
        m->method == STORED ? copy_some(m, to, some) : inflate_some(m, to, some);

    if (n < 0) return n;
    m->given += (unsigned long)n;
    m->sum = crc32(m->sum, to, (unsigned)n);
    if (m->given > m->bytes || (n == 0 && (m->given != m->bytes || m->sum != m->crc)))
        return fail_read(m, "its array is not what its directory says");
    return n;
}

static int rewind_member(void *user)
{
    struct member *m = user;

    m->taken = m->given = 0;
    m->sum = crc32(0, NULL, 0);
    m->z.avail_in = 0;
    if (m->inflating) (void)inflateReset(&m->z);
    if (fseek(m->file, m->begin, SEEK_SET) == 0) return 0;
    return fail_read(m, strerror(errno));
}

static const char *error_member(void *user) { return ((struct member *)user)->why; }

static void close_member(void *user)
{
    struct member *m = user;

    if (m->inflating) (void)inflateEnd(&m->z);
    fclose(m->file);
    free(m->name);
    free(m);
}

/* What the directory says of a member, checked against the file. */
static int check_entry(const struct args *a, const struct archive *z,
                       const unsigned char *e, const char *name, struct member *m)
{
    unsigned char       local[LOCAL_BYTES];
    const unsigned long at = number(e + 42, 4), end = (unsigned long)z->bytes;

    m->method = (int)number(e + 10, 2);
    m->crc = number(e + 16, 4);
    m->packed = number(e + 20, 4);
    m->bytes = number(e + 24, 4);
    if (number(e + 8, 2) & 1) return failure(a, "%s#%s: is encrypted", z->path, name);
    if (m->method != STORED && m->method != DEFLATED)
        return failure(a,
                       "%s#%s: is packed by method %d; accepted are 0 (stored) and 8 "
                       "(deflated)",
                       z->path, name, m->method);
    if (at > end - LOCAL_BYTES || !read_at(z->file, (long)at, local, sizeof local) ||
        memcmp(local, "PK\3\4", 4) != 0)
        return failure(a, "%s#%s: there is no array where the directory says", z->path,
                       name);
    const unsigned long begin =
        at + LOCAL_BYTES + number(local + 26, 2) + number(local + 28, 2);
    if (begin > end || m->packed > end - begin)
        return failure(a, "%s#%s: lies beyond the end of the file", z->path, name);
    m->begin = (long)begin;
    return EXIT_OK;
}

static int open_entry(const struct args *a, struct archive *z, const unsigned char *e,
                      const char *name, foci_reader *reader)
{
    struct member *m = need(1, sizeof *m);
    const size_t   bytes = strlen(z->path) + strlen(name) + 2;

    m->file = z->file;
    if (check_entry(a, z, e, name, m)) {
        free(m);
        return EXIT_FAILED;
    }
    if (m->method == DEFLATED && inflateInit2(&m->z, -MAX_WBITS) != Z_OK)
        no_memory("an array that is compressed");
    m->inflating = m->method == DEFLATED;
    m->name = need(1, bytes);
    snprintf(m->name, bytes, "%s#%s", z->path, name);
    z->file = NULL;
    (void)rewind_member(m);
    *reader = (foci_reader){
        FOCI_SIZED(foci_reader), .name = m->name,         .user = m,
        .read = read_member,     .rewind = rewind_member, .close = close_member,
        .error = error_member
    };
    return EXIT_OK;
}

/*
 * Opening
 */

/* The first of the names, up to NULL, that the archive has. */
static int open_first(const struct args *a, const char *path, const char *const *names,
                      foci_reader *reader)
{
    struct archive z = { .path = path, .file = fopen(path, "rb") };
    char           all[200];
    int            status = EXIT_FAILED;

    if (!z.file) return failure(a, "%s: cannot be opened: %s", path, strerror(errno));
    if (read_directory(a, &z) == EXIT_OK) {
        const unsigned char *e = NULL;
        int                  i = 0;
        for (; names[i] && !(e = find_entry(&z, names[i]));)
            i++;
        status =
            e ? open_entry(a, &z, e, names[i], reader)
              : failure(a, "%s: has no array called %s; it has %s: name one as %s#NAME",
                        path, names[0], list_names(&z, all), path);
    }
    free(z.entries);
    if (z.file) fclose(z.file);
    return status;
}

int npz_open(const struct args *a, const char *path, const char *name,
             foci_reader *reader)
{
    const char *const names[] = { name, NULL };

    if (strlen(name) > NAME_MOST)
        return failure(a, "%s: names of arrays have %d characters at most", path,
                       NAME_MOST);
    return open_first(a, path, names, reader);
}

int npz_open_part(const struct args *a, const char *path, int labels,
                  foci_reader *reader)
{
    static const char *const images[] = { "images", "x", "X", "data", NULL };
    static const char *const answers[] = { "labels", "y", "Y", "target", NULL };

    return open_first(a, path, labels ? answers : images, reader);
}
