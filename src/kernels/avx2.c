/* avx2.c -- level "avx2": the bodies of kernels/common on 8 lanes. */
#include "simd/avx2.h"

#define ISA(name) name##_avx2
/* Two vectors of b by six rows: 12 sums, 2 + 1 operands of 16 registers. */
#define GEMM_VECS 2
#define GEMM_MOST 6
#include "kernels/common/table.c"

void kernels_avx2(struct kernels *k) { fill_avx2(k); }
