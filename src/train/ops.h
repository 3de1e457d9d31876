/* ops.h -- the operations that models are made of, as a table that a device may replace.
 * Arguments and contracts are those of foci/ops.h, foci/product.h and foci/layer.h. */
#ifndef FOCI_TRAIN_OPS_H
#define FOCI_TRAIN_OPS_H

#include "foci/layer.h"
#include "foci/ops.h"

struct train_ops {
    foci_status (*embed_forward)(foci_ctx *, const foci_embed_io *);
    foci_status (*embed_backward)(foci_ctx *, const foci_embed_io *);
    foci_status (*norm_forward)(foci_ctx *, const foci_norm_io *);
    foci_status (*norm_backward)(foci_ctx *, const foci_norm_io *);
    foci_status (*product)(foci_ctx *, const foci_product_io *);
    foci_status (*product_backward)(foci_ctx *, const foci_product_io *,
                                    const foci_product_grads *);
    foci_status (*act_forward)(foci_ctx *, const foci_act_io *);
    foci_status (*act_backward)(foci_ctx *, const foci_act_io *);
    foci_status (*conv_forward)(foci_ctx *, const foci_conv_io *);
    foci_status (*conv_backward)(foci_ctx *, const foci_conv_io *);
    foci_status (*pooling_forward)(foci_ctx *, const foci_pooling_io *);
    foci_status (*pooling_backward)(foci_ctx *, const foci_pooling_io *);
    foci_status (*loss_forward)(foci_ctx *, const foci_loss_io *, foci_loss_sums *);
    foci_status (*loss_backward)(foci_ctx *, const foci_loss_io *, foci_loss_sums *);
    foci_status (*logits)(foci_ctx *, const foci_logits_io *);
    foci_status (*layer_forward)(const foci_layer *, const foci_layer_io *);
    foci_status (*layer_backward)(const foci_layer *, const foci_layer_io *,
                                  const foci_layer_grads *);
    foci_status (*adamw)(foci_ctx *, const foci_adamw_io *);
    foci_status (*squares)(foci_ctx *, const foci_segment *, int64_t, const float *,
                           void *, double *);
};

extern const struct train_ops cpu_ops;

#endif
