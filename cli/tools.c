/* tools.c -- shared by verbs: opening a context, memory, time, files to be written, and
 * deferred signals. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

static foci_ctx *open_on(const struct args *a, int threads, const char *device)
{
    foci_ctx          *ctx;
    const foci_options options = { FOCI_SIZED(foci_options), .threads = threads,
                                   .device = device };

    if (foci_ctx_create(&options, &ctx)) failure(a, "%s", foci_errmsg(NULL));
    return ctx;
}

foci_ctx *open_ctx(const struct args *a, int threads)
{
    return open_on(a, threads, NULL);
}

foci_ctx *open_device_ctx(const struct args *a, int threads)
{
    return open_on(a, threads, opt_text(a, "device"));
}

void assume_x(foci_problem *p)
{
    enum { MOST = 1 << 24 };
    const int64_t wide = p->heads * (p->dim_v ? p->dim_v : p->dim_qk);

    if (!p->dim_x) p->dim_x = wide < MOST ? wide : MOST;
}

void no_memory(const char *what)
{
    fprintf(stderr, "foci: no memory for %s\n", what);
    exit(EXIT_FAILED);
}

void *need(size_t n, size_t size)
{
    enum { LINE = 64 };
    char  text[64];
    void *p = NULL;

    if (!size || n <= (SIZE_MAX - LINE) / size) {
        const size_t bytes = (n * size + LINE) / LINE * LINE;
        p = aligned_alloc(LINE, bytes);
        if (p) return memset(p, 0, bytes);
    }
    snprintf(text, sizeof text, "%zu times %zu bytes", n, size);
    no_memory(text);
}

void *need_one_more(void *list, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) return list;
    *cap = 2 * *cap + 16;
    void *more = need(*cap, size);
    if (n) memcpy(more, list, n * size);
    free(list);
    return more;
}

/* The number behind a name in a file of the kernel, or alone in it (name ""); INFINITY: there
 * is none. */
static double kernel_number(const char *path, const char *name)
{
    FILE  *f = fopen(path, "r");
    char   line[128], *end;
    double x = INFINITY;

    while (f && isinf(x) && fgets(line, sizeof line, f)) {
        const size_t n = strlen(name);
        if (strncmp(line, name, n) != 0) continue;
        x = strtod(line + n, &end);
        if (end == line + n) x = INFINITY;
    }
    if (f) fclose(f);
    return x;
}

double memory_available(void)
{
    const double machine = 1024 * kernel_number("/proc/meminfo", "MemAvailable:");
    const double limit = kernel_number("/sys/fs/cgroup/memory.max", "");
    const double used = kernel_number("/sys/fs/cgroup/memory.current", "");
    const double cache = kernel_number("/sys/fs/cgroup/memory.stat", "inactive_file ");

    if (isinf(limit) || isinf(used)) return machine;
    return fmin(machine, limit - used + (isinf(cache) ? 0 : cache));
}

static void *json_need(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p) no_memory("JSON");
    return p;
}

void json_never_fails(void) { json_set_alloc_funcs(json_need, free); }

char *plan_text(int (*print)(const foci_plan *, char *, size_t), const foci_plan *plan)
{
    const int len = print(plan, NULL, 0);
    char     *text = need((size_t)(len < 0 ? 0 : len) + 1, 1);
    if (len > 0) print(plan, text, (size_t)len + 1);
    return text;
}

double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * Files
 */

char *folder_of(const char *path)
{
    const char  *slash = strrchr(path, '/');
    const size_t len = slash == path ? 1 : slash ? (size_t)(slash - path) : 1;
    char        *folder = need(len + 1, 1);

    memcpy(folder, slash ? path : ".", len);
    return folder;
}

int check_output(const struct args *a, const char *path)
{
    char       *folder = folder_of(path);
    struct stat s;
    int         code = EXIT_OK;

    const bool there = stat(path, &s) == 0;
    if ((!there || S_ISREG(s.st_mode)) && access(folder, W_OK | X_OK))
        code = failure(a, "%s: cannot be made: %s", path, strerror(errno));
    else if (there && access(path, W_OK))
        code = failure(a, "%s: cannot be written: %s", path, strerror(errno));
    free(folder);
    return code;
}

/*
 * Signals.  Blocking them would not do: any thread may receive one.
 */

static atomic_int held, waiting, count;

static void end_by(int number)
{
    signal(number, SIG_DFL);
    raise(number);
}

static void handle(int number)
{
    if (!atomic_load(&held)) end_by(number);
    atomic_fetch_add(&count, 1);
    atomic_store(&waiting, number);
}

void catch_signals(void)
{
    static const int all[] = { SIGINT, SIGTERM, SIGHUP };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct sigaction old, new = { .sa_handler = handle };
        sigemptyset(&new.sa_mask);
        sigaction(all[i], NULL, &old);
        if (old.sa_handler != SIG_IGN) sigaction(all[i], &new, NULL);
    }
}

void hold_signals(void) { atomic_store(&held, 1); }

int signal_count(void) { return atomic_load(&count); }

bool signal_waits(void) { return atomic_load(&waiting) != 0; }

void release_signals(void)
{
    atomic_store(&held, 0);
    const int number = atomic_exchange(&waiting, 0);
    if (number) end_by(number);
}
