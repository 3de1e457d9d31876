/* compare.c -- foci compare: several mechanisms side by side. */
#include "cli/compare.h"

static int run(const struct args *a)
{
    if (opt_text(a, "length")) return compare_length(a);
    return usage_error(a,
                       "--length is missing; usage: foci compare --length 1k,4k,16k");
}

static const struct option options[] = {
    { .name = "attention",
      .arg = "SPEC",
      .help = "a mechanism to compare; may be given several times",
      .kind = KIND_TEXT,
      .many = true },
    OPTIONS_COMPARE_LENGTH,
    { .name = "heads",
      .arg = "N",
      .help = "heads (with --length: default 8)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 65536 },
    { .name = "dim",
      .arg = "N",
      .help = "width of all heads together (with --length: default 64 a head)",
      .kind = KIND_WHOLE,
      .min = 1,
      .max = 1 << 20 },
    { .name = "dtype",
      .arg = "TYPE",
      .help = "of tensors: f32 (default) or bf16",
      .kind = KIND_WORD,
      .words = "f32|bf16" },
    { .name = "time-limit",
      .arg = "S",
      .help = "with --length: leave out what would take more seconds (default 60)",
      .kind = KIND_REAL,
      .min = 0.001,
      .max = 1e9 },
    { .name = "out",
      .arg = "DIR",
      .help = "keep results in this folder as each ends",
      .kind = KIND_TEXT },
    { .name = "resume", .help = "go on with the results in --out" },
    OPTION_THREADS,
    OPTION_DEVICE,
    { 0 },
};

static const char *const examples[] = {
    "foci compare --length 1k,4k,16k",
    "foci compare --length 1k,2k,4k,8k --attention linear --attention "
    "'local(window=256)' --causal --pass both",
    "foci compare --length 1k,4k,16k,64k --dtype bf16 --out lengths --csv lengths.csv",
    NULL,
};

const struct verb verb_compare = {
    .name = "compare",
    .run = run,
    .summary = "mechanisms side by side: time, memory and error against length",
    .usage = "--length N,...",
    .max_words = 0,
    .options = options,
    .examples = examples,
    .notes =
        "With --length nothing is trained.  At each length the mechanisms take turns "
        "in\n"
        "rounds; times are medians of the rounds.  Softmax is always among them.  "
        "Memory\n"
        "is that of tensors, scratch, what is saved for backward, and the plan.  The\n"
        "error is that of the outputs against exact attention in f32, of up to 256 "
        "rows,\n"
        "on standard normal queries, keys and values: |o - o'| / |o'|.  It stands in\n"
        "parentheses, as it says nothing, where weights have yet to be trained or are "
        "not\n"
        "made of queries and keys.\n\n"
        "Crossings are interpolated between lengths, where times are taken to grow as\n"
        "powers of the length.  What does not fit in memory, or would take longer "
        "than\n"
        "--time-limit by the growth so far, is left out, with the reason.",
};
