/* images.h -- images in a store. */
#ifndef FOCI_IMAGES_H
#define FOCI_IMAGES_H

#include "data/data.h"

/* One image of the store as numbers, [height][width][channels]. */
void images_floats(const foci_data *d, const void *pixels, float *out);

#endif
