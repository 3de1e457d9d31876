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

enum { STORED = 0, DEFLATED = 8, CHUNK = 1 << 16 };
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

struct npz {
    const char    *path, *shown; /* shown: what messages begin with */
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

static int read_directory(const struct args *a, struct npz *z)
{
    static unsigned char tail[END_BYTES + COMMENT_MOST];

    if (fseek(z->file, 0, SEEK_END) != 0 || (z->bytes = ftell(z->file)) < 0)
        return failure(a, "%s: cannot be read: %s", z->shown, strerror(errno));
    const long n = z->bytes < (long)sizeof tail ? z->bytes : (long)sizeof tail;
    if (!read_at(z->file, z->bytes - n, tail, (size_t)n))
        return failure(a, "%s: cannot be read", z->shown);
    const long at = find_end(tail, n);
    if (at < 0)
        return failure(a, "%s: is no .npz archive, or one that was cut off", z->shown);
    const unsigned long begin = number(tail + at + 16, 4);
    z->n_bytes = number(tail + at + 12, 4);
    if (begin == 0xffffffff)
        return failure(a, "%s: is larger than 4 GiB; write its arrays as .npy files",
                       z->shown);
    if (begin > (unsigned long)z->bytes || z->n_bytes > (unsigned long)z->bytes - begin)
        return failure(a, "%s: its directory lies beyond its end", z->shown);
    z->entries = need(z->n_bytes + 1, 1);
    if (!read_at(z->file, (long)begin, z->entries, z->n_bytes))
        return failure(a, "%s: cannot be read", z->shown);
    return EXIT_OK;
}

/* The entry at `at`, which is moved behind it; NULL: there is none. */
static const unsigned char *next_entry(const struct npz *z, unsigned long *at)
{
    const unsigned char *e = z->entries + *at;

    if (z->n_bytes - *at < ENTRY_BYTES || memcmp(e, "PK\1\2", 4) != 0) return NULL;
    const unsigned long bytes =
        ENTRY_BYTES + number(e + 28, 2) + number(e + 30, 2) + number(e + 32, 2);
    if (bytes > z->n_bytes - *at) return NULL;
    *at += bytes;
    return e;
}

/* The name of the entry of an array, without .npy, and its length; NULL: it is of none. */
static const char *entry_name(const unsigned char *e, size_t *len)
{
    const size_t n = number(e + 28, 2);
    const char  *own = (const char *)e + ENTRY_BYTES;

    if (n < 4 || memcmp(own + n - 4, ".npy", 4) != 0) return NULL;
    *len = n - 4;
    return own;
}

/* Array number i; NULL beyond the last. */
static const unsigned char *entry_at(const struct npz *z, int i)
{
    const unsigned char *e;
    unsigned long        at = 0;
    size_t               len;

    while ((e = next_entry(z, &at)))
        if (entry_name(e, &len) && i-- == 0) return e;
    return NULL;
}

bool npz_name(const struct npz *z, int i, char name[NPZ_NAME])
{
    const unsigned char *e = entry_at(z, i);
    size_t               len = 0;
    const char          *own = e ? entry_name(e, &len) : NULL;

    if (own)
        snprintf(name, NPZ_NAME, "%.*s", (int)(len < NPZ_NAME ? len : NPZ_NAME), own);
    return own != NULL;
}

/* Its number; -1: there is none. */
static int find_name(const struct npz *z, const char *name)
{
    char own[NPZ_NAME];

    for (int i = 0; npz_name(z, i, own); i++)
        if (strcmp(own, name) == 0) return i;
    return -1;
}

/* The names of all arrays, as far as there is room. */
static const char *list_names(const struct npz *z, char text[200])
{
    char name[NPZ_NAME];
    int  n = 0;

    for (int i = 0; n < 150 && npz_name(z, i, name); i++)
        n += snprintf(text + n, 200 - (size_t)n, "%s%.40s", n ? ", " : "", name);
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
static int check_entry(const struct args *a, const struct npz *z,
                       const unsigned char *e, const char *name, struct member *m)
{
    unsigned char       local[LOCAL_BYTES];
    const unsigned long at = number(e + 42, 4), end = (unsigned long)z->bytes;

    m->method = (int)number(e + 10, 2);
    m->crc = number(e + 16, 4);
    m->packed = number(e + 20, 4);
    m->bytes = number(e + 24, 4);
    if (number(e + 8, 2) & 1) return failure(a, "%s:%s: is encrypted", z->shown, name);
    if (m->method != STORED && m->method != DEFLATED)
        return failure(a,
                       "%s:%s: is packed by method %d; accepted are 0 (stored) and 8 "
                       "(deflated)",
                       z->shown, name, m->method);
    if (at > end - LOCAL_BYTES || !read_at(z->file, (long)at, local, sizeof local) ||
        memcmp(local, "PK\3\4", 4) != 0)
        return failure(a, "%s:%s: there is no array where the directory says", z->shown,
                       name);
    const unsigned long begin =
        at + LOCAL_BYTES + number(local + 26, 2) + number(local + 28, 2);
    if (begin > end || m->packed > end - begin)
        return failure(a, "%s:%s: lies beyond the end of the file", z->shown, name);
    m->begin = (long)begin;
    return EXIT_OK;
}

static int open_entry(const struct args *a, const struct npz *z, const unsigned char *e,
                      const char *name, foci_reader *reader)
{
    struct member *m = need(1, sizeof *m);
    const size_t   bytes = strlen(z->shown) + strlen(name) + 2;

    if (check_entry(a, z, e, name, m)) {
        free(m);
        return EXIT_FAILED;
    }
    m->file = fopen(z->path, "rb");
    if (!m->file) {
        free(m);
        return failure(a, "%s: cannot be opened: %s", z->shown, strerror(errno));
    }
    if (m->method == DEFLATED && inflateInit2(&m->z, -MAX_WBITS) != Z_OK)
        no_memory("an array that is compressed");
    m->inflating = m->method == DEFLATED;
    m->name = need(1, bytes);
    snprintf(m->name, bytes, "%s:%s", z->shown, name);
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

bool npz_is(const char *path)
{
    FILE *file = fopen(path, "rb");
    char  first[4] = "";

    const size_t n = file ? fread(first, 1, sizeof first, file) : 0;
    if (file) fclose(file);
    return n == sizeof first &&
           (!memcmp(first, "PK\3\4", 4) || !memcmp(first, "PK\5\6", 4));
}

int npz_list(const struct args *a, const char *path, const char *shown, struct npz **out)
{
    struct npz *z = *out = need(1, sizeof *z);

    *z = (struct npz){ .path = path, .shown = shown, .file = fopen(path, "rb") };
    return z->file ? read_directory(a, z)
                   : failure(a, "%s: cannot be opened: %s", shown, strerror(errno));
}

int npz_member(const struct args *a, const struct npz *z, int i, foci_reader *reader)
{
    char name[NPZ_NAME];

    return npz_name(z, i, name) ? open_entry(a, z, entry_at(z, i), name, reader)
                                : failure(a, "%s: has no array number %d", z->shown, i);
}

void npz_free(struct npz *z)
{
    if (!z) return;
    if (z->file) fclose(z->file);
    free(z->entries);
    free(z);
}

/* The first of the names, up to NULL, that the archive has. */
static int open_first(const struct args *a, const char *path, const char *const *names,
                      foci_reader *reader)
{
    struct npz *z;
    char        all[200];
    int         found = -1, code = npz_list(a, path, path, &z);

    for (int i = 0; !code && found < 0 && names[i]; i++)
        found = find_name(z, names[i]);
    if (!code)
        code = found < 0 ? failure(a,
                                   "%s: has no array called %s; it has %s: name one as "
                                   "%s:NAME",
                                   path, names[0], list_names(z, all), path)
                         : npz_member(a, z, found, reader);
    npz_free(z);
    return code;
}

int npz_open(const struct args *a, const char *path, const char *name,
             foci_reader *reader)
{
    const char *const names[] = { name, NULL };

    return open_first(a, path, names, reader);
}

int npz_open_part(const struct args *a, const char *path, int labels,
                  foci_reader *reader)
{
    static const char *const images[] = { "images", "x", "X", "data", NULL };
    static const char *const answers[] = { "labels", "y", "Y", "target", NULL };

    return open_first(a, path, labels ? answers : images, reader);
}
