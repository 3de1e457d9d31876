/* avx512.c -- the common bodies on 16 lanes. */
#include "simd/avx512.h"

#define ISA(name) name##_avx512
/* Four vectors of b by six rows: 24 sums, 4 + 1 operands of 32 registers. */
#define GEMM_VECS 4
#define GEMM_MOST 12
#include "kernels/common/table.c"

void kernels_avx512(struct kernels *k) { fill_avx512(k); }
