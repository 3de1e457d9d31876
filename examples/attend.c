/* attend.c -- causal softmax attention, as in the README.
 *
 * What to compute, a spec and a problem, makes a plan; the plan then computes, as often
 * as you like.  With v all ones the result is all ones, which main() checks.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <foci/foci.h>

enum { HEADS = 8, LEN = 1000, DIM = 64, COUNT = LEN * HEADS * DIM };

static float q[COUNT], k[COUNT], v[COUNT], o[COUNT];

/* README: begin */
static int attend(void)
{
    foci_ctx    *ctx;
    foci_plan   *plan;
    foci_problem p = { FOCI_SIZED(foci_problem) };
    if (foci_ctx_create(NULL, &ctx) || foci_problem_parse(ctx, "h8n1000d64c", &p) ||
        foci_plan_create(ctx, "softmax", &p, &plan))
        return fprintf(stderr, "%s\n", foci_errmsg(ctx));

    void   *work = aligned_alloc(64, foci_plan_work_bytes(plan));
    foci_io io = { FOCI_SIZED(foci_io), .q = q, .k = k, .v = v, .o = o, .work = work };
    foci_status status = foci_forward(plan, &io); /* [row][head][dim] in and out */
    free(work);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
    return status;
}
/* README: end */

int main(void)
{
    for (int i = 0; i < COUNT; i++) {
        q[i] = (float)(i % 17);
        k[i] = (float)(i % 13);
        v[i] = 1;
    }
    if (attend()) return 1;
    for (int i = 0; i < COUNT; i++)
        if (fabsf(o[i] - 1) > 1e-5f) {
            fprintf(stderr, "o[%d] is %g, not 1\n", i, (double)o[i]);
            return 1;
        }
    puts("every row of weights sums to one");
    return 0;
}
