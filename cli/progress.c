/* progress.c -- progress of a long job: a bar on a terminal once it has taken two seconds,
 * a line for each piece of work elsewhere, nothing under --quiet. */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

void progress_begin(struct progress *p, const struct args *a, const char *unit,
                    int64_t n)
{
    const double now = seconds();
    *p =
        (struct progress){ a, unit, n, now, now + 2, isatty(STDERR_FILENO) == 1, false };
}

/* "[####------] 4 of 10 cases, 1.3 cases/s, 5 s left: softmax/..." within 79 columns. */
static void draw(struct progress *p, int64_t done, const char *what)
{
    enum { WIDTH = 20, LINE = 79 };
    const double taken = seconds() - p->start;
    const int    full = p->n > 0 ? (int)(WIDTH * done / p->n) : WIDTH;
    char         bar[WIDTH + 1], rest[64] = "", line[LINE + 1];

    memset(bar, '-', WIDTH);
    memset(bar, '#', (size_t)full);
    bar[WIDTH] = '\0';
    if (done > 0)
        snprintf(rest, sizeof rest, ", %.3g %s/s, %.0f s left", (double)done / taken,
                 p->unit, taken / (double)done * (double)(p->n - done));
    snprintf(line, sizeof line, "[%s] %lld of %lld %s%s: %s", bar, (long long)done,
             (long long)p->n, p->unit, rest, what);
    fprintf(stderr, "\r%s\033[K", line);
    p->drawn = true;
}

void progress_at(struct progress *p, int64_t done, const char *what)
{
    if (p->a->quiet) return;
    if (!p->terminal)
        note(p->a, "%lld of %lld: %s", (long long)done + 1, (long long)p->n, what);
    else if (seconds() - p->start > 2)
        draw(p, done, what);
}

void progress_tick(struct progress *p, int64_t done, const char *what)
{
    enum { LINES = 10 }; /* seconds from line to line */

    if (p->a->quiet) return;
    const double now = seconds();
    if (now < p->next) return;
    if (p->terminal)
        draw(p, done, what);
    else
        note(p->a, "%lld of %lld %s: %s", (long long)done, (long long)p->n, p->unit,
             what);
    p->next = now + (p->terminal ? 0.1 : LINES);
}

void progress_end(struct progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
}
