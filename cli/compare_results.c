/* compare_results.c -- the journal of a comparison: files results*.jsonl in its folder, one
 * line of JSON for everything that ended.
 *
 *     {"kind": "run", "id": ID, "status": "ok", "valid": {...}, ...}    a run
 *     {"kind": "check", "id": ID, ...}    whether an arm can do the task
 *     {"kind": "costs", "id": ID, ...}    what the model of a run costs
 *     {"kind": "test", "id": ID, ...}     what it reaches on the test set
 *
 * A line is written by one call and synced, so a crash leaves the lines before it, and at
 * most a torn last one, which is cut off.  Where two lines speak of the same thing the last
 * one that succeeded counts.  Every process that works on a part has a file of its own.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/comparison.h"

static const struct {
    const char *kind, *sort;
} sorts[] = {
    { "run", "runs" },
    { "check", "checks" },
    { "costs", "costs" },
    { "test", "tests" },
};

json_t *results_create(void)
{
    return json_pack("{s:{}, s:{}, s:{}, s:{}}", "runs", "checks", "costs", "tests");
}

const json_t *results_get(const json_t *results, const char *sort, const char *id)
{
    return json_object_get(json_object_get(results, sort), id);
}

static const char *sort_of(const json_t *record)
{
    const char *kind = json_string_value(json_object_get(record, "kind"));

    for (size_t i = 0; kind && i < sizeof sorts / sizeof *sorts; i++)
        if (!strcmp(sorts[i].kind, kind)) return sorts[i].sort;
    return NULL;
}

static bool is_ok(const json_t *record)
{
    const char *status = json_string_value(json_object_get(record, "status"));
    return status && !strcmp(status, "ok");
}

/* Takes the record over. */
static void put(json_t *results, json_t *record)
{
    json_t     *all = json_object_get(results, sort_of(record));
    const char *id = json_string_value(json_object_get(record, "id"));

    if (is_ok(record) || !is_ok(json_object_get(all, id)))
        json_object_set(all, id, record);
    json_decref(record);
}

/*
 * Reading
 */

struct journal {
    const struct args *a;
    json_t            *results;
    const char        *folder, *path;
    const char       **version;
};

/* Where a folder was moved, or brought from another machine, the results on each example lie
 * beside the journal and not where it says. */
static void find_outputs(const struct journal *j, json_t *record)
{
    const char *id = json_string_value(json_object_get(record, "id"));
    json_t     *test = json_object_get(record, "test");
    char       *path = compare_text("%s/runs/%s/test.jsonl", j->folder, id);

    if (json_object_get(test, "outputs") && access(path, R_OK) == 0) {
        json_t *text = json_string(path); /* NULL where it is not UTF-8 */
        if (text) json_object_set_new(test, "outputs", text);
    }
    free(path);
}

/* EXIT_FAILED only where going on would mix what does not belong together. */
static int take_line(struct journal *j, const char *text, size_t bytes, int number)
{
    json_error_t error;
    json_t      *record = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    const char  *version = json_string_value(json_object_get(record, "version"));

    if (!record || !sort_of(record) || !version ||
        !json_is_string(json_object_get(record, "id")) ||
        !json_is_string(json_object_get(record, "status"))) {
        note(j->a,
             "%s, line %d: %s: it is left out; --resume does again what it was about",
             j->path, number, record ? "is no result" : error.text);
        json_decref(record);
        return EXIT_OK;
    }
    if (*j->version && strcmp(*j->version, version)) {
        const int code =
            failure(j->a,
                    "%s, line %d: is by foci %s, others by foci %s: results of two "
                    "versions are "
                    "not compared; give another --out, or use that version",
                    j->path, number, version, *j->version);
        json_decref(record);
        return code;
    }
    find_outputs(j, record);
    put(j->results, record);
    if (!*j->version) *j->version = strdup(version);
    if (!*j->version) no_memory("a version");
    return EXIT_OK;
}

/* All bytes of a file, to be freed; NULL with errno. */
static char *read_file(const char *path, size_t *bytes)
{
    struct stat st;
    const int   fd = open(path, O_RDONLY | O_CLOEXEC);
    char       *text = NULL;

    if (fd < 0) return NULL;
    *bytes = 0;
    if (fstat(fd, &st) == 0) {
        text = need((size_t)st.st_size + 1, 1);
        ssize_t n = 1;
        while (n > 0 && *bytes < (size_t)st.st_size) {
            n = read(fd, text + *bytes, (size_t)st.st_size - *bytes);
            if (n > 0) *bytes += (size_t)n;
        }
    }
    close(fd);
    return text;
}

static int read_journal(struct journal *j, bool own)
{
    size_t bytes;
    char  *text = read_file(j->path, &bytes);
    int    code = EXIT_OK, number = 0;

    if (!text) return failure(j->a, "%s: %s", j->path, strerror(errno));
    for (size_t at = 0; !code && at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        if (!end) { /* another process may be writing at its own file */
            note(j->a, "%s, line %d: has no end, as after a crash: it is left out",
                 j->path, number + 1);
            if (own && truncate(j->path, (off_t)at))
                code = failure(j->a, "%s: %s", j->path, strerror(errno));
            break;
        }
        const size_t n = (size_t)(end - text) - at;
        code = take_line(j, text + at, n, ++number);
        at += n + 1;
    }
    free(text);
    return code;
}

static int is_journal(const struct dirent *e)
{
    const size_t n = strlen(e->d_name);
    return !strncmp(e->d_name, "results", 7) && n >= 13 &&
           !strcmp(e->d_name + n - 6, ".jsonl");
}

int results_load(const struct args *a, json_t *results, const char *folder,
                 const char *own, const char **version)
{
    struct dirent **files;
    const int       n = scandir(folder, &files, is_journal, alphasort);
    int             code = EXIT_OK;

    if (n < 0) return failure(a, "%s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        char          *path = compare_text("%s/%s", folder, files[i]->d_name);
        struct journal j = { a, results, folder, path, version };
        if (!code) code = read_journal(&j, own && !strcmp(own, files[i]->d_name));
        free(path);
        free(files[i]);
    }
    free(files);
    return code;
}

/*
 * Writing
 */

static int append(const struct args *a, const char *path, const char *line)
{
    const size_t n = strlen(line);
    const int    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);

    errno = 0;
    const bool good = fd >= 0 && write(fd, line, n) == (ssize_t)n && fsync(fd) == 0;
    const int  error = errno ? errno : ENOSPC;
    if (fd >= 0) close(fd);
    return good ? EXIT_OK
                : failure(a, "%s: cannot be written: %s", path, strerror(error));
}

int results_append(struct comparison *c, json_t *record)
{
    char *text = json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(12));
    char *line = compare_text("%s\n", text);
    char *path = compare_text("%s/%s", c->out, c->journal);

    const int code = append(c->a, path, line);
    put(c->results, record);
    free(path);
    free(line);
    free(text);
    return code;
}

json_t *results_record(const char *kind, const char *id, const char *status)
{
    char            when[32], host[64] = "", cpu[256];
    const time_t    now = time(NULL);
    const struct tm t = *gmtime(&now);

    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &t);
    (void)gethostname(host, sizeof host - 1);
    json_t *machine = json_string(host);
    cpu_model(cpu, sizeof cpu);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "kind", kind, "id", id,
                     "version", foci_version(), "status", status, "time", when, "cpu",
                     cpu, "machine", machine ? machine : json_string("?"));
}
