/* printer.c -- text written into a buffer of fixed size. */
#include <inttypes.h>
#include <stdio.h>

#include "core/core.h"

void printer_add(struct printer *t, const char *format, ...)
{
    const size_t left = (size_t)t->used < t->cap ? t->cap - (size_t)t->used : 0;
    va_list      args;

    va_start(args, format);
    const int n = vsnprintf(left ? t->at + t->used : NULL, left, format, args);
    va_end(args);
    if (n > 0) t->used += n;
}

/* "17.18 G": four digits and a prefix of thousands. */
static const char *scaled(double x, char text[24])
{
    static const char *const prefixes[] = { "", "k", "M", "G", "T", "P", "E" };
    size_t                   i = 0;

    for (; x >= 9999.5 && i + 1 < sizeof prefixes / sizeof *prefixes; i++)
        x /= 1000;
    snprintf(text, 24, "%.4g %s", x, prefixes[i]);
    return text;
}

/* "forward 17.18 GFLOP, 33.55 MB" */
static void add_pass(struct printer *t, const char *pass, double flops, double bytes)
{
    char a[24], b[24];
    printer_add(t, "%s %sFLOP, %sB", pass, scaled(flops, a), scaled(bytes, b));
}

void printer_cost(struct printer *t, const foci_cost *c, bool backward)
{
    printer_add(t, "  cost     ");
    add_pass(t, "forward", c->forward_flops, c->forward_bytes);
    if (backward) {
        printer_add(t, "; ");
        add_pass(t, "backward", c->backward_flops, c->backward_bytes);
    }
    printer_add(t, "\n");
}

void printer_memory(struct printer *t, size_t work, size_t saved, int64_t floats)
{
    char a[24], b[24];
    printer_add(t, "  memory   work %sB, saved %sB, parameters %" PRId64 "\n",
                scaled((double)work, a), scaled((double)saved, b), floats);
}
