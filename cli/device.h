/* device.h -- executions on a device, for verbs whose tensors are in memory of the host. */
#ifndef FOCI_CLI_DEVICE_H
#define FOCI_CLI_DEVICE_H

#include "cli/cli.h"
#include "foci/mechanism.h"

struct device_block {
    void  *host, *there;
    size_t bytes;
    bool   result;
};

/* Copies, on the device, of the arguments of an execution. */
struct device_copy {
    foci_ctx           *ctx;
    foci_io             io;
    foci_grads          grads;
    struct device_block blocks[24];
    int                 n;
    foci_status         status; /* of the first call that failed */
};

/* Whether plans on ctx run on a device. */
bool on_device(const foci_ctx *ctx);

/* The message of a failure; that of the device, if there is one. */
const char *device_reason(const foci_ctx *ctx, foci_status status);

/* Copy all that io and grads (NULL: none) point to; results back; and free the copies,
 * which is needed after a failure too. */
foci_status device_send(foci_ctx *ctx, const foci_plan *plan, const foci_io *io,
                        const foci_grads *g, struct device_copy *c);
foci_status device_fetch(struct device_copy *c);
void        device_release(struct device_copy *c);

#endif
