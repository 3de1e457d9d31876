/* support.c -- tiles() and slot_tiles() may leave out only what the masks never show, and
 * may call full only what every query of the tile sees whole; the plan's tables say the
 * same by query tile and by key tile. */
#include <stdio.h>

#include "support/trial.h"

enum { MAX_KINDS = 16 };

/* A level of slots, or with -1 the keys, of a planned mechanism. */
struct pairs {
    const foci_mech *m;
    const char      *spec;
    int              level;
    int64_t          queries, len; /* len: keys, or slots */
};

static uint64_t seen_by(const struct pairs *p, int64_t i, int64_t j0)
{
    const foci_mech *m = p->m;
    const uint64_t   keys = foci_bits_in((foci_range){ 0, p->len }, j0);

    if (p->level >= 0) return keys & m->def->slot_mask(m, p->level, i, j0);
    return m->def->mask ? keys & m->def->mask(m, i, j0) : m->def->order ? 0 : keys;
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

static void check_table(const struct pairs *p, const struct support *s)
{
    for (int64_t i = 0; i < p->queries; i++)
        for (int64_t j = 0; j < p->len; j++) {
            const int64_t          ti = i / FOCI_TILE, tj = j / FOCI_TILE;
            int64_t                n_row, n_col;
            const struct tile_run *row = support_row(s, ti, &n_row);
            const struct tile_run *col = support_col(s, tj, &n_col);
            const bool sees = seen_by(p, i, tj * FOCI_TILE) >> j % FOCI_TILE & 1;

            if (listed(s, row, n_row, tj, i, j) != sees ||
                listed(s, col, n_col, ti, i, j) != sees)
                fail_msg("%s, length %d, level %d: query %d and key %d", p->spec,
                         (int)p->queries, p->level, (int)i, (int)j);
        }
}

static void check_tiles(const struct pairs *p, foci_range rows)
{
    uint8_t        kind[MAX_KINDS] = { 0 };
    foci_tile_list list = { .len = p->len, .kind = kind };

    assert_true(div_up(p->len, FOCI_TILE) <= MAX_KINDS);
    if (p->level < 0)
        p->m->def->tiles(p->m, rows, &list);
    else
        p->m->def->slot_tiles(p->m, p->level, rows, &list);
    for (int64_t j0 = 0; j0 < p->len; j0 += FOCI_TILE) {
        const uint64_t keys = foci_bits_in((foci_range){ 0, p->len }, j0);
        uint64_t       some = 0, every = keys;

        for (int64_t i = rows.begin; i < rows.end; i++) {
            const uint64_t seen = seen_by(p, i, j0);
            some |= seen;
            every &= seen;
        }
        const int     found = kind[j0 / FOCI_TILE];
        const int64_t t = j0 / FOCI_TILE;
        if ((found == TILE_SKIP && some != 0) || (found == TILE_FULL && every != keys) ||
            (found != TILE_SKIP && (t < list.begin || t >= list.end)))
            fail_msg("%s, length %d, level %d: queries from %d, keys from %d", p->spec,
                     (int)p->queries, p->level, (int)rows.begin, (int)j0);
    }
}

static void check_part(const struct pairs *p, const struct support *s)
{
    const bool lists =
        p->level < 0 ? p->m->def->tiles != NULL : p->m->def->slot_tiles != NULL;

    for (int64_t r = 0; lists && r < p->queries; r += FOCI_TILE)
        check_tiles(p, (foci_range){ r, min64(r + FOCI_TILE, p->queries) });
    check_table(p, s);
}

static void check_length(foci_ctx *ctx, const char *spec, int64_t len, uint32_t flags)
{
    const foci_problem p = { FOCI_SIZED(foci_problem),
                             .flags = flags,
                             .batch = 1,
                             .heads = 1,
                             .len_q = len,
                             .len_k = len,
                             .dim_qk = 4 };
    foci_plan         *plan = trial_plan(ctx, spec, &p);

    if (!plan) return; /* cannot be causal */
    const struct stage *s = &plan->stages[0];
    struct pairs        part = { &s->group->mech, spec, -1, len, len };

    const bool alone = !part.m->n_mods; /* modifiers change nothing of this */
    if (alone && part.m->def->engine == FOCI_ENGINE_EXACT)
        check_part(&part, &s->support);
    for (part.level = 0; alone && part.level < s->n_levels; part.level++) {
        part.len = slots_of(&s->levels[part.level].slots, len);
        check_part(&part, &s->levels[part.level].support);
    }
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
            check_length(ctx, more[t], lens[n], 0);
        for (int i = 0; specs_next(ctx, i, spec); i++) {
            check_length(ctx, spec, lens[n], 0);
            check_length(ctx, spec, lens[n], FOCI_FLAG_CAUSAL);
        }
    }
    foci_ctx_free(ctx);
}

/* What bigbird draws is part of what a seed means. */
static void drawn(void **state)
{
    static const struct {
        uint32_t    flags;
        int64_t     blocks;
        const char *rows[6];
    } cases[] = {
        { 0, 5, { "11111", "11110", "11111", "11111", "10111" } },
        { FOCI_FLAG_CAUSAL, 6, { "1", "11", "111", "1111", "10111", "101011" } },
    };
    foci_ctx *ctx = test_ctx("portable", 1);

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const foci_problem p = {
            FOCI_SIZED(foci_problem), .flags = cases[c].flags,  .batch = 1, .heads = 1,
            .len_q = cases[c].blocks, .len_k = cases[c].blocks, .dim_qk = 4
        };
        foci_plan       *plan = test_plan(ctx, "bigbird(block=1)", &p);
        const foci_mech *m = &plan->stages[0].group->mech;

        for (int64_t i = 0; i < cases[c].blocks; i++)
            for (size_t j = 0; j < strlen(cases[c].rows[i]); j++)
                assert_int_equal(m->def->mask(m, i, 0) >> j & 1,
                                 cases[c].rows[i][j] == '1');
        foci_plan_free(plan);
    }
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(support),
                                        cmocka_unit_test(drawn) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
