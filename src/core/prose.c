/* prose.c -- text that grows as far as there is room. */
#include <stdio.h>

#include "core/core.h"

void prose_add(struct prose *t, const char *format, ...)
{
    const size_t left = (size_t)t->used < t->cap ? t->cap - (size_t)t->used : 0;
    va_list      args;

    va_start(args, format);
    const int n = vsnprintf(left ? t->at + t->used : NULL, left, format, args);
    va_end(args);
    if (n > 0) t->used += n;
}
