/* embed.c -- tables of ids and positions, and sums of gradients that rows share. */
#include "ops/ops.h"

enum { VOCAB = 7, PLACES = 40 };

struct scene {
    foci_embed_io io;
    struct tensor table, positions, x, y, dy, dtable, dpositions, dx;
    int32_t      *ids, *lens, *first;
};

static double scale_of(const foci_embed_io *io)
{
    return io->scale == 0 ? 1 : io->scale;
}

static double y_of(const struct scene *s, int64_t row, int64_t c)
{
    const foci_embed_io *io = &s->io;
    const int64_t        b = row / io->len, i = row % io->len;
    double               y = 0;

    if (io->lens && i >= io->lens[b]) return 0;
    if (io->ids) y += scale_of(io) * s->table.x[io->ids[row] * io->width + c];
    if (io->positions)
        y += s->positions.x[((io->first ? io->first[b] : 0) + i) * io->width + c];
    if (io->x) y += s->x.x[row * io->width + c];
    return y * kept(io->dropout, io->dropout_seed, row, c);
}

static void forward(foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    must(ctx, foci_embed_forward(ctx, &s->io));
}

static void judge_forward(const foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;

    (void)ctx;
    for (int64_t i = 0; i < s->y.n; i++)
        near("y", &s->y, i, y_of(s, i / s->io.width, i % s->io.width), 16 * E);
}

static void backward(foci_ctx *ctx, void *arg)
{
    const struct scene *s = arg;
    must(ctx, foci_embed_backward(ctx, &s->io));
}

/* Each number of dy, as far as it is not dropped, meets one of each tensor. */
static void judge_backward(const foci_ctx *ctx, void *arg)
{
    const struct scene  *s = arg;
    const foci_embed_io *io = &s->io;
    double *const        dtable = test_alloc((size_t)s->table.n, sizeof *dtable);
    double *const        dplaces = test_alloc((size_t)s->positions.n, sizeof *dplaces);

    (void)ctx;
    for (int64_t i = 0; i < s->dy.n; i++) {
        const int64_t row = i / io->width, c = i % io->width, b = row / io->len;
        const int64_t at = (io->first ? io->first[b] : 0) + row % io->len;
        double        d = s->dy.x[i] * kept(io->dropout, io->dropout_seed, row, c);

        if (io->lens && row % io->len >= io->lens[b])
            d = 0;
        else if (io->ids)
            dtable[io->ids[row] * io->width + c] += scale_of(io) * d;
        if (d != 0) dplaces[at * io->width + c] += d;
        if (io->dx) near("dx", &s->dx, i, d, 4 * E * fabs(d));
    }
    for (int64_t i = 0; i < s->table.n && io->dtable; i++)
        near("dtable", &s->dtable, i, 0.5 + dtable[i], 1e-5);
    for (int64_t i = 0; i < s->positions.n && io->dpositions; i++)
        near("dpositions", &s->dpositions, i, 0.5 + dplaces[i], 1e-5);
    free(dtable);
    free(dplaces);
}

/* Bits of `with`: ids, positions, x, lengths, first positions, dropout, a scale. */
enum { IDS = 1, POSITIONS = 2, X = 4, LENS = 8, FIRST = 16, DROP = 32, SCALE = 64 };

static struct scene scene_make(foci_dtype dtype, int64_t batch, int64_t len,
                               int64_t width, int with)
{
    const int64_t n = batch * len * width;
    struct scene  s = { .table = tensor_draw(FOCI_F32, VOCAB * width, 1),
                        .positions = tensor_draw(FOCI_F32, PLACES * width, 1),
                        .x = tensor_draw(dtype, n, 1),
                        .y = tensor_of(dtype, n),
                        .dy = tensor_draw(dtype, n, 1),
                        .dtable = tensor_of(FOCI_F32, VOCAB * width),
                        .dpositions = tensor_of(FOCI_F32, PLACES * width),
                        .dx = tensor_of(dtype, n),
                        .ids = test_alloc((size_t)(batch * len), sizeof(int32_t)),
                        .lens = test_alloc((size_t)batch, sizeof(int32_t)),
                        .first = test_alloc((size_t)batch, sizeof(int32_t)) };

    for (int64_t i = 0; i < batch * len; i++)
        s.ids[i] = (int32_t)rng_below(&dice, VOCAB);
    for (int64_t b = 0; b < batch; b++) {
        s.lens[b] = (int32_t)(b ? rng_below(&dice, len + 1) : 0);
        s.first[b] = (int32_t)rng_below(&dice, PLACES - len + 1);
        /* Beyond the length ids are not looked at. */
        for (int64_t i = s.lens[b]; i < len && with & LENS; i++)
            s.ids[b * len + i] = -99;
    }
    for (int64_t i = 0; i < s.dtable.n; i++)
        s.dtable.x[i] = 0.5;
    for (int64_t i = 0; i < s.dpositions.n; i++)
        s.dpositions.x[i] = 0.5;
    tensor_write(&s.dtable);
    tensor_write(&s.dpositions);
    s.io = (foci_embed_io){ FOCI_SIZED(foci_embed_io),
                            .dtype = dtype,
                            .batch = batch,
                            .len = len,
                            .width = width,
                            .vocab = VOCAB,
                            .n_positions = PLACES,
                            .ids = with & IDS ? s.ids : NULL,
                            .lens = with & LENS ? s.lens : NULL,
                            .first = with & FIRST ? s.first : NULL,
                            .table = with & IDS ? s.table.data : NULL,
                            .positions = with & POSITIONS ? s.positions.data : NULL,
                            .scale = with & SCALE ? -1.5 : 0,
                            .x = with & X ? s.x.data : NULL,
                            .y = s.y.data,
                            .dropout = with & DROP ? 0.4 : 0,
                            .dropout_seed = rng_u64(&dice),
                            .dy = s.dy.data,
                            .dtable = with & IDS ? s.dtable.data : NULL,
                            .dpositions = with & POSITIONS ? s.dpositions.data : NULL,
                            .dx = with & X ? s.dx.data : NULL };
    return s;
}

static void scene_free(struct scene *s)
{
    struct tensor *const all[] = { &s->table, &s->positions, &s->x,          &s->y,
                                   &s->dy,    &s->dtable,    &s->dpositions, &s->dx };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    free(s->ids);
    free(s->lens);
    free(s->first);
}

static void try(foci_dtype dtype, int64_t batch, int64_t len, int64_t width, int with)
{
    struct scene s = scene_make(dtype, batch, len, width, with);
    struct outs  o = { .n = 0 };

    outs_add(&o, &s.y);
    each_level(&o, &s, forward, judge_forward, "embed");
    outs_free(&o);
    outs_add(&o, &s.dtable);
    outs_add(&o, &s.dpositions);
    outs_add(&o, &s.dx);
    each_level(&o, &s, backward, judge_backward, "embed backward");
    outs_free(&o);
    scene_free(&s);
}

/* Everything that can be added, alone and together. */
static void combinations(void **state)
{
    (void)state;
    for (int with = 1; with < 128; with++) {
        if (!(with & (IDS | POSITIONS | X))) continue;
        try(types[with % 3], 3, 4, 5, with);
    }
}

/* Jobs of several tiles, columns that threads share unevenly. */
static void shapes(void **state)
{
    (void)state;
    try(FOCI_F32, 1, 1, 1, IDS | POSITIONS);
    try(FOCI_BF16, 2, 3, 1100, IDS | DROP);
    try(FOCI_BF16, 9, 11, 70, IDS | POSITIONS | FIRST | LENS | DROP | X);
}

/* Many rows of one id: sums of floats in order are good to their rounding. */
static void one_id(void **state)
{
    enum { ROWS = 5000 };
    foci_ctx *const ctx = levels[1].ctx[levels[1].n - 1];
    struct tensor   dy = tensor_draw(FOCI_F32, ROWS, 1), d = tensor_of(FOCI_F32, 1);
    int32_t *const  ids = test_alloc(ROWS, sizeof *ids);
    double          sum = 0;

    (void)state;
    tensor_write(&d);
    must(ctx, foci_embed_backward(
                  ctx, &(foci_embed_io){ FOCI_SIZED(foci_embed_io), .batch = 1,
                                         .len = ROWS, .width = 1, .vocab = 1,
                                         .ids = ids, .dy = dy.data, .dtable = d.data }));
    for (int i = 0; i < ROWS; i++)
        sum += dy.x[i];
    near("dtable", &d, 0, sum, 1e-3);
    tensor_free(&dy);
    tensor_free(&d);
    free(ids);
}

static void refused(void **state)
{
    foci_ctx *const ctx = best_ctx();
    struct scene    s = scene_make(FOCI_F32, 2, 3, 4, IDS | POSITIONS | FIRST | LENS);
    foci_embed_io   io;

    (void)state;
    s.lens[0] = s.lens[1] = 3;
    for (int i = 0; i < 6; i++)
        s.ids[i] = i;
    s.ids[4] = VOCAB;
    REFUSED(ctx, foci_embed_forward(ctx, &s.io), "id 7 in row 1 of entry 1");
    REFUSED(ctx, foci_embed_backward(ctx, &s.io), "id 7");
    s.ids[4] = -1;
    REFUSED(ctx, foci_embed_forward(ctx, &s.io), "is not 0 to 6");
    s.ids[4] = 0;
    s.first[1] = PLACES - 2;
    REFUSED(ctx, foci_embed_forward(ctx, &s.io), "positions 38 to 40 of entry 1");
    s.first[1] = -1;
    REFUSED(ctx, foci_embed_backward(ctx, &s.io), "positions -1");
    s.first[1] = 0;
    s.lens[1] = 4;
    REFUSED(ctx, foci_embed_forward(ctx, &s.io), "length 4 of entry 1");
    s.lens[1] = 3;
    io = s.io, io.table = NULL;
    REFUSED(ctx, foci_embed_forward(ctx, &io), "table is missing");
    io = s.io, io.y = NULL;
    REFUSED(ctx, foci_embed_forward(ctx, &io), "y is missing");
    io = s.io, io.ids = NULL, io.positions = NULL;
    REFUSED(ctx, foci_embed_forward(ctx, &io), "ids, x and positions");
    REFUSED(ctx, foci_embed_backward(ctx, &io), "ids");
    io = s.io, io.dy = NULL;
    REFUSED(ctx, foci_embed_backward(ctx, &io), "dy");
    io = s.io, io.vocab = 0;
    REFUSED(ctx, foci_embed_forward(ctx, &io), "vocab is 1");
    io = s.io, io.batch = INT32_MAX, io.len = INT32_MAX;
    REFUSED(ctx, foci_embed_forward(ctx, &io), "rows is 0 to");
    io = s.io, io.dropout = -0.1;
    REFUSED(ctx, foci_embed_forward(ctx, &io), "dropout");
    io = s.io, io.batch = 0;
    assert_int_equal(foci_embed_forward(ctx, &io), FOCI_OK);
    assert_int_equal(foci_embed_backward(ctx, &io), FOCI_OK);
    assert_int_equal(foci_embed_forward(NULL, &io), FOCI_ERR_ARG);
    assert_int_equal(foci_embed_backward(NULL, &io), FOCI_ERR_ARG);
    scene_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(combinations),
        cmocka_unit_test(shapes),
        cmocka_unit_test(one_id),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_levels, close_levels);
}
