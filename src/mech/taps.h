/* taps.h -- what convolutions have in common. */
#ifndef FOCI_TAPS_H
#define FOCI_TAPS_H

#include <stdio.h>

#include "mech/mech.h"

enum { TAPS_WIDTH, TAPS_PARTS };

static const foci_arg_def taps_args[] = {
    [TAPS_WIDTH] = { .name = "width", .preset = 7, .min = 1, .max = 4096, .help = "taps" },
    [TAPS_PARTS] = { .name = "heads",
                     .preset = 1,
                     .min = 1,
                     .max = 65536,
                     .help = "runs of a value's elements, each with its own taps" },
};

static inline bool taps_refuse(const foci_mech *m, char *why, size_t cap)
{
    const int64_t parts = foci_arg_int(m, TAPS_PARTS);

    if (m->dims.v % parts == 0) return false;
    snprintf(why, cap, "heads=%lld does not divide the value width %lld",
             (long long)parts, (long long)m->dims.v);
    return true;
}

#endif
