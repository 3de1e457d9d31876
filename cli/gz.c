/* gz.c -- files that examples are read from, plain or compressed; and the paths of shipped
 * ones. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "cli/gz.h"

/*
 * Text: zlib gives plain files as they are.
 */

struct gz {
    gzFile      file;
    const char *why;
    char        name[]; /* the path */
};

static int64_t read_gz(void *user, void *to, int64_t bytes)
{
    enum { MOST = 1 << 28 };
    struct gz *g = user;
    const int  n = gzread(g->file, to, (unsigned)(bytes < MOST ? bytes : MOST));
    int        number = Z_OK;

    if (n > 0) return n;
    (void)gzerror(g->file, &number);
    if (n == 0 && number == Z_OK) return 0;
    g->why = number == Z_ERRNO       ? strerror(errno)
             : number == Z_BUF_ERROR ? "its compressed data end too early"
             : number == Z_MEM_ERROR ? "there is no memory to decompress it"
                                     : "its compressed data are damaged";
    return -1;
}

static int rewind_gz(void *user)
{
    struct gz *g = user;

    g->why = "it is no regular file";
    return gzrewind(g->file);
}

static const char *error_gz(void *user) { return ((struct gz *)user)->why; }

static void close_gz(void *user)
{
    struct gz *g = user;

    gzclose(g->file);
    free(g);
}

/* A descriptor of something that can be read; -1 with errno. */
static int open_path(const char *path)
{
    struct stat st;
    const int   fd =
        strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISDIR(st.st_mode)) return fd;
    close(fd);
    errno = EISDIR;
    return -1;
}

static int open_gz(const struct args *a, const char *path, foci_reader *reader)
{
    const int fd = open_path(path);

    if (fd < 0) return failure(a, "%s: cannot be opened: %s", path, strerror(errno));
    struct gz *g = need(1, sizeof *g + strlen(path) + 1);
    strcpy(g->name, path);
    g->file = gzdopen(fd, "rb");
    if (!g->file) {
        close(fd);
        free(g);
        no_memory("a file that may be compressed");
    }
    (void)gzbuffer(g->file, 1 << 17);
    *reader = (foci_reader){ FOCI_SIZED(foci_reader),
                             .name = strcmp(path, "-") ? g->name : "stdin",
                             .user = g,
                             .read = read_gz,
                             .rewind = strcmp(path, "-") ? rewind_gz : NULL,
                             .close = close_gz,
                             .error = error_gz };
    return EXIT_OK;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool is_file(const char *text, size_t n)
{
    struct stat st;
    char       *path = need(n + 1, 1);

    memcpy(path, text, n);
    const bool there = n && stat(path, &st) == 0;
    free(path);
    return there;
}

const char *array_of_path(const char *text)
{
    if (is_file(text, strlen(text))) return NULL;
    for (const char *at = text; (at = strchr(at, ':')); at++)
        if (at[1] && is_file(text, (size_t)(at - text))) return at + 1;
    return NULL;
}

/* The same of an archive, whether it is there or not, by the end of its name. */
static const char *array_of_archive(const char *text)
{
    static const char end[] = ".npz:";
    const char       *at = strstr(text, end);

    return at && at[sizeof end - 1] ? at + sizeof end - 1 : NULL;
}

bool path_is_array(const char *path)
{
    return array_of_archive(path) || ends_with(path, ".npy") ||
           ends_with(path, ".npz") || ends_with(path, ".npy.gz");
}

int text_open(const struct args *a, const char *path, foci_reader *reader)
{
    const char *name = array_of_archive(path);

    if (!name) return open_gz(a, path, reader);
    char *archive = need(1, strlen(path) + 1);
    memcpy(archive, path, (size_t)(name - 1 - path));
    const int status = npz_open(a, archive, name, reader);
    free(archive);
    return status;
}

/*
 * What is shipped
 */

/* The file in a folder, if it can be read there. */
static bool is_in(const char *folder, const char *inner, const char *name,
                  char path[4096])
{
    const int n = snprintf(path, 4096, "%s/%s%s", folder, inner, name);
    return n < 4096 && access(path, R_OK) == 0;
}

/* From the folder of the program upward: in the sources when it was built in them, else
 * where it was installed. */
static bool is_near(const char *name, char path[4096])
{
    char          folder[2048];
    const ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);

    folder[n > 0 ? n : 0] = '\0';
    for (int up = 0; up < 5; up++) {
        char *slash = strrchr(folder, '/');
        if (!slash) return false;
        *slash = '\0';
        if (is_in(folder, "share/foci/data/", name, path)) return true;
        if (is_in(folder, "data/", name, path)) return true;
    }
    return false;
}

const char *shipped_path(const struct args *a, const char *name, char path[4096])
{
    const char *own = getenv("FOCI_DATA");

    if (own && *own && is_in(own, "", name, path)) return path;
    if (is_near(name, path) || is_in(FOCI_DATADIR, "", name, path)) return path;
    failure(
        a,
        "the shipped set %s is not found: say by FOCI_DATA in which folder it lies, "
        "or give files of your own",
        name);
    return NULL;
}
