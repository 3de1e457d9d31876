/* ops.c -- the table of operations on the CPU. */
#include "train/ops.h"

const struct train_ops cpu_ops = {
    .embed_forward = foci_embed_forward,
    .embed_backward = foci_embed_backward,
    .norm_forward = foci_norm_forward,
    .norm_backward = foci_norm_backward,
    .product = foci_product,
    .product_backward = foci_product_backward,
    .act_forward = foci_act_forward,
    .act_backward = foci_act_backward,
    .conv_forward = foci_conv_forward,
    .conv_backward = foci_conv_backward,
    .pooling_forward = foci_pooling_forward,
    .pooling_backward = foci_pooling_backward,
    .loss_forward = foci_loss_forward,
    .loss_backward = foci_loss_backward,
    .logits = foci_logits,
    .layer_forward = foci_layer_forward,
    .layer_backward = foci_layer_backward,
    .adamw = foci_adamw,
    .squares = foci_squares,
};
