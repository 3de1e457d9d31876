/* device.h -- an accelerator behind a context: the library that drives it, opened when a
 * device is asked for, and the plans that run on it. */
#ifndef FOCI_DEVICE_H
#define FOCI_DEVICE_H

#include "cuda/interface.h"
#include "engine/engine.h"

struct device {
    const struct cuda_calls *calls;
    void                    *library; /* of dlopen(); NULL: calls were given */
    int                      index;
    char                     name[24]; /* "cuda:0" */
    struct cuda_info         info;
};

/* device.c: open the device that foci_options.device names; FOCI_ERR_DEVICE, with a message,
 * if that fails.  device_use() takes the calls as given, for tests. */
foci_status device_open(foci_ctx *ctx, const char *name);
foci_status device_use(foci_ctx *ctx, const char *name, const struct cuda_calls *calls,
                       void *library);
void        device_close(foci_ctx *ctx);

/* FOCI_ERR_DEVICE with the device's message for the error; FOCI_OK for 0. */
foci_status device_status(foci_ctx *ctx, int error, const char *doing);

/* foci_ctx_measure() of the device. */
foci_status device_measure(foci_ctx *ctx, foci_machine *machine);

/* device_check.c: FOCI_ERR_UNSUP, naming the reason, if the device does not implement a
 * stage. */
foci_status device_refuse(const foci_plan *plan, const struct stage *s);
/* Refuse pointers of the host and streams of other devices. */
foci_status device_check_io(const foci_plan *plan, const foci_io *io,
                            const foci_grads *grads, char *text, size_t cap);

/* device_exact.c: the data of a stage of the exact engine on the device. */
struct device_stage;
foci_status device_stage_make(foci_plan *plan, struct stage *s);
void        device_stage_free(foci_ctx *ctx, struct stage *s);

/* Zero the gradient of a bias, to which all stages add. */
foci_status device_clear_dbias(const foci_plan *plan, const foci_io *io,
                               const foci_grads *grads);

extern const struct engine engine_exact_device;

#endif
