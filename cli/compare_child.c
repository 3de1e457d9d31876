/* compare_child.c -- child processes of `foci compare`: this same program, some at a time.
 *
 * A child is in a process group of its own, so that Ctrl-C reaches the runner alone, which
 * passes it on: the first signal as SIGTERM, on which training writes its state and ends, a
 * second one as SIGKILL.  Where the system can, a child is ended with its runner.
 */
#define _DEFAULT_SOURCE /* wait4(), which tells the memory of one child */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "cli/comparison.h"

enum { LINE = 1024 };

struct child_process {
    pid_t  pid;
    int    out; /* a pipe; -1: it is at its end */
    FILE  *err;
    size_t n, cap; /* bytes of what came */
};

void children_create(struct compare_children *s, const struct args *a, int n)
{
    *s = (struct compare_children){ .a = a, .n = n };
    s->all = need((size_t)n, sizeof *s->all);
    for (int i = 0; i < n; i++)
        s->all[i].process = need(1, sizeof *s->all[i].process);
}

void children_free(struct compare_children *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->all[i].process);
    free(s->all);
}

/*
 * Starting
 */

/* The file of this program, to be freed.  Its path rather than the link, which says another
 * program where this one runs inside a tool that watches it. */
static char *own_path(void)
{
    char          path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    path[n > 0 ? n : 0] = '\0';
    return compare_text("%s",
                        n > 0 && access(path, X_OK) == 0 ? path : "/proc/self/exe");
}

/* In the child; what is used here may be used after a fork. */
static _Noreturn void become(const char *program, char **argv, int out, int err,
                             pid_t parent)
{
    const int none = open("/dev/null", O_RDONLY);

    setpgid(0, 0);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent) _exit(EXIT_FAILED); /* it ended before it was watched */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    if (none < 0 || dup2(none, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(EXIT_FAILED);
    if (none > 2) close(none);
    execv(program, argv);
    static const char text[] = "foci: cannot be started once more\n";
    (void)!write(2, text, sizeof text - 1);
    _exit(EXIT_FAILED);
}

static int launch(struct compare_children *s, struct child_process *p, char **argv)
{
    char       *program = own_path();
    const pid_t self = getpid();
    int         ends[2] = { -1, -1 };

    p->err = tmpfile();
    if (!p->err || pipe(ends)) {
        if (p->err) fclose(p->err);
        free(program);
        return failure(s->a, "no files for a child: %s", strerror(errno));
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    fcntl(fileno(p->err), F_SETFD, FD_CLOEXEC);
    p->pid = fork();
    if (p->pid == 0) become(program, argv, ends[1], fileno(p->err), self);
    const int error = errno;
    close(ends[1]);
    free(program);
    p->out = ends[0];
    p->n = p->cap = 0;
    if (p->pid > 0) {
        setpgid(p->pid, p->pid);
        return EXIT_OK;
    }
    close(ends[0]);
    fclose(p->err);
    return failure(s->a, "no child can be started: %s", strerror(error));
}

int children_start(struct compare_children *s, const json_t *words, void *user)
{
    const size_t          n = json_array_size(words);
    char                **argv = need(n + 2, sizeof *argv);
    struct compare_child *k = s->all;

    while (k->busy)
        k++;
    argv[0] = (char[]){ "foci" };
    for (size_t i = 0; i < n; i++)
        argv[i + 1] = (char *)json_string_value(json_array_get(words, i));
    struct child_process *p = k->process;
    const int             code = launch(s, p, argv);
    free(argv);
    if (code) return code;
    *k = (struct compare_child){ .busy = true, .user = user, .process = p };
    k->start = seconds();
    s->busy++;
    return EXIT_OK;
}

char *shell_word(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-_=+.,:/@%";

    if (*word && strspn(word, plain) == strlen(word)) return compare_text("%s", word);
    char *text = need(4 * strlen(word) + 3, 1), *to = text;
    *to++ = '\'';
    for (; *word; word++)
        if (*word == '\'')
            to = stpcpy(to, "'\\''");
        else
            *to++ = *word;
    *to = '\'';
    return text;
}

char *children_command(const json_t *words)
{
    char   *text = compare_text("foci");
    size_t  i;
    json_t *word;

    json_array_foreach(words, i, word)
    {
        const char *w = json_string_value(word);
        char       *quoted = shell_word(w ? w : "");
        char       *more = compare_text("%s %s", text, quoted);
        free(quoted);
        free(text);
        text = more;
    }
    return text;
}

/*
 * Waiting
 */

static void pass_signals_on(struct compare_children *s)
{
    const int seen = signal_count();

    for (; s->told < seen && s->told < 2; s->told++) {
        if (!s->told && s->busy)
            note(s->a,
                 "runs write their checkpoints and end; another signal ends them now");
        for (int i = 0; i < s->n; i++)
            if (s->all[i].busy)
                kill(-s->all[i].process->pid, s->told ? SIGKILL : SIGTERM);
    }
}

/* Take what a child has written. */
static void take_output(struct compare_child *k)
{
    struct child_process *p = k->process;

    if (p->n + 4096 >= p->cap) {
        const size_t cap = 2 * p->cap + 16384;
        char        *more = need(cap, 1);
        if (k->out) memcpy(more, k->out, p->n);
        free(k->out);
        k->out = more;
        p->cap = cap;
    }
    const ssize_t n = read(p->out, k->out + p->n, p->cap - p->n - 1);
    if (n > 0)
        p->n += (size_t)n;
    else if (n == 0 || errno != EINTR) {
        close(p->out);
        p->out = -1;
    }
}

/* The last line of a file that says something, to be freed. */
static char *last_line(FILE *f)
{
    char line[LINE] = "", last[LINE] = "";

    rewind(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (*line) memcpy(last, line, sizeof last);
    }
    /* "foci train: ..." of a child says nothing to whoever started `foci compare`. */
    const char *text = strncmp(last, "foci ", 5) ? NULL : strstr(last, ": ");
    return compare_text("%s", text ? text + 2 : last);
}

static void reap(struct compare_child *k)
{
    struct child_process *p = k->process;
    struct rusage         used = { 0 };

    while (wait4(p->pid, &k->status, 0, &used) < 0 && errno == EINTR)
        continue;
    k->seconds = seconds() - k->start;
#ifdef __APPLE__
    k->peak_bytes = used.ru_maxrss;
#else
    k->peak_bytes = (int64_t)used.ru_maxrss * 1024;
#endif
    k->ended_by = WIFSIGNALED(k->status) ? WTERMSIG(k->status) : 0;
    if (!k->out) k->out = need(1, 1);
    k->out[p->n] = '\0';
    k->err = last_line(p->err);
    fclose(p->err);
}

struct compare_child *children_wait(struct compare_children *s)
{
    enum { TENTHS = 3, MOST = 1024 };
    struct pollfd polls[MOST];
    int           which[MOST], n = 0;

    pass_signals_on(s);
    for (int i = 0; i < s->n && n < MOST; i++) {
        if (!s->all[i].busy) continue;
        which[n] = i;
        polls[n++] = (struct pollfd){ s->all[i].process->out, POLLIN, 0 };
    }
    if (poll(polls, (nfds_t)n, 100 * TENTHS) <= 0) return NULL;
    for (int i = 0; i < n; i++) {
        struct compare_child *k = &s->all[which[i]];
        if (!polls[i].revents) continue;
        take_output(k);
        if (k->process->out >= 0) continue;
        reap(k);
        return k;
    }
    return NULL;
}

void children_release(struct compare_children *s, struct compare_child *k)
{
    free(k->out);
    free(k->err);
    k->out = k->err = NULL;
    k->busy = false;
    s->busy--;
}

/*
 * What became of it
 */

/* Why a child failed, to be freed. */
char *children_reason(const struct compare_child *k)
{
    if (k->ended_by)
        return compare_text("ended by signal %d (%s)%s", k->ended_by,
                            strsignal(k->ended_by),
                            k->ended_by == SIGKILL ? ", as where memory is short" : "");
    if (!WIFEXITED(k->status) || !WEXITSTATUS(k->status))
        return compare_text("its result could not be read");
    return compare_text("exit status %d: %s", WEXITSTATUS(k->status), k->err);
}

/* What a child printed, if it went well; to be released. */
json_t *children_result(const struct compare_child *k)
{
    if (!WIFEXITED(k->status) || WEXITSTATUS(k->status)) return NULL;
    json_t *result = json_loads(k->out, 0, NULL);
    if (json_is_object(result)) return result;
    json_decref(result);
    return NULL;
}

/* Somebody asked it to end: this is no failure of its own. */
bool children_were_stopped(const struct compare_child *k)
{
    const int s = k->ended_by;
    return s == SIGINT || s == SIGTERM || s == SIGHUP || (s && signal_count() > 0);
}

bool children_run(const struct args *a, const json_t *words, struct compare_child *ended)
{
    struct compare_children one;
    struct compare_child   *k = NULL;

    children_create(&one, a, 1);
    if (!signal_count() && children_start(&one, words, NULL) == EXIT_OK)
        while (!(k = children_wait(&one)))
            continue;
    if (k) {
        *ended = *k;
        k->out = k->err = NULL;
        children_release(&one, k);
    }
    children_free(&one);
    return k && !children_were_stopped(ended);
}
