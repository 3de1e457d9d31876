/* kept.c -- mechanisms that decoding has to keep different things for: a window and
 * some tokens for ever, means of runs on several levels, means that nobody sees, the last
 * tokens of runs, and tokens by label. */
#include <stdio.h>

#include "support/trial.h"

static const foci_range nothing = { 0, 0 };

#define READS    (FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V)
#define COUNT(a) (sizeof(a) / sizeof *(a))

/*
 * A window, tokens at some places that all see, and nothing else.
 */

enum { WINDOW, PLACE };

static const foci_arg_def ring_args[] = {
    [WINDOW] = { .name = "window", .preset = 20, .max = 1000, .help = "keys before" },
    [PLACE] = { .name = "place",
                .preset = -1,
                .min = -1,
                .max = 1000,
                .help = "a token that all see; -1: none" },
};

static uint64_t ring_mask(const foci_mech *m, int64_t i, int64_t j0)
{
    const int64_t p = foci_arg_int(m, PLACE);
    return foci_bits_in((foci_range){ i - foci_arg_int(m, WINDOW), i + 1 }, j0) |
           (p < 0 ? 0 : foci_bits_in((foci_range){ p, p + 1 }, j0));
}

static void ring_tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    const int64_t w = foci_arg_int(m, WINDOW), p = foci_arg_int(m, PLACE);

    if (p >= 0) foci_tiles_cover(out, (foci_range){ p, p + 1 }, nothing);
    foci_tiles_cover(out, (foci_range){ rows.begin - w, rows.end }, nothing);
}

static int64_t ring_first_key(const foci_mech *m, int64_t n)
{
    return n - foci_arg_int(m, WINDOW);
}

static bool ring_pinned(const foci_mech *m, foci_range keys)
{
    const int64_t p = foci_arg_int(m, PLACE);
    return p >= keys.begin && p < keys.end;
}

/*
 * Raw keys of the own run; of the runs before, means: on each level those inside the
 * open run of the next, on the last all.
 */

enum { BLOCK, LEVELS, COUNT_BIAS };

static const foci_arg_def heap_args[] = {
    [BLOCK] = { .name = "block",
                .preset = 4,
                .min = 2,
                .max = 40,
                .help = "keys of a run" },
    [LEVELS] = { .name = "levels", .preset = 1, .min = 1, .max = 4, .help = "of runs" },
    [COUNT_BIAS] = { .name = "count_bias", .max = 1, .help = "means count as often" },
};

static int64_t power(int64_t b, int n) { return n ? b * power(b, n - 1) : 1; }

static uint64_t heap_mask(const foci_mech *m, int64_t i, int64_t j0)
{
    const int64_t b = foci_arg_int(m, BLOCK);
    return foci_bits_in((foci_range){ i / b * b, i / b * b + b }, j0);
}

static int heap_slots(const foci_mech *m, foci_slots levels[FOCI_MAX_LEVELS])
{
    const int n = (int)foci_arg_int(m, LEVELS);
    for (int l = 0; l < n; l++)
        levels[l] = (foci_slots){ .run_len = power(foci_arg_int(m, BLOCK), l + 1),
                                  .count_bias = m->arg[COUNT_BIAS] != 0 };
    return n;
}

/* The slots that token i sees. */
static foci_range heap_range(const foci_mech *m, int level, int64_t i)
{
    const int64_t b = foci_arg_int(m, BLOCK), own = i / power(b, level + 1);
    const bool    last = level + 1 == (int)foci_arg_int(m, LEVELS);
    return (foci_range){ last ? 0 : own / b * b, own };
}

static uint64_t heap_slot_mask(const foci_mech *m, int level, int64_t i, int64_t s0)
{
    return foci_bits_in(heap_range(m, level, i), s0);
}

static void heap_slot_tiles(const foci_mech *m, int level, foci_range rows,
                            foci_tile_list *out)
{
    const foci_range a = heap_range(m, level, rows.begin),
                     z = heap_range(m, level, rows.end - 1);
    foci_tiles_cover(out, (foci_range){ a.begin, z.end }, nothing);
}

static int64_t heap_first_key(const foci_mech *m, int64_t n)
{
    const int64_t b = foci_arg_int(m, BLOCK);
    return n / b * b;
}

static int64_t heap_first_slot(const foci_mech *m, int level, int64_t n)
{
    return heap_range(m, level, n).begin;
}

/*
 * All keys, and means of runs that nobody sees: none of them is needed, not even those
 * that there are not yet.
 */

static int blind_slots(const foci_mech *m, foci_slots levels[FOCI_MAX_LEVELS])
{
    (void)m;
    levels[0] = (foci_slots){ .run_len = 2 };
    return 1;
}

static uint64_t blind_slot_mask(const foci_mech *m, int level, int64_t i, int64_t s0)
{
    (void)m;
    (void)level;
    (void)i;
    (void)s0;
    return 0;
}

static int64_t blind_first_slot(const foci_mech *m, int level, int64_t n)
{
    (void)m;
    (void)level;
    (void)n;
    return INT64_MAX;
}

/*
 * Own run, and the last tokens of the runs before.
 */

enum { TAIL = 1 };

static const foci_arg_def tail_args[] = {
    [BLOCK] = { .name = "block",
                .preset = 9,
                .min = 6,
                .max = 40,
                .help = "keys of a run" },
    [TAIL] = { .name = "tail", .preset = 2, .min = 1, .max = 6, .help = "tokens kept" },
};

static int tail_slots(const foci_mech *m, foci_slots levels[FOCI_MAX_LEVELS])
{
    levels[0] = (foci_slots){ .run_len = foci_arg_int(m, BLOCK),
                              .tail = foci_arg_int(m, TAIL) };
    return 1;
}

static uint64_t tail_slot_mask(const foci_mech *m, int level, int64_t i, int64_t s0)
{
    (void)level;
    const foci_range before = { 0, i / foci_arg_int(m, BLOCK) * foci_arg_int(m, TAIL) };
    return foci_bits_in(before, s0);
}

/*
 * By label.
 */

enum { KIND, ROUNDS, AGAIN, SHARED, BAND };

static const foci_arg_def label_args[] = {
    [KIND] = { .name = "kind",
               .choices = "place|nearest|angular|floor",
               .help = "of label" },
    [ROUNDS] = { .name = "rounds", .preset = 1, .min = 1, .max = 5, .help = "of labels" },
    [AGAIN] = { .name = "again", .max = 1, .help = "keys weigh as often as they agree" },
    [SHARED] = { .name = "shared", .max = 1, .help = "keys are queries" },
    [BAND] = { .name = "band", .max = 1, .help = "by place: and the last five tokens" },
};

static const foci_label label_of[] = { FOCI_LABEL_PLACE, FOCI_LABEL_NEAREST,
                                       FOCI_LABEL_ANGULAR, FOCI_LABEL_FLOOR };

static void label_order(const foci_mech *m, foci_order *o)
{
    *o = (foci_order){ .label = label_of[foci_arg_int(m, KIND)],
                       .rounds = foci_arg_int(m, ROUNDS),
                       .width = 1.5,
                       .weigh_repeats = m->arg[AGAIN] != 0,
                       .shared_qk = m->arg[SHARED] != 0 };
}

static bool label_refuse(const foci_mech *m, char *why, size_t cap)
{
    const int  kind = (int)foci_arg_int(m, KIND);
    const bool place = label_of[kind] == FOCI_LABEL_PLACE;
    const bool one = place || label_of[kind] == FOCI_LABEL_NEAREST;

    snprintf(why, cap, "these arguments do not go together");
    return (one && m->arg[ROUNDS] != 1) || (place && m->arg[SHARED] != 0) ||
           (!place && m->arg[BAND] != 0);
}

static int64_t label_place(const foci_mech *m, int64_t i)
{
    (void)m;
    return i % 7;
}

static uint64_t label_mask(const foci_mech *m, int64_t i, int64_t j0)
{
    if (m->arg[BAND] == 0) return 0;
    return foci_bits_in((foci_range){ i - 4, i + 1 }, j0) &
           ~foci_bits_in((foci_range){ i, i + 1 }, j0);
}

static void label_c(const foci_mech *m, const double *arg, int64_t *shape)
{
    const foci_label kind = label_of[(int)arg[KIND]];

    shape[0] = kind == FOCI_LABEL_ANGULAR ? (int64_t)arg[ROUNDS] : 6;
    shape[1] = m->dims.qk;
    shape[2] = kind == FOCI_LABEL_ANGULAR ? 4 : 1;
    if (kind != FOCI_LABEL_ANGULAR && kind != FOCI_LABEL_NEAREST) shape[0] = 0;
}

static void label_a(const foci_mech *m, const double *arg, int64_t *shape)
{
    const bool floor = label_of[(int)arg[KIND]] == FOCI_LABEL_FLOOR;
    shape[0] = floor ? (int64_t)arg[ROUNDS] : 0;
    shape[1] = m->dims.qk;
}

static void label_b(const foci_mech *m, const double *arg, int64_t *shape)
{
    int64_t both[2];
    label_a(m, arg, both);
    shape[0] = both[0];
}

static const foci_tensor_def label_tensors[] = {
    { .name = "c",
      .n_dims = 3,
      .shape = label_c,
      .init = FOCI_INIT_NORMAL,
      .value = 1,
      .stream = 2000 },
    { .name = "a",
      .n_dims = 2,
      .shape = label_a,
      .init = FOCI_INIT_NORMAL,
      .value = 0.3,
      .stream = 2001 },
    { .name = "b",
      .n_dims = 1,
      .shape = label_b,
      .init = FOCI_INIT_UNIFORM,
      .value = 1.5,
      .stream = 2002 },
};

static const foci_mech_def kept[] = {
    { FOCI_SIZED(foci_mech_def), .name = "test_ring", .summary = "a window",
      .args = ring_args, .n_args = COUNT(ring_args), .reads = READS, .stochastic = true,
      .mask = ring_mask, .tiles = ring_tiles, .first_key = ring_first_key,
      .pinned = ring_pinned },
    { FOCI_SIZED(foci_mech_def), .name = "test_heap", .summary = "means of runs",
      .args = heap_args, .n_args = COUNT(heap_args), .reads = READS, .stochastic = true,
      .mask = heap_mask, .slots = heap_slots, .slot_mask = heap_slot_mask,
      .slot_tiles = heap_slot_tiles, .first_key = heap_first_key,
      .first_slot = heap_first_slot },
    { FOCI_SIZED(foci_mech_def), .name = "test_blind",
      .summary = "all keys, and means that nobody sees", .reads = READS,
      .stochastic = true, .slots = blind_slots, .slot_mask = blind_slot_mask,
      .first_slot = blind_first_slot },
    { FOCI_SIZED(foci_mech_def), .name = "test_tail", .summary = "ends of runs",
      .args = tail_args, .n_args = COUNT(tail_args), .reads = READS, .stochastic = true,
      .mask = heap_mask, .slots = tail_slots, .slot_mask = tail_slot_mask,
      .first_key = heap_first_key },
    { FOCI_SIZED(foci_mech_def), .name = "test_label",
      .summary = "tokens of equal label", .args = label_args,
      .n_args = COUNT(label_args), .tensors = label_tensors,
      .n_tensors = COUNT(label_tensors), .reads = READS, .stochastic = true,
      .refuse = label_refuse, .mask = label_mask, .order = label_order,
      .place = label_place },
};

void kept_register(foci_ctx *ctx)
{
    for (size_t t = 0; t < COUNT(kept); t++)
        if (foci_mechanism_register(ctx, &kept[t])) fail_msg("%s", foci_errmsg(ctx));
}
