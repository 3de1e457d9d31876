/* columns.h -- sums of rows, the same for every number of threads. */
#ifndef FOCI_PRODUCT_COLUMNS_H
#define FOCI_PRODUCT_COLUMNS_H

#include "core/core.h"

/* Rows of a tensor, ld apart. */
struct product_columns {
    foci_dtype  dtype;
    int64_t     rows, width, ld;
    const void *in;
};

/* Rows are summed SUM_ROWS at a time, and these sums in order. */
enum { SUM_ROWS = 128 };

/* Memory for the partial sums of `rows` rows. */
float *columns_alloc(struct arena *a, int64_t rows, int64_t width);
/* out[width] += the sum of the rows; partial from columns_alloc(). */
void columns_sum(const foci_ctx *ctx, const struct product_columns *r, float *out,
                 float *partial);
/* out[width] += n partial sums, ld apart, in their order. */
void columns_add(const foci_ctx *ctx, const float *partial, int64_t n, int64_t width,
                 int64_t ld, float *out);

#endif
