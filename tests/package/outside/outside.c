/* outside.c -- a program that knows only what was installed. */
#include <stdio.h>
#include <stdlib.h>

#include <foci/analyse.h>
#include <foci/file.h>
#include <foci/foci.h>
#include <foci/mechanism.h>

enum { LEN = 100, DIM = 8 };

static float q[LEN][DIM], k[LEN][DIM], v[LEN][DIM], o[LEN][DIM];

/* With keys that are all alike, row i is the mean of the values up to i. */
int main(void)
{
    foci_ctx    *ctx;
    foci_plan   *plan;
    foci_problem p = { FOCI_SIZED(foci_problem) };
    if (foci_ctx_create(NULL, &ctx) || foci_problem_parse(ctx, "n100d8c", &p) ||
        foci_plan_create(ctx, "softmax", &p, &plan)) {
        fprintf(stderr, "%s\n", foci_errmsg(ctx));
        return 1;
    }
    for (int i = 0; i < LEN; i++)
        for (int d = 0; d < DIM; d++)
            v[i][d] = (float)i;
    void   *work = aligned_alloc(64, foci_plan_work_bytes(plan));
    foci_io io = { FOCI_SIZED(foci_io), .q = q, .k = k, .v = v, .o = o, .work = work };
    if (foci_forward(plan, &io)) return 1;
    printf("foci %s: %s, last row %.2f\n", foci_version(), foci_mechanism(ctx, 0)->name,
           (double)o[LEN - 1][0]);
    if (foci_npy_write(ctx, "o.npy", 2, (const int64_t[]){ LEN, DIM }, o[0])) return 1;
    free(work);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
    return 0;
}
