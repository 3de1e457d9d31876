/* hopper.c -- the family of kernels for sm_90a: none are compiled in. */
#include "cuda/exact.h"

const struct cuda_family cuda_family_hopper = { .name = "hopper" };
