/* table.c -- all bodies written on the vector vocabulary, and the slots they fill.
 *
 * The including file defines ISA(name) and GEMM_VECS and includes its vocabulary first.
 */
#include <string.h>

#include "foci/mechanism.h"
#include "kernels/kernels.h"
#include "simd/act.h"
#include "simd/tanh.h"
#include "simd/waves.h"

/* gemm_f32 */
typedef vf      gemm_vec;
INLINE gemm_vec gemm_row(const float *p) { return vf_load(p); }
INLINE gemm_vec gemm_all(const float *p) { return vf_set1(*p); }
INLINE vf       gemm_mac(gemm_vec a, gemm_vec b, vf c) { return vf_fma(a, b, c); }
#define GEMM_ELEM float
#include "kernels/common/gemm.c"

static void ISA(gemm_f32)(float *c, int64_t ldc, const float *a, int64_t ra, int64_t ca,
                          const float *b, int64_t ldb, int m, int n, int k, int add)
{
    ISA(gemm)(c, ldc, a, ra, ca, b, ldb, m, n, k, add);
}

#include "kernels/common/panel.c"

#include "kernels/common/row.c"

#include "kernels/common/band.c"
#include "kernels/common/decode.c"
#include "kernels/common/drop.c"
#include "kernels/common/epilogue.c"
#include "kernels/common/feature.c"
#include "kernels/common/grad.c"
#include "kernels/common/hadamard.c"
#include "kernels/common/labels.c"
#include "kernels/common/loss.c"
#include "kernels/common/means.c"
#include "kernels/common/modify.c"
#include "kernels/common/norm.c"
#include "kernels/common/peak.c"
#include "kernels/common/recur.c"
#include "kernels/common/rows.c"
#include "kernels/common/short_conv.c"
#include "kernels/common/sums.c"
#include "kernels/common/taps.c"
#include "kernels/common/update.c"

INLINE vf roll_pairs(vf low, vf high) { return vf_pair_bf16(low, high); }
#include "kernels/common/roll.c"
#include "kernels/common/rotate.c"
#include "kernels/common/weigh.c"

#include "kernels/common/chunk.c"

INLINE void ISA(fill)(struct kernels *k)
{
    k->gemm_f32 = ISA(gemm_f32);
    k->peak_f32 = ISA(peak_f32);
    k->read_streams = ISA(read_streams);
    k->panel_f32 = ISA(panel_f32);
    k->load_rows = ISA(load_rows);
    k->load_rows_prefetch = ISA(load_rows_prefetch);
    k->store_rows = ISA(store_rows);
    k->store_rows_by = ISA(store_rows_by);
    k->gemm_epilogue = ISA(gemm_epilogue);
    k->gemm_epilogue_back = ISA(gemm_epilogue_back);
    k->stream_rows = ISA(stream_rows);
    k->copy_rows = ISA(copy_rows);
    k->store_cols = ISA(store_cols);
    k->pack_cols_f32 = ISA(pack_cols_f32);
    k->modify = ISA(modify);
    k->weigh_f32 = ISA(weigh_f32);
    k->grad_f32 = ISA(grad_f32);
    k->grad_sums = ISA(grad_sums);
    k->shrink = ISA(shrink);
    k->row_dot = ISA(row_dot);
    k->best = ISA(best);
    k->match = ISA(match);
    k->rotate = ISA(rotate);
    k->feature = ISA(feature);
    k->feature_back = ISA(feature_back);
    k->products = ISA(products);
    k->products_back = ISA(products_back);
    k->add_logs = ISA(add_logs);
    k->waves = ISA(waves);
    k->log_softmax = ISA(log_softmax);
    k->log_softmax_back = ISA(log_softmax_back);
    k->rotate_lanes = ISA(rotate_lanes);
    k->skew = ISA(skew);
    k->unskew_f32 = ISA(unskew_f32);
    k->diagonals = ISA(diagonals);
    k->dropout_keys = ISA(dropout_keys);
    k->dropout_rows = ISA(dropout_rows);
    k->drop_f32 = ISA(drop_f32);
    k->dots_f32 = ISA(dots_f32);
    k->sums_f32 = ISA(sums_f32);
    k->weigh_row = ISA(weigh_row);
    k->recur = ISA(recur);
    k->carry = ISA(carry);
    k->log_key = ISA(log_key);
    k->log_query = ISA(log_query);
    k->near_f32 = ISA(near_f32);
    k->row_sums = ISA(row_sums);
    k->row_tops = ISA(row_tops);
    k->exp_rows = ISA(exp_rows);
    k->exp_cols = ISA(exp_cols);
    k->all_finite = ISA(all_finite);
    k->mean_rows = ISA(mean_rows);
    k->mean_back = ISA(mean_back);
    k->cube_rows = ISA(cube_rows);
    k->cube_back = ISA(cube_back);
    k->taps = ISA(taps);
    k->roll = ISA(roll);
    k->stream_end = stream_end;
    k->taps_back = ISA(taps_back);
    k->taps_dots = ISA(taps_dots);
    k->taps_sums = ISA(taps_sums);
    k->transpose_load = ISA(transpose_load);
    k->transpose_store = ISA(transpose_store);
    k->transpose_add = ISA(transpose_add);
    k->add_rows = ISA(add_rows);
    k->hadamard = ISA(hadamard);
    k->norm_rows = ISA(norm_rows);
    k->norm_back = ISA(norm_back);
    k->loss_row = ISA(loss_row);
    k->adamw = ISA(adamw);
    k->squares_f32 = ISA(squares_f32);
    k->move_to = ISA(move_to);
    k->add_scaled = ISA(add_scaled);
    k->col_sums = ISA(col_sums);
    k->conv_rows = ISA(conv_rows);
    k->conv_dots = ISA(conv_dots);
}
