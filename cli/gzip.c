/* gzip.c -- texts from files, plain or gz, by zlib, which reads plain files unchanged. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "cli/cli.h"
#include "cli/gzip.h"

struct gzip_source {
    gzFile file;
    char   path[];
};

/* gzread() takes an unsigned int, and gives an int. */
static int64_t read_source(void *user, void *to, int64_t bytes)
{
    const struct gzip_source *s = user;
    const unsigned            most = 1u << 30;
    int                       code;

    const int n = gzread(s->file, to, bytes < (int64_t)most ? (unsigned)bytes : most);
    if (n > 0) return n;
    gzerror(s->file, &code); /* the end, or a file that is cut short */
    return n < 0 || code != Z_OK ? -1 : 0;
}

static int rewind_source(void *user)
{
    const struct gzip_source *s = user;
    return gzrewind(s->file);
}

static void close_source(void *user)
{
    struct gzip_source *s = user;
    gzclose_r(s->file);
    free(s);
}

static const char *error_source(void *user)
{
    const struct gzip_source *s = user;
    int                       code;
    const char               *text = gzerror(s->file, &code);

    if (code == Z_ERRNO) return strerror(errno);
    if (code == Z_BUF_ERROR) return "its gz data is cut short";
    return *text ? text : "its gz data is damaged";
}

const char *gzip_open(const char *path, foci_reader *reader)
{
    const bool standard = strcmp(path, "-") == 0;
    const int  fd = standard ? dup(STDIN_FILENO) : -1;

    errno = 0;
    const gzFile file = standard ? gzdopen(fd, "rb") : gzopen(path, "rb");
    if (!file) {
        if (fd >= 0) close(fd);
        return errno ? strerror(errno) : "no memory for zlib";
    }
    gzbuffer(file, 1 << 17);
    struct gzip_source *s = need(sizeof *s + strlen(path) + 1, 1);
    s->file = file;
    strcpy(s->path, path);
    *reader = (foci_reader){
        FOCI_SIZED(foci_reader),
        .name = standard ? "standard input" : s->path,
        .user = s,
        .read = read_source,
        .rewind = rewind_source,
        .close = close_source,
        .error = error_source,
    };
    return NULL;
}

int64_t gzip_offset(const foci_reader *reader)
{
    const struct gzip_source *s = reader->user;
    return gzoffset(s->file);
}
