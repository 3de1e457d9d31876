/* product.c -- products with what follows them, and their gradients. */
#include "ops/ops.h"

struct scene {
    foci_product_io    io;
    foci_product_grads g;
    struct tensor      a, b, bias, c, pre, residual;
    struct tensor      dc, pre_a, more, da, db, dbias;
    double            *z; /* a b + bias, [m][wide] */
    double            *dz;
};

static bool    has(const struct scene *s, uint32_t flag) { return s->io.flags & flag; }
static int64_t wide(const struct scene *s)
{
    return s->io.n * (has(s, FOCI_PRODUCT_GATED) ? 2 : 1);
}

static double a_of(const struct scene *s, int64_t i, int64_t t)
{
    return has(s, FOCI_PRODUCT_TRANSPOSE_A) ? s->a.x[t * s->io.m + i]
                                            : s->a.x[i * s->io.k + t];
}

static int64_t b_at(const struct scene *s, int64_t t, int64_t j)
{
    return has(s, FOCI_PRODUCT_TRANSPOSE_B) ? j * s->io.k + t : t * wide(s) + j;
}

/* Rows of tensors that are read and written are PAD elements further apart than they are long. */
enum { PAD = 3 };

/* Sums of products are good to their rounding in floats; factors have few bits. */
static double sum_off(const struct scene *s)
{
    return 4 * E * (double)(s->io.k + 8) * 4;
}

static void forward(foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    foci_product_io     io = s->io;

    io.work = scratch(foci_product_work_bytes(ctx, &io));
    must(ctx, foci_product(ctx, &io));
    free(io.work);
}

static void multiply(struct scene *s)
{
    const int64_t w = wide(s);

    for (int64_t i = 0; i < s->io.m; i++)
        for (int64_t j = 0; j < w; j++) {
            double sum = s->io.bias ? s->bias.x[j] : 0;

            for (int64_t t = 0; t < s->io.k; t++)
                sum += a_of(s, i, t) * s->b.x[b_at(s, t, j)];
            s->z[i * w + j] = sum;
        }
}

static double c_of(const struct scene *s, int64_t i, int64_t j)
{
    const double *const z = s->z + i * wide(s);
    double              c = act_of(s->io.act, z[j]);

    if (has(s, FOCI_PRODUCT_GATED)) c *= z[s->io.n + j];
    return c * kept(s->io.dropout, s->io.dropout_seed, i, j);
}

static void judge_forward(const foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    const int64_t       n = s->io.n, w = wide(s);

    (void)ctx;
    for (int64_t i = 0; i < s->io.m; i++)
        for (int64_t j = 0; j < n; j++) {
            const double z = s->z[i * w + j], u = w > n ? s->z[i * w + n + j] : 1;
            const double more = s->io.residual ? s->residual.x[i * (n + PAD) + j] : 0;
            const double off =
                (sum_off(s) + fabs(z) * act_off(s->io.act, s->io.type_c)) * 4 *
                (1 + fabs(z) + fabs(u));

            near("c", &s->c, i * (n + PAD) + j, c_of(s, i, j) + more,
                 off + 4 * E * fabs(more));
        }
    for (int64_t i = 0; i < s->io.m && s->io.pre; i++)
        for (int64_t j = 0; j < w; j++)
            near("pre", &s->pre, i * (w + PAD) + j, s->z[i * w + j], sum_off(s));
}

/* Numbers of few bits, which are the same in every type. */
static struct tensor coarse(foci_dtype dtype, int64_t n, double scale)
{
    struct tensor t = tensor_of(dtype, n);

    for (int64_t i = 0; i < n; i++)
        t.x[i] = scale * (double)(rng_below(&dice, 65) - 32) / 32;
    tensor_write(&t);
    return t;
}

/* Bits of `with`. */
enum { BIAS = 1, PRE = 2, RESIDUAL = 4, DROP = 8 };

static struct scene scene_make(foci_dtype dtype, foci_act act, uint32_t flags,
                               int64_t m, int64_t n, int64_t k, int with)
{
    struct scene  s = { .io = { FOCI_SIZED(foci_product_io), .flags = flags, .n = n } };
    const int64_t w = wide(&s);

    s.a = coarse(dtype, m * k, 1);
    s.b = coarse(FOCI_F32, k * w, 2 / sqrt((double)k + 1) > 0.25 ? 1 : 0.25);
    s.bias = coarse(FOCI_F32, w, 1);
    s.c = tensor_of(dtype, m * (n + PAD));
    s.pre = tensor_of(dtype, m * (w + PAD));
    s.residual = coarse(dtype, m * (n + PAD), 1);
    s.z = test_alloc((size_t)(m * w), sizeof *s.z);
    s.io = (foci_product_io){ FOCI_SIZED(foci_product_io),
                              .m = m,
                              .n = n,
                              .k = k,
                              .a = s.a.data,
                              .b = s.b.data,
                              .c = s.c.data,
                              .type_a = dtype,
                              .type_b = FOCI_F32,
                              .type_c = dtype,
                              .ld_c = n + PAD,
                              .flags = flags,
                              .bias = with & BIAS ? s.bias.data : NULL,
                              .act = act,
                              .pre = with & PRE ? s.pre.data : NULL,
                              .ld_pre = w + PAD,
                              .residual = with & RESIDUAL ? s.residual.data : NULL,
                              .ld_residual = n + PAD,
                              .dropout = with & DROP ? 0.25 : 0,
                              .dropout_seed = rng_u64(&dice) };
    multiply(&s);
    return s;
}

static void scene_free(struct scene *s)
{
    struct tensor *const all[] = { &s->a,    &s->b,        &s->bias, &s->c,
                                   &s->pre,  &s->residual, &s->dc,   &s->pre_a,
                                   &s->more, &s->da,       &s->db,   &s->dbias };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    free(s->z);
    free(s->dz);
}

static void try(foci_dtype dtype, foci_act act, uint32_t flags, int64_t m, int64_t n,
                int64_t k, int with)
{
    struct scene s = scene_make(dtype, act, flags, m, n, k, with);
    struct outs  o = { .n = 0 };

    outs_add(&o, &s.c);
    if (with & PRE) outs_add(&o, &s.pre);
    each_level(&o, &s, forward, judge_forward, "product");
    outs_free(&o);
    scene_free(&s);
}

/* In the short form one case of three, so that all that can be combined is still met. */
static bool left_out(int number) { return number % 3 && getenv("FOCI_TEST_SHORT"); }

/* Everything that can follow, in the ways that products take: few rows, and many. */
static void following(void **state)
{
    static const int64_t rows[] = { 1, 5, 20 };

    (void)state;
    for (int act = FOCI_ACT_NONE; act <= FOCI_ACT_SILU; act++)
        for (int with = 0; with < 16; with++)
            for (int r = 0; r < 3; r++) {
                const uint32_t flags = (act + with) % 2 ? FOCI_PRODUCT_TRANSPOSE_B : 0;

                if (left_out(act + with + r)) continue;
                try(types[(with + r) % 3], (foci_act)act, flags, rows[r], 9, 7, with);
                try(types[(with + act) % 3], (foci_act)act,
                    flags ^ (FOCI_PRODUCT_GATED | (r ? FOCI_PRODUCT_TRANSPOSE_B : 0)),
                    rows[r], 11, 6, with);
            }
}

/* More columns than a panel, more terms than a block, rows and columns of several jobs. */
static void large(void **state)
{
    const int all = BIAS | PRE | RESIDUAL | DROP;

    (void)state;
    for (int t = 0; t < 2; t++)
        for (int form = 0; form < 4; form++) {
            const uint32_t flags = (form & 1 ? FOCI_PRODUCT_TRANSPOSE_B : 0) |
                                   (form & 2 ? FOCI_PRODUCT_TRANSPOSE_A : 0);

            if (left_out(form + 2 * t)) continue;
            try(types[t], FOCI_ACT_GELU, flags, 103, 130, 40, all);
            try(types[t], FOCI_ACT_SILU, flags | FOCI_PRODUCT_GATED, 103, 130, 40, all);
            if (form > 1) continue;
            try(types[t], FOCI_ACT_SILU, flags | FOCI_PRODUCT_GATED, 33, 70, 1100, all);
            try(types[t], FOCI_ACT_RELU, flags | FOCI_PRODUCT_GATED, 7, 1100, 33, all);
            try(types[t], FOCI_ACT_GELU, flags | FOCI_PRODUCT_GATED, 12, 1100, 33, all);
        }
    try(FOCI_F32, FOCI_ACT_GELU, FOCI_PRODUCT_GATED, 20, 3, 0, BIAS | PRE);
}

/* The residual may be c. */
static void in_place(void **state)
{
    foci_ctx *const ctx = best_ctx();
    struct scene    s =
        scene_make(FOCI_BF16, FOCI_ACT_GELU, 0, 21, 70, 33, BIAS | RESIDUAL | DROP);

    (void)state;
    forward(ctx, &s);
    s.io.c = s.residual.data;
    forward(ctx, &s);
    for (int64_t i = 0; i < 21; i++)
        assert_memory_equal((uint16_t *)s.c.data + i * (70 + PAD),
                            (uint16_t *)s.residual.data + i * (70 + PAD), 2 * 70);
    scene_free(&s);
}

/*
 * Gradients
 */

static double act_slope(foci_act act, double x)
{
    const double h = 1e-5;

    if (act == FOCI_ACT_RELU) return x > 0;
    return (act_of(act, x + h) - act_of(act, x - h)) / (2 * h);
}

static void backward(foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    foci_product_grads  g = s->g;

    g.work = scratch(foci_product_grads_work_bytes(ctx, &s->io, &g));
    must(ctx, foci_product_backward(ctx, &s->io, &g));
    free(g.work);
}

/* The gradient of a b + bias, from that of c and `pre` as it is stored. */
static void differentiate(struct scene *s)
{
    const int64_t n = s->io.n, w = wide(s);

    for (int64_t i = 0; i < s->io.m; i++)
        for (int64_t j = 0; j < n; j++) {
            const double z = s->pre.x[i * (w + PAD) + j];
            double       d = s->dc.x[i * n + j];

            if (s->g.dc_is_dz) {
                s->dz[i * w + j] = s->dc.x[i * w + j];
                if (w > n) s->dz[i * w + n + j] = s->dc.x[i * w + n + j];
                continue;
            }
            d *= kept(s->io.dropout, s->io.dropout_seed, i, j);
            s->dz[i * w + j] = d * act_slope(s->io.act, z);
            if (w == n) continue;
            s->dz[i * w + j] *= s->pre.x[i * (w + PAD) + n + j];
            s->dz[i * w + n + j] = d * act_of(s->io.act, z);
        }
}

/* What rounding dz, and what is made of it, makes of a sum of so much. */
static double rounds(const struct scene *s, double size)
{
    const bool   made = !s->g.dc_is_dz;
    const double once = half_unit(s->io.type_c) + 3e-4 * (s->io.type_c == FOCI_BF16);

    /* f16 becomes bf16 where products are of it. */
    return size * ((made ? 3 * once : 0) + (s->io.type_a == FOCI_F16 ? 0x1p-7 : 0) +
                   64 * E) +
           1e-6;
}

/* dz b^T in row i, column t, and the sum of the sizes. */
static double da_of(const struct scene *s, int64_t i, int64_t t, double *size)
{
    const int64_t w = wide(s);
    double        sum = 0;

    *size = 0;
    for (int64_t j = 0; j < w; j++) {
        const double x = s->dz[i * w + j] * s->b.x[b_at(s, t, j)];
        sum += x;
        *size += fabs(x);
    }
    return sum;
}

static void judge_da(const struct scene *s)
{
    const foci_product_grads *g = &s->g;
    const int64_t             k = s->io.k, wa = k * (g->gated_a ? 2 : 1);

    for (int64_t i = 0; i < s->io.m; i++)
        for (int64_t t = 0; t < k; t++) {
            double       size, d = da_of(s, i, t, &size);
            const double off = rounds(s, size) * 4;

            d *= kept(g->dropout_a, g->dropout_a_seed, i, t);
            if (!g->pre_a) {
                const double more = g->da_more ? s->more.x[i * k + t] : 0;
                near("da", &s->da, i * k + t, d + more, off);
                continue;
            }
            const double x = s->pre_a.x[i * wa + t];
            const double u = g->gated_a ? s->pre_a.x[i * wa + k + t] : 1;
            const double loose = (off + fabs(d) * act_off(g->act_a, s->io.type_a) * 8) *
                                 (1.2 + fabs(u) + fabs(x));

            near("d_pre_a", &s->da, i * wa + t, d * u * act_slope(g->act_a, x), loose);
            if (g->gated_a)
                near("d_pre_a up", &s->da, i * wa + k + t, d * act_of(g->act_a, x),
                     loose);
        }
}

static void judge_backward(const foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    const int64_t       w = wide(s);

    (void)ctx;
    judge_da(s);
    for (int64_t j = 0; j < w; j++) {
        double sum = 0.5, size = 1;

        for (int64_t i = 0; i < s->io.m; i++) {
            sum += s->dz[i * w + j];
            size += fabs(s->dz[i * w + j]);
        }
        near("dbias", &s->dbias, j, sum, rounds(s, size));
        for (int64_t t = 0; t < s->io.k; t++) {
            double x = 0.5, all = 1;

            for (int64_t i = 0; i < s->io.m; i++) {
                x += a_of(s, i, t) * s->dz[i * w + j];
                all += fabs(a_of(s, i, t) * s->dz[i * w + j]);
            }
            near("db", &s->db, b_at(s, t, j), x, rounds(s, all));
        }
    }
}

static struct tensor halves(int64_t n)
{
    struct tensor t = tensor_of(FOCI_F32, n);

    for (int64_t i = 0; i < n; i++)
        t.x[i] = 0.5;
    tensor_write(&t);
    return t;
}

/* How a came to be. */
enum { A_PLAIN, A_ACT, A_GATED, A_MORE, A_DROPPED };

static void grads_make(struct scene *s, int form, bool is_dz)
{
    const foci_dtype dtype = s->io.type_c;
    const int64_t    m = s->io.m, k = s->io.k, w = wide(s);
    const int64_t    wa = form == A_GATED ? 2 * k : k;

    s->dc = coarse(dtype, m * (is_dz ? w : s->io.n), 1);
    s->pre_a = coarse(dtype, m * wa, 2);
    s->more = coarse(dtype, m * k, 1);
    s->da = tensor_of(dtype, m * wa);
    s->db = halves(k * w);
    s->dbias = halves(w);
    s->dz = test_alloc((size_t)(m * w), sizeof *s->dz);
    s->io.c = NULL;
    s->g = (foci_product_grads){
        FOCI_SIZED(foci_product_grads),
        .dc = s->dc.data,
        .dc_is_dz = is_dz,
        .da = s->da.data,
        .da_more = form == A_MORE ? s->more.data : NULL,
        .db = s->db.data,
        .dbias = s->dbias.data,
        .act_a = form == A_ACT     ? FOCI_ACT_GELU
                 : form == A_GATED ? FOCI_ACT_SILU
                                   : FOCI_ACT_NONE,
        .gated_a = form == A_GATED,
        .pre_a = form == A_ACT || form == A_GATED ? s->pre_a.data : NULL,
        .dropout_a = form == A_ACT || form == A_DROPPED ? 0.25 : 0,
        .dropout_a_seed = rng_u64(&dice)
    };
}

static void try_back(foci_dtype dtype, foci_act act, uint32_t flags, int64_t m,
                     int64_t n, int64_t k, int with, int form, bool is_dz)
{
    struct scene s = scene_make(dtype, act, flags, m, n, k, with | PRE);
    struct outs  o = { .n = 0 };

    forward(best_ctx(), &s);
    tensor_read(&s.pre);
    grads_make(&s, form, is_dz);
    differentiate(&s);
    outs_add(&o, &s.da);
    outs_add(&o, &s.db);
    outs_add(&o, &s.dbias);
    each_level(&o, &s, backward, judge_backward, "product backward");
    outs_free(&o);
    scene_free(&s);
}

static void gradients(void **state)
{
    (void)state;
    for (int act = FOCI_ACT_NONE; act <= FOCI_ACT_SILU; act++)
        for (int form = A_PLAIN; form <= A_DROPPED; form++)
            for (int more = 0; more < 8; more++) {
                const uint32_t flags = (more & 1 ? FOCI_PRODUCT_TRANSPOSE_B : 0) |
                                       (more & 2 ? FOCI_PRODUCT_GATED : 0);
                const int64_t m = (act + form + more) % 2 ? 5 : 21;

                if (left_out(act + form + more / 2)) continue;

                try_back(types[(act + form + more) % 3], (foci_act)act, flags, m, 9, 13,
                         act % 2 ? BIAS | DROP : 0, form, more & 4);
            }
}

static void large_gradients(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int form = A_PLAIN; form <= A_MORE; form++) {
            if (left_out(form + 2 * t)) continue;
            try_back(types[t], FOCI_ACT_GELU, 0, 140, 70, 66, BIAS, form, false);
            try_back(types[t], FOCI_ACT_NONE, FOCI_PRODUCT_TRANSPOSE_B, 133, 66, 130, 0,
                     form, true);
        }
}

/* No more than is asked for. */
static void some(void **state)
{
    foci_ctx *const ctx = best_ctx();
    struct scene    s = scene_make(FOCI_F32, FOCI_ACT_NONE, 0, 4, 5, 6, 0);
    struct scene    t;

    (void)state;
    grads_make(&s, A_MORE, false);
    t = s;
    t.g.da = s.more.data;
    t.g.db = t.g.dbias = NULL;
    backward(ctx, &s);
    backward(ctx, &t);
    assert_memory_equal(s.da.data, s.more.data, bytes_of_tensor(&s.da));
    s.io.m = 0;
    backward(ctx, &s);
    scene_free(&s);
}

static void refused(void **state)
{
    foci_ctx *const    ctx = best_ctx();
    struct scene       s = scene_make(FOCI_F32, FOCI_ACT_GELU, 0, 4, 5, 6, PRE);
    foci_product_io    io;
    foci_product_grads g;

    (void)state;
    grads_make(&s, A_ACT, false);
    io = s.io, io.act = (foci_act)7, io.c = s.c.data;
    REFUSED(ctx, foci_product(ctx, &io), "activation 7");
    io = s.io, io.dropout = 1;
    REFUSED(ctx, foci_product(ctx, &io), "dropout is 0 to below 1");
    io = s.io, io.flags = FOCI_PRODUCT_ADD;
    REFUSED(ctx, foci_product(ctx, &io), "nothing follows");
    io = s.io, io.ld_pre = 2;
    REFUSED(ctx, foci_product(ctx, &io), "rows of pre are 5");
    io = s.io, io.ld_residual = 2;
    REFUSED(ctx, foci_product(ctx, &io), "rows of residual are 5");
    io = s.io, io.flags = FOCI_PRODUCT_GATED, io.n = INT64_MAX / 2 + 1;
    REFUSED(ctx, foci_product(ctx, &io), "apart");

    io = s.io, g = s.g;
    REFUSED(ctx, foci_product_backward(ctx, &io, &g), "work is missing");
    g.size = 3;
    REFUSED(ctx, foci_product_backward(ctx, &io, &g), "foci_product_grads.size is 3");
    assert_true(foci_product_grads_work_bytes(ctx, &io, &g) == SIZE_MAX);
    REFUSED(ctx, foci_product_backward(ctx, &io, NULL),
            "foci_product_grads: the pointer is NULL");
    g = s.g, g.pre_a = NULL;
    REFUSED(ctx, foci_product_backward(ctx, &io, &g), "pre_a is missing");
    g = s.g, g.dc = NULL;
    REFUSED(ctx, foci_product_backward(ctx, &io, &g), "dc is missing");
    g = s.g, io.pre = NULL;
    REFUSED(ctx, foci_product_backward(ctx, &io, &g), "pre is missing");
    io = s.io, io.a = NULL;
    REFUSED(ctx, foci_product_backward(ctx, &io, &g), "a or b is missing");
    io = s.io, g.act_a = (foci_act)8;
    REFUSED(ctx, foci_product_backward(ctx, &io, &g), "activation 8");
    g = s.g, g.gated_a = 1, g.da_more = s.more.data;
    REFUSED(ctx, foci_product_backward(ctx, &io, &g), "nothing can be added to da");
    g = s.g, g.ld_dc = 2;
    REFUSED(ctx, foci_product_backward(ctx, &io, &g), "rows of dc are 5");
    g = s.g, g.ld_db = 2;
    REFUSED(ctx, foci_product_backward(ctx, &io, &g), "rows of db are 5");
    g = s.g, io.flags = FOCI_PRODUCT_TRANSPOSE_A;
    assert_int_equal(foci_product_backward(ctx, &io, &g), FOCI_ERR_UNSUP);
    assert_int_equal(foci_product_backward(NULL, &io, &g), FOCI_ERR_ARG);
    scene_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(following),       cmocka_unit_test(large),
        cmocka_unit_test(in_place),        cmocka_unit_test(gradients),
        cmocka_unit_test(large_gradients), cmocka_unit_test(some),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_levels, close_levels);
}
