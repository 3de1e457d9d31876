/* attend.h -- checkers of attention in one kernel, and of what prepares its operands. */
#ifndef FOCI_TESTS_KERN_ATTEND_H
#define FOCI_TESTS_KERN_ATTEND_H

#include "kern/rows.h"

/* Weights are bf16 on both sides, and the level's may miss theirs by as much again:
 * 2^-8 twice, and what a table of exponentials has. */
#define ATTEND 0.012

struct attend_case {
    int  dq, dv, n;
    bool held, masked, add;
    int  big; /* factor of logits: references must move */
};

static void check_attend_keys(struct run *r)
{
    for (int i = 0; i < cases(r, 3, COUNT(tiles)); i++)
        try_take(r, &tiles[i]);
}

static void check_attend_values(struct run *r) { check_attend_keys(r); }

static void check_seen_rows(struct run *r)
{
    for (int n = 64; n >= 0; n -= r->bench ? 65 : 3) {
        snprintf(r->label, sizeof r->label, "%d keys", n);
        r->work = 64 * 8;
        uint64_t *const seen = take(r, (size_t)n * sizeof *seen, false, BYTES);
        uint32_t *const out = output(r, 2 * LANES, sizeof *out, BYTES);

        for (int j = 0; j < n; j++)
            seen[j] = bits(r);
        while (next(r))
            r->k->seen_rows(out, seen, n);
    }
}

/* bf16 of normal numbers; the longest of rows of d has this norm. */
static double fill_halves(struct run *r, uint16_t *x, int rows, int d)
{
    double most = 0;

    for (int i = 0; i < rows; i++) {
        double sum = 0;
        for (int c = 0; c < d; c++) {
            const float y = draw(r, NORMAL);
            uint32_t    u;

            memcpy(&u, &y, sizeof u);
            x[i * d + c] = (uint16_t)(u >> 16);
            sum += (double)y * (double)y;
        }
        most = fmax(most, sqrt(sum));
    }
    return most;
}

/* Rows divided by the sums of their weights, and what they were divided by. */
static void normalise(const struct attend *a)
{
    for (int r = 0; r < LANES; r++) {
        const double sum = (double)a->l[r];

        for (int c = 0; c < a->dv && sum > 0; c++)
            a->o[r * a->ldo + c] = (float)((double)a->o[r * a->ldo + c] / sum);
        a->m[r] = sum > 0 ? (float)((double)a->m[r] + log2(sum)) : 0;
        a->l[r] = 0;
    }
}

static void try_attend(struct run *r, const struct attend_case *x)
{
    const int     tiles_of = (x->n + 1) / 2, rows = tiles_of * LANES;
    const int64_t ldo = up(x->dv, 32);

    snprintf(r->label, sizeof r->label, "d %d/%d, %d groups%s%s%s, logits by %d", x->dq,
             x->dv, x->n, x->held ? ", held" : "", x->masked ? ", masked" : "",
             x->add ? ", add" : "", x->big);
    r->work = 2.0 * LANES * ATTEND_KEYS * x->n * (x->dq + x->dv);
    r->is_flops = true;

    uint16_t *const q = take(r, (size_t)(LANES * x->dq) * sizeof *q, false, BYTES);
    uint16_t *const k = take(r, (size_t)(rows * x->dq) * sizeof *k, false, BYTES);
    uint16_t *const v = take(r, (size_t)(rows * x->dv) * sizeof *v, false, BYTES);
    uint32_t *const keys = take(r, (size_t)(rows * x->dq) * sizeof *k, false, BYTES);
    uint32_t *const values = take(r, (size_t)(rows * x->dv) * sizeof *v, false, BYTES);
    uint32_t *const seen = take(r, (size_t)x->n * LANES * 4, false, BYTES);
    float *const    f = floats(r, LANES, NORMAL);
    float *const    m = inout(r, LANES, NORMAL);
    float *const    o = inout(r, LANES * ldo, NORMAL);
    float *const    l = inout(r, LANES, NORMAL);
    uint32_t *const p = take(r, (size_t)(x->n * LANES * 16) * sizeof *p, false, BYTES);
    struct attend_group group[ATTEND_GROUPS];

    const double longest =
        fill_halves(r, q, LANES, x->dq) * fill_halves(r, k, rows, x->dq);
    fill_halves(r, v, rows, x->dv);
    for (int t = 0; t < tiles_of; t++) {
        r->ref->attend_keys(keys + t * 32 * x->dq, k + t * LANES * x->dq, x->dq, LANES,
                            x->dq, x->dq);
        r->ref->attend_values(values + t * 32 * x->dv, v + t * LANES * x->dv, x->dv,
                              LANES, x->dv, x->dv);
    }
    for (int g = 0; g < x->n; g++) {
        group[g] =
            (struct attend_group){ keys + g * 16 * x->dq, values + g * 16 * x->dv,
                                   x->masked ? seen + g * LANES : NULL };
        for (int i = 0; i < LANES; i++) /* some queries, and halves, see nothing */
            seen[g * LANES + i] =
                i % 9 == 3 || (g % 3 == 1 && i >= 32) ? 0 : (uint32_t)bits(r);
    }
    for (int i = 0; i < LANES; i++) {
        f[i] = (float)(x->big / sqrt(x->dq)) * (i % 5 == 4 ? -1.0f : 1.0f);
        m[i] = x->held  ? ceilf(fabsf(f[i]) * (float)longest)
               : x->add ? (float)(i % 7)
                        : -INFINITY;
        if (!x->add || !x->masked) continue;
        if (i % 9 == 3) m[i] = -INFINITY;
    }
    for (int i = 0; i < LANES; i++)
        l[i] = m[i] == -INFINITY ? 0 : fabsf(l[i]) * (x->held ? exp2f(-20) : 0.01f);
    for (int64_t i = 0; i < LANES * ldo; i++) {
        if (m[i / ldo] == -INFINITY) o[i] = 0;
        o[i] *= x->held ? exp2f(-20) : 0.01f;
        allow(r, o, i, 4 * ATTEND);
    }
    for (int i = 0; i < LANES; i++)
        allow(r, m, i, 2 * ATTEND);

    const struct attend a = { (const uint32_t *)(const void *)q,
                              x->dq,
                              x->dv,
                              group,
                              x->n,
                              f,
                              m,
                              x->held,
                              o,
                              ldo,
                              l,
                              x->add,
                              p };
    while (next(r)) {
        r->k->attend_bf16(&a);
        if (!r->bench) normalise(&a);
    }
}

static void check_attend_bf16(struct run *r)
{
    static const struct attend_case list[] = {
        { 64, 64, 64, true, false, false, 1 },  { 128, 128, 64, true, false, false, 1 },
        { 64, 64, 64, false, false, false, 1 }, { 64, 64, 64, true, true, false, 1 },
        { 64, 64, 2, true, false, true, 1 },    { 64, 64, 5, true, true, true, 1 },
        { 64, 64, 5, false, true, false, 1 },   { 64, 48, 7, false, true, true, 20 },
        { 64, 64, 3, false, false, true, 200 }, { 32, 16, 4, true, false, false, 1 },
        { 32, 32, 5, false, true, false, 20 },  { 96, 80, 4, true, true, false, 1 },
        { 96, 96, 3, false, false, false, 9 },  { 128, 112, 3, true, false, false, 1 },
        { 128, 128, 5, false, true, true, 20 }, { 160, 176, 4, true, true, true, 1 },
        { 256, 256, 3, false, true, false, 3 }, { 64, 64, 0, true, false, false, 1 },
        { 96, 64, 0, false, false, true, 1 },
    };

    struct thread_state before;

    if (r->now->begin) r->now->begin(&before);
    for (int i = 0; i < cases(r, 4, COUNT(list)); i++)
        try_attend(r, &list[i]);
    if (r->now->end) r->now->end(&before);
}

#endif
