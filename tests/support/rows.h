/* rows.h -- what a layer keeps of its forward pass. */
#ifndef FOCI_TESTS_ROWS_H
#define FOCI_TESTS_ROWS_H

#include "foci/layer.h"

/* Rows of q, k and v in io->saved, laid out as the plan's; NULL where the layer keeps
 * none.  io is that of the forward call, and its work memory is written. */
void rows_find(const foci_layer *layer, const foci_layer_io *io, const void *rows[3]);

#endif
