/* attend.c -- causal softmax attention, the program of the README.
 *
 * What to compute, a spec and a problem, makes a plan; the plan then computes, as often
 * as you like.  With v all ones the result is all ones, which main() checks.
 */
/* README: begin */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <foci/foci.h>

enum { HEADS = 8, LEN = 1000, DIM = 64, COUNT = LEN * HEADS * DIM };

static float q[COUNT], k[COUNT], v[COUNT], o[COUNT]; /* [row][head][dim] */

static foci_status attend(void)
{
    foci_ctx    *ctx = NULL;
    foci_plan   *plan = NULL;
    foci_io      io = { FOCI_SIZED(foci_io), .q = q, .k = k, .v = v, .o = o };
    foci_problem p = { FOCI_SIZED(foci_problem), .flags = FOCI_FLAG_CAUSAL,
                       .heads = HEADS, .len_q = LEN, .dim_qk = DIM };

    foci_status status = foci_ctx_create(NULL, &ctx);
    if (!status) status = foci_plan_create(ctx, "softmax", &p, &plan);
    if (!status) io.work = aligned_alloc(64, foci_plan_work_bytes(plan));
    if (!status) status = foci_forward(plan, &io); /* as often as you like */
    if (status) fprintf(stderr, "%s\n", foci_errmsg(ctx));
    free(io.work);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
    return status;
}

int main(void)
{
    for (int i = 0; i < COUNT; i++) {
        q[i] = (float)(i % 17);
        k[i] = (float)(i % 13);
        v[i] = 1;
    }
    if (attend()) return EXIT_FAILURE;
    for (int i = 0; i < COUNT; i++)
        if (fabsf(o[i] - 1) > 1e-5f) return EXIT_FAILURE;
    puts("every row of weights sums to one");
    return EXIT_SUCCESS;
}
/* README: end */
