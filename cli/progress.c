/* progress.c -- progress of a long job: a bar on a terminal once it has taken two seconds,
 * a line for each piece of work elsewhere, nothing under --quiet. */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

void progress_begin(struct progress *p, const struct args *a, const char *unit,
                    int64_t n)
{
    const double now = seconds();
    *p = (struct progress){
        .a = a,
        .unit = unit,
        .n = n,
        .start = now,
        .next = now + 2,
        .terminal = isatty(STDERR_FILENO) == 1,
    };
}

/* "4 of 10 cases", or "4 cases". */
static void count(const struct progress *p, int64_t done, char *text, size_t cap)
{
    if (p->n > 0)
        snprintf(text, cap, "%lld of %lld %s", (long long)done, (long long)p->n,
                 p->unit);
    else
        snprintf(text, cap, "%lld %s", (long long)done, p->unit);
}

/* "[####------] " of so many columns; nothing where the end is not known. */
static void print_bar(const struct progress *p, int64_t done, int width, char *text)
{
    const int64_t part = p->n > 0 && done < p->n ? done : p->n;

    *text = '\0';
    if (p->n <= 0) return;
    const int full = (int)((double)width * (double)part / (double)p->n);
    *text++ = '[';
    for (int i = 0; i < width; i++)
        *text++ = i < full ? '#' : '-';
    strcpy(text, "] ");
}

/* "[####------] 4 of 10 cases, 1.3 cases/s, 5 s left: softmax/..." within 79 columns, or those
 * of a narrower terminal, which bar and rate leave to what is said. */
static void draw(struct progress *p, int64_t done, const char *what)
{
    enum { LINE = 79, LEAST = 20, WIDEST = 20 };
    static const struct {
        int  width;
        bool rate;
    } forms[] = { { WIDEST, true }, { WIDEST, false }, { WIDEST / 2, false } };
    const int    wide = terminal_width(stderr);
    const int    most = wide > LEAST && wide <= LINE ? wide - 1 : LINE;
    const double now = (double)(done - p->before);
    const double each = now > 0 ? (seconds() - p->start) / now : 0;
    char         bar[WIDEST + 4], counted[64], rate[48] = "", left[32] = "", line[256];

    count(p, done, counted, sizeof counted);
    if (each > 0) snprintf(rate, sizeof rate, ", %.3g %s/s", 1 / each, p->unit);
    if (each > 0 && p->n >= done)
        snprintf(left, sizeof left, ", %.0f s left", each * (double)(p->n - done));
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        print_bar(p, done, forms[i].width, bar);
        snprintf(line, sizeof line, "%s%s%s%s: %s", bar, counted,
                 forms[i].rate ? rate : "", left, what);
        if (strlen(line) <= (size_t)most) break;
    }
    fprintf(stderr, "\r%.*s\033[K", most, line);
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
    if (p->terminal) {
        draw(p, done, what);
    } else {
        char counted[64];
        count(p, done, counted, sizeof counted);
        note(p->a, "%s: %s", counted, what);
    }
    p->next = now + (p->terminal ? 0.1 : LINES);
}

void progress_end(struct progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
}
