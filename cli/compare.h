/* compare.h -- foci compare: several mechanisms side by side. */
#ifndef FOCI_CLI_COMPARE_H
#define FOCI_CLI_COMPARE_H

#include "cli/cli.h"

/* compare_length.c: time, memory and error against length, without training. */
int compare_length(const struct args *a);

/* The longest that --length takes. */
enum { COMPARE_LONGEST = 1 << 24 };

/* Options of --length alone.  It reads --attention, --heads, --dim, --dtype, --time-limit,
 * --out, --resume, --threads and --device too. */
#define OPTIONS_COMPARE_LENGTH                                                         \
    { .name = "length",                                                                \
      .arg = "N,...",                                                                  \
      .help = "time, memory and error at these lengths, 1k,4k,16k (k: 1024)",          \
      .kind = KIND_TEXT },                                                             \
        { .name = "causal",                                                            \
          .help = "with --length: queries see keys up to their own" },                 \
        { .name = "pass",                                                              \
          .arg = "PASS",                                                               \
          .help = "with --length: forward (default), backward, both, a step of "       \
                  "decoding",                                                          \
          .kind = KIND_WORD,                                                           \
          .words = "fwd|bwd|both|step" },                                              \
        { .name = "repeat",                                                            \
          .arg = "N",                                                                  \
          .help = "with --length: rounds in which all take turns (default 5)",         \
          .kind = KIND_WHOLE,                                                          \
          .min = 1,                                                                    \
          .max = 1000 },                                                               \
        { .name = "csv",                                                               \
          .arg = "FILE",                                                               \
          .help = "with --length: the results with commas, for spreadsheets",          \
          .kind = KIND_TEXT },                                                         \
        OPTION_PRECISION

#endif
