/* window.c -- a mechanism of one's own: attention to the nearest keys.
 *
 * mask() is the definition.  tiles() says which tiles of keys a tile of queries needs,
 * so that the rest is never looked at; the plan printed counts them.  With all logits
 * equal a row is the mean of the values in its window, which main() checks.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <foci/mechanism.h>

enum { LEN = 2000, DIM = 32, WIDTH = 100 };

static float q[LEN][DIM], k[LEN][DIM], v[LEN][DIM], o[LEN][DIM];

static uint64_t mask(const foci_mech *m, int64_t i, int64_t j0)
{
    const int64_t w = foci_arg_int(m, 0);
    return foci_bits_in((foci_range){ i - w, i + w + 1 }, j0);
}

/* Some of the queries see the hull; each of them sees the core. */
static void tiles(const foci_mech *m, foci_range rows, foci_tile_list *out)
{
    const int64_t w = foci_arg_int(m, 0);
    foci_tiles_cover(out, (foci_range){ rows.begin - w, rows.end + w },
                     (foci_range){ rows.end - 1 - w, rows.begin + w + 1 });
}

static const foci_arg_def args[] = {
    { .name = "width", .preset = 64, .max = 1 << 20, .help = "keys on each side" },
};

static const foci_mech_def window = {
    FOCI_SIZED(foci_mech_def),
    .name = "window",
    .summary = "softmax over the nearest keys",
    .args = args,
    .n_args = 1,
    .reads = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V,
    .stochastic = true,
    .mask = mask,
    .tiles = tiles,
};

int main(void)
{
    foci_ctx    *ctx;
    foci_plan   *plan;
    foci_problem p = { FOCI_SIZED(foci_problem) };
    char         text[1000];
    if (foci_ctx_create(NULL, &ctx) || foci_mechanism_register(ctx, &window) ||
        foci_problem_parse(ctx, "n2000d32", &p) ||
        foci_plan_create(ctx, "window(100)", &p, &plan)) {
        fprintf(stderr, "%s\n", foci_errmsg(ctx));
        return 1;
    }
    foci_plan_describe(plan, text, sizeof text);
    fputs(text, stdout);

    for (int i = 0; i < LEN; i++)
        for (int d = 0; d < DIM; d++)
            v[i][d] = (float)i;
    void *work = aligned_alloc(64, foci_plan_work_bytes(plan));
    int   wrong = foci_forward(plan, &(foci_io){ FOCI_SIZED(foci_io), .q = q, .k = k,
                                                 .v = v, .o = o, .work = work });
    for (int i = 0; i < LEN; i++) {
        const int first = i < WIDTH ? 0 : i - WIDTH;
        const int last = i + WIDTH < LEN ? i + WIDTH : LEN - 1;
        if (fabsf(o[i][0] - (float)(first + last) / 2) > 1e-2f) wrong++;
    }
    printf("%d of %d rows are not the mean of their window\n", wrong, LEN);
    free(work);
    foci_plan_free(plan);
    foci_ctx_free(ctx);
    return wrong != 0;
}
