/* products.h -- checkers of the products. */
#ifndef FOCI_TESTS_KERN_PRODUCTS_H
#define FOCI_TESTS_KERN_PRODUCTS_H

#include "kern/run.h"

struct product {
    int m, n, k;
    int form; /* 0: rows of a are contiguous; 1: columns; 2: neither */
    int add;
};

static const struct product products[] = {
    { 64, 64, 64, 0, 0 }, { 64, 64, 64, 1, 1 },  { 128, 64, 64, 1, 1 },
    { 64, 80, 64, 0, 1 }, { 64, 128, 64, 0, 1 }, { 1, 16, 1, 0, 0 },
    { 1, 64, 0, 0, 0 },   { 1, 64, 0, 0, 1 },    { 5, 48, 3, 1, 1 },
    { 7, 32, 17, 0, 0 },  { 23, 16, 5, 1, 0 },   { 11, 112, 64, 2, 1 },
    { 6, 64, 33, 2, 0 },  { 3, 128, 7, 0, 1 },   { 8, 96, 2, 1, 0 },
    { 19, 16, 40, 0, 1 }, { 17, 32, 9, 2, 1 },   { 18, 32, 8, 1, 1 },
};

/* Sum of magnitudes of the products in element (i, j), times 2 (k + 2) E. */
static double product_bound(const struct product *x, const float *a, int64_t ra,
                            int64_t ca, const float *b, int64_t ldb, float c, int i,
                            int j)
{
    double sum = x->add ? fabs((double)c) : 0.0;

    for (int t = 0; t < x->k; t++)
        sum += fabs((double)a[i * ra + t * ca] * (double)b[t * ldb + j]);
    return 2.0 * (x->k + 2) * E * sum;
}

static void strides(const struct product *x, int64_t *ra, int64_t *ca, int64_t *n)
{
    *ra = x->form == 1 ? 1 : x->form == 2 ? 2 * x->k + 3 : x->k + 5;
    *ca = x->form == 1 ? x->m + 3 : x->form == 2 ? 2 : 1;
    *n = x->m && x->k ? (x->m - 1) * *ra + (x->k - 1) * *ca + 1 : 0;
}

static void name_product(struct run *r, const struct product *x, int data)
{
    static const char *const forms[] = { "rows", "columns", "strided" };

    snprintf(r->label, sizeof r->label, "%dx%dx%d %s%s data %d", x->m, x->n, x->k,
             forms[x->form], x->add ? " add" : "", data);
    r->work = 2.0 * x->m * x->n * x->k;
    r->is_flops = true;
}

static void try_gemm_f32(struct run *r, const struct product *x, enum data data)
{
    const int64_t ldb = x->n + 16, ldc = x->n + 32;
    int64_t       ra, ca, size;

    name_product(r, x, (int)data);
    strides(x, &ra, &ca, &size);
    const float *const a = floats(r, size, data);
    const float *const b = floats(r, x->k * ldb, NORMAL);
    float *const       c = inout(r, x->m * ldc, NORMAL);

    if (!r->bench)
        for (int i = 0; i < x->m; i++)
            for (int j = 0; j < x->n; j++)
                allow(r, c, i * ldc + j,
                      product_bound(x, a, ra, ca, b, ldb, c[i * ldc + j], i, j));
    while (next(r))
        r->k->gemm_f32(c, ldc, a, ra, ca, b, ldb, x->m, x->n, x->k, x->add);
}

static void check_gemm_f32(struct run *r)
{
    for (int i = 0; i < cases(r, 5, COUNT(products)); i++)
        for (int data = 0; data < cases(r, 1, N_DATA); data++)
            try_gemm_f32(r, &products[i], (enum data)data);
}

static void try_panel_f32(struct run *r, const struct product *x, enum data data)
{
    const int64_t ldo = LANES + 16, lds = LANES + 32;
    int64_t       ra, ca, size;

    name_product(r, x, (int)data);
    strides(x, &ra, &ca, &size);
    const float *const a = floats(r, size, data);
    const float *const b = floats(r, x->k * (int64_t)LANES, NORMAL);
    const float *const sums = floats(r, x->m * lds, NORMAL);
    float *const       out = output(r, x->m * ldo, sizeof *out, FLOATS);

    if (!r->bench)
        for (int i = 0; i < x->m; i++)
            for (int j = 0; j < LANES; j++)
                allow(r, out, i * ldo + j,
                      product_bound(x, a, ra, ca, b, LANES, sums[i * lds + j], i, j));
    while (next(r))
        r->k->panel_f32(&(struct panel_f32){ .out = out,
                                             .sums = x->add ? sums : NULL,
                                             .a = a,
                                             .b = b,
                                             .ldo = ldo,
                                             .lds = lds,
                                             .ra = ra,
                                             .ca = ca,
                                             .m = x->m,
                                             .k = x->k,
                                             .ahead = (const char *)b });
}

static void check_panel_f32(struct run *r)
{
    for (int i = 0; i < cases(r, 5, COUNT(products)); i++)
        for (int data = 0; data < cases(r, 1, N_DATA); data++) {
            struct product x = products[i];

            x.n = LANES;
            try_panel_f32(r, &x, (enum data)data);
        }
    for (int m = 1; m <= 24 && !r->bench; m++)
        try_panel_f32(r, &(struct product){ m, LANES, 9, m % 3, m % 2 }, NORMAL);
}

/* n random pairs, and their halves as floats. */
static uint32_t *pairs(struct run *r, int64_t n, enum data data)
{
    uint32_t *const w = take(r, (size_t)n * sizeof *w, false, HALVES);

    for (int64_t i = 0; i < n; i++) {
        const float x[2] = { draw(r, data), draw(r, data) };
        uint32_t    u[2];

        memcpy(u, x, sizeof u);
        w[i] = u[0] >> 16 | (u[1] & 0xffff0000);
    }
    return w;
}

static void try_gemm_bf16(struct run *r, struct product x, enum data data)
{
    struct thread_state before;

    if (r->now->sum_by_rows) { /* tiles */
        x.m = up(x.m, 16);
        x.k = up(x.k, 16);
        x.form = 0;
    }

    const int64_t ldb = x.n + 16, ldc = x.n + 32;
    int64_t       ra, ca, size;

    name_product(r, &x, (int)data);
    r->work *= 2.0;
    strides(&x, &ra, &ca, &size);
    const uint32_t *const a = pairs(r, size, data);
    const uint32_t *const b = pairs(r, x.k * ldb, NORMAL);
    float *const          c = inout(r, x.m * ldc, NORMAL);

    for (int i = 0; i < x.m && !r->bench; i++)
        for (int j = 0; j < x.n; j++) {
            double sum = x.add ? fabs((double)c[i * ldc + j]) : 0.0;
            for (int t = 0; t < x.k; t++) {
                const uint32_t p = a[i * ra + t * ca], q = b[t * ldb + j];
                sum +=
                    fabs((double)of_bf16((uint16_t)p) * (double)of_bf16((uint16_t)q));
                sum += fabs((double)of_bf16((uint16_t)(p >> 16)) *
                            (double)of_bf16((uint16_t)(q >> 16)));
            }
            /* Denormal operands count as 0: 2k of them, times 6 at most. */
            allow(r, c, i * ldc + j,
                  2.0 * (2 * x.k + 2) * E * sum + 12.0 * x.k * (double)FLT_MIN);
        }
    if (r->now->begin) r->now->begin(&before);
    while (next(r))
        r->k->gemm_bf16(c, ldc, a, ra, ca, b, ldb, x.m, x.n, x.k, x.add);
    if (r->now->end) r->now->end(&before);
}

static void check_gemm_bf16(struct run *r)
{
    for (int i = 0; i < cases(r, 5, COUNT(products)); i++)
        for (int data = 0; data < cases(r, 1, N_DATA); data++)
            try_gemm_bf16(r, products[i], (enum data)data);
}

#endif
