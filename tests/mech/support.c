/* support.c -- tiles() may leave out only what mask() never shows, and may call full
 * only what every query of the tile sees whole; the plan's table says the same by
 * query tile and by key tile. */
#include <stdio.h>

#include "support/trial.h"

static uint64_t keys_in(int64_t len, int64_t j0)
{
    return foci_bits_in((foci_range){ 0, len }, j0);
}

/* Does query i see key j, by the runs of its tile? */
static bool listed(const struct support *s, const struct tile_run *runs, int64_t n,
                   int64_t tile, int64_t i, int64_t j)
{
    for (int64_t r = 0; r < n; r++) {
        if (tile < runs[r].begin || tile >= runs[r].end) continue;
        if (runs[r].mask < 0) return true;
        return s->masks[runs[r].mask][j % FOCI_TILE] >> i % FOCI_TILE & 1;
    }
    return false;
}

static void check_table(foci_ctx *ctx, const foci_mech *m, const char *spec, int64_t len)
{
    struct support s;
    assert_int_equal(support_make(ctx, m, -1, len, &s), FOCI_OK);

    for (int64_t i = 0; i < len; i++)
        for (int64_t j = 0; j < len; j++) {
            const int64_t          ti = i / FOCI_TILE, tj = j / FOCI_TILE;
            int64_t                n_row, n_col;
            const struct tile_run *row = support_row(&s, ti, &n_row);
            const struct tile_run *col = support_col(&s, tj, &n_col);
            const bool             sees =
                m->def->mask ? m->def->mask(m, i, tj * FOCI_TILE) >> j % FOCI_TILE & 1
                                         : !m->def->order; /* labels are not in the table */
            if (listed(&s, row, n_row, tj, i, j) != sees ||
                listed(&s, col, n_col, ti, i, j) != sees)
                fail_msg("%s, length %d: query %d and key %d", spec, (int)len, (int)i,
                         (int)j);
        }
    support_free(ctx, &s);
}

static void check_tiles(const foci_mech *m, const char *spec, foci_range rows,
                        int64_t len)
{
    uint8_t        kind[16] = { 0 };
    foci_tile_list list = { .len = len, .kind = kind };

    assert_true(div_up(len, FOCI_TILE) <= 16);
    m->def->tiles(m, rows, &list);
    for (int64_t j0 = 0; j0 < len; j0 += FOCI_TILE) {
        const uint64_t keys = keys_in(len, j0);
        uint64_t       some = 0, every = keys;

        for (int64_t i = rows.begin; i < rows.end; i++) {
            const uint64_t seen = m->def->mask(m, i, j0) & keys;
            some |= seen;
            every &= seen;
        }
        const int found = kind[j0 / FOCI_TILE];
        if ((found == TILE_SKIP && some != 0) || (found == TILE_FULL && every != keys))
            fail_msg("%s, length %d: queries from %d, keys from %d", spec, (int)len,
                     (int)rows.begin, (int)j0);
    }
}

static void check_length(foci_ctx *ctx, const char *spec, int64_t len)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .batch = 1,
                             .heads = 1,
                             .len_q = len,
                             .len_k = len,
                             .dim_qk = 4 };
    foci_plan         *plan = test_plan(ctx, spec, &p);
    const foci_mech   *m = &plan->spec.groups[0].mech;

    if (m->def->tiles)
        for (int64_t r = 0; r < len; r += FOCI_TILE)
            check_tiles(m, spec, (foci_range){ r, min64(r + FOCI_TILE, len) }, len);
    check_table(ctx, m, spec, len);
    foci_plan_free(plan);
}

static void support(void **state)
{
    static const int64_t     lens[] = { 1, 63, 64, 65, 127, 128, 129, 400 };
    static const char *const more[] = {
        "test_window(window=0)",           "test_window(window=63)",
        "test_window(window=64, first=1)", "test_window(window=130, first=64)",
        "test_window(window=2, first=65)", "test_window(window=2147483647)",
        "test_chance(percent=0)",          "test_chance(percent=100)"
    };
    foci_ctx *ctx = test_ctx("portable", 1);
    char      spec[SPEC_CAP];

    (void)state;
    specs_register(ctx);
    for (size_t n = 0; n < sizeof lens / sizeof *lens; n++) {
        for (size_t t = 0; t < sizeof more / sizeof *more; t++)
            check_length(ctx, more[t], lens[n]);
        for (int i = 0; specs_next(ctx, i, spec); i++)
            if (!strchr(spec, ' ')) check_length(ctx, spec, lens[n]);
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(support) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
