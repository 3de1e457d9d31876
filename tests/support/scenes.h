/* scenes.h -- all ways in which the library makes threads compute, small (scenes.c). */
#ifndef FOCI_SCENES_H
#define FOCI_SCENES_H

#include "test.h"

/* Attention forward and backward, groups of heads that share the threads, decoding by both
 * engines, a product of matrices; all in bf16 and large enough for several threads.  The
 * result is a checksum of all outputs, or 0 if a call failed. */
uint64_t scenes_run(foci_ctx *ctx);

#endif
