/* measure.h -- the parts of foci_ctx_measure(). */
#ifndef FOCI_API_MEASURE_H
#define FOCI_API_MEASURE_H

#include "core/core.h"

/* Seconds of a clock that only goes forward. */
double measure_now(void);

/* Processor time of this thread, in seconds. */
double measure_busy(void);

/* copy_bytes, read_bytes and working_set of the machine (traffic.c). */
foci_status measure_traffic(foci_ctx *ctx, foci_machine *m);

#endif
