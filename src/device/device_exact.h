/* device_exact.h -- the data of a stage of exact attention on a device: the launch as far as
 * planning knows it, and uploaded tables. */
#ifndef FOCI_DEVICE_EXACT_H
#define FOCI_DEVICE_EXACT_H

#include "device/device.h"

struct device_stage {
    struct cuda_exact x;
    struct cuda_map   map;
    double            scale; /* of all heads, with log2(e) where x.score.scale has it */
    double            bias_unit; /* what biases by distance are multiplied by */
    const int32_t    *entry[2];  /* [n_rel] of tables over distances */
    int64_t           n_rel, rel0;
    size_t kernel_bytes[2]; /* work memory of kernels, forward and backward */
    void  *memory;          /* that the pointers point into */
};

/* Whether rows of q and k are mapped before their product; and the layout in which kernels
 * then read them: packed as [batch][row][head], in chunks of 16 bytes, or as given. */
bool        device_maps(const struct stage *s);
foci_layout device_rows(const struct stage *s, const foci_problem *p, bool keys);

/* log2(e) where weights are exponentials, else 1. */
double device_unit(const struct stage *s);

#endif
