/* layout.c -- where the rows of a tensor lie: strides filled in, and whether rows overlap. */
#include "plan/layout.h"

/* A stride of a caller; `filled` is what 0 stands for. */
static int64_t stride_of(int64_t given, int64_t filled)
{
    if (given == FOCI_BROADCAST) return 0;
    return given ? given : filled;
}

/* Elements that n rows of an axis take, at least one row. */
static bool span_of(int64_t stride, int64_t n, int64_t dim, int64_t *span)
{
    if (__builtin_mul_overflow(stride, n, span)) return false;
    *span = max64(*span, dim);
    return true;
}

bool layout_fill(foci_layout *l, struct extents e)
{
    int64_t heads, rows, batch;

    l->head = stride_of(l->head, e.dim);
    if (!span_of(l->head, e.heads, e.dim, &heads)) return false;
    l->row = stride_of(l->row, heads);
    if (!span_of(l->row, e.len, e.dim, &rows)) return false;
    l->batch = stride_of(l->batch, max64(heads, rows));
    if (!span_of(l->batch, e.batch, e.dim, &batch)) return false;
    return heads <= INT64_MAX / 64 && rows <= INT64_MAX / 64 && batch <= INT64_MAX / 64;
}

void layout_name_broadcasts(foci_layout *l)
{
    if (!l->batch) l->batch = FOCI_BROADCAST;
    if (!l->row) l->row = FOCI_BROADCAST;
    if (!l->head) l->head = FOCI_BROADCAST;
}

int64_t layout_span(const foci_layout *l, struct extents e)
{
    return e.dim + l->batch * (e.batch - 1) + l->row * (e.len - 1) +
           l->head * (e.heads - 1);
}

bool layout_overlaps(const foci_layout *l, struct extents e)
{
    struct axis {
        int64_t stride, n;
    } axes[] = { { l->head, e.heads }, { l->row, e.len }, { l->batch, e.batch } };
    int64_t inside = e.dim; /* elements that the axes seen so far take */

    for (int a = 1; a < 3; a++) /* sort them: the shortest stride first */
        for (int i = a; i > 0 && axes[i].stride < axes[i - 1].stride; i--) {
            const struct axis longer = axes[i - 1];
            axes[i - 1] = axes[i];
            axes[i] = longer;
        }
    for (int a = 0; a < 3; a++) {
        if (axes[a].n <= 1) continue;
        if (axes[a].stride < inside) return true;
        inside += axes[a].stride * (axes[a].n - 1);
    }
    return false;
}
