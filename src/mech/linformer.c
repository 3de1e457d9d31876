/* linformer.c -- softmax over a few learned mixtures of the keys.
 *
 *     o_i = sum_t softmax_t(s q_i.(E K)_t) (F V)_t
 *
 * Wang, Li, Khabsa, Fang and Ma, "Linformer: self-attention with linear complexity"
 * (2020).  Every mixture has keys of all positions, so this cannot be causal.  With
 * block=B it can: a row sees, in one softmax, the mixtures of the blocks of B keys before
 * its own, and the keys of its own up to itself.  Time O(n rank dim), memory O(rank dim).
 */
#include <stdio.h>

#include "mech/mech.h"

enum { RANK, SHARE, BLOCK };

enum { RANK_PRESET = 256 };

static const foci_arg_def args[] = {
    [RANK] = { .name = "rank",
               .preset = RANK_PRESET,
               .min = 1,
               .max = 65536,
               .help = "mixtures, at most as many as keys; of each block" },
    [SHARE] = { .name = "share",
                .preset = 1,
                .max = 1,
                .help = "1: values are mixed as keys are, F = E" },
    [BLOCK] = { .name = "block",
                .max = INT32_MAX,
                .help = "keys of a block, for causal problems; 0: all are one" },
};

static int64_t run_of(const foci_mech *m)
{
    const int64_t block = foci_arg_int(m, BLOCK);
    if (block) return block;
    return m->dims.planned > 0 ? m->dims.planned : 1;
}

/* A rank that was not asked for gives way. */
static int64_t rank_of(const foci_mech *m)
{
    const int64_t rank = foci_arg_int(m, RANK), run = run_of(m);
    return rank == RANK_PRESET && rank > run ? run : rank;
}

static bool refuse(const foci_mech *m, char *why, size_t cap)
{
    const bool block = m->arg[BLOCK] > 0;

    if (m->causal && !block)
        snprintf(why, cap,
                 "it cannot be causal: every mixture has keys of all positions; give "
                 "block= for mixtures of the blocks before");
    else if (!m->causal && block)
        snprintf(why, cap, "block= is for causal problems");
    else if (rank_of(m) > run_of(m))
        snprintf(why, cap, "rank=%lld is more than the %lld keys that are mixed",
                 (long long)rank_of(m), (long long)run_of(m));
    else
        return false;
    return true;
}

static void shape(const foci_mech *m, const double *arg, int64_t *shape)
{
    (void)arg;
    shape[0] = rank_of(m);
    shape[1] = run_of(m);
}

static void shape_f(const foci_mech *m, const double *arg, int64_t *out)
{
    shape(m, arg, out);
    if (arg[SHARE] > 0) out[0] = 0;
}

static double variance(const foci_mech *m, const double *arg)
{
    (void)arg;
    return 1 / (double)rank_of(m);
}

#define MIXTURE(n, s, text)                                                            \
    {                                                                                  \
        .name = n, .help = text, .n_dims = 2, .shape = (s), .init = FOCI_INIT_NORMAL,  \
        .value_of = variance, .stream = 2, .keep = FOCI_KEEP_TRAINED                   \
    }

static const foci_tensor_def tensors[] = {
    MIXTURE("E", shape, "mixtures of keys"),
    MIXTURE("F", shape_f, "mixtures of values, where they have their own"),
};

static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    const int64_t block = foci_arg_int(m, BLOCK);

    if (!block || i < 0) return 0;
    return foci_bits_in((foci_range){ i / block * block, i / block * block + block },
                        j0);
}

static void tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    const int64_t block = foci_arg_int(m, BLOCK);

    if (!block) return;
    for (int64_t u = rows.begin / block; u <= (rows.end - 1) / block; u++) {
        const foci_range keys = { u * block, (u + 1) * block };
        const bool       alone = keys.begin <= rows.begin && rows.end <= keys.end;
        foci_tiles_cover(out, keys, alone ? keys : (foci_range){ 0, 0 });
    }
}

static int slots(const foci_mech *m, foci_slots levels[FOCI_MAX_LEVELS])
{
    levels[0] = (foci_slots){ .run_len = run_of(m),
                              .learned = rank_of(m),
                              .all = m->arg[BLOCK] == 0 };
    return 1;
}

static foci_range slots_seen(const foci_mech *m, int64_t i)
{
    const int64_t block = foci_arg_int(m, BLOCK), rank = rank_of(m);
    if (!block) return (foci_range){ 0, rank };
    return (foci_range){ 0, i < 0 ? 0 : i / block * rank };
}

static uint64_t slot_mask(const foci_mech *m, int level, int64_t i, int64_t s0)
{
    (void)level;
    return foci_bits_in(slots_seen(m, i), s0);
}

static void slot_tiles(const foci_mech *m, int level, foci_range rows,
                       foci_tile_list *out)
{
    (void)level;
    foci_tiles_cover(out, slots_seen(m, rows.end - 1), slots_seen(m, rows.begin));
}

/* Decoding needs the raw keys of the block that is being filled. */
static int64_t first_key(const foci_mech *m, int64_t n)
{
    const int64_t block = foci_arg_int(m, BLOCK);
    return block ? n / block * block : 0;
}

const foci_mech_def mech_linformer = {
    FOCI_SIZED(foci_mech_def),
    .name = "linformer",
    .summary = "softmax over learned mixtures of the keys",
    .formula = "O = softmax(s Q (E K)^T) (F V)",
    .source = "Wang et al., Linformer: self-attention with linear complexity, 2020",
    .cost = "time n rank dim, memory rank dim",
    .args = args,
    .n_args = N_ELEMENTS(args),
    .tensors = tensors,
    .n_tensors = N_ELEMENTS(tensors),
    .engine = FOCI_ENGINE_EXACT,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .refuse = refuse,
    .mask = mask,
    .tiles = tiles,
    .slots = slots,
    .slot_mask = slot_mask,
    .slot_tiles = slot_tiles,
    .first_key = first_key,
};
