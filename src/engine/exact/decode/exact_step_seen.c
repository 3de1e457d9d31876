/* exact_step_seen.c -- decoding: geometry, and which tokens and slots the rows of a
 * step see. */
#include <string.h>

#include "engine/exact/decode/exact_step.h"

struct exact_step step_geometry(const foci_plan *plan, int g)
{
    const foci_problem *p = &plan->p;
    const struct stage *s = &plan->stages[g];
    const bool          qk = mech_sources(&s->group->mech) & FOCI_SOURCE_QK;
    struct exact_step   x = {
          .g = g,
          .el = foci_dtype_bytes(p->dtype),
          .kv_heads = stage_learned(s) ? s->group->heads : s->group->kv_heads,
          .rounds = s->order.label ? max64(1, s->order.rounds) : 0,
    };

    exact_geometry(&x.e, plan, s);
    x.e.d.in = (int)p->dim_qk;
    x.e.d.ldq = (int)round_up(x.e.d.q, 32);
    x.e.d.ld_in = (int)round_up(x.e.d.in, 32);
    x.ldo = (int)round_up(x.e.d.v, 32);
    x.per_kv = s->group->heads / x.kv_heads;
    x.kv_expand = x.kv_heads / s->group->kv_heads;
    x.dots_bf16 =
        p->dtype == FOCI_BF16 && min64(x.per_kv, KERNEL_ROWS) <= x.e.k->few_bf16;
    x.counts = s->score.n_rows || x.e.kind == FOCI_WEIGH_RELU2;
    x.sets = s->order.shared_qk || stage_own_keys(s) ? x.per_kv : qk;
    x.plain = s->score.cap == 0 && !s->score.slope && !s->score.n_tables &&
              s->score.shaw_k < 0 && s->score.txl_r < 0 && !x.e.source.kinds;
    return x;
}

/* Append the tiles of one level, with `len` tokens or slots, that `rows` need. */
static void add_level(const struct exact_step *x, struct step_bundle *b, int level,
                      foci_range rows, int64_t len, int cap)
{
    const foci_mech     *m = b->mech;
    const struct stream *stream = stream_of(x, b, level);
    foci_range           scratch[SPANS];
    struct tile_spans    spans = { .span = scratch, .cap = cap };
    foci_tile_list       list = { .len = len, .spans = &spans };
    const bool           holes = level < 0 && m->def->pinned;

    if (level < 0 ? m->def->tiles != NULL : m->def->slot_tiles != NULL) {
        if (level < 0)
            m->def->tiles(m, rows, &list);
        else
            m->def->slot_tiles(m, level, rows, &list);
    } else {
        spans_add(&spans, (foci_range){ 0, div_up(len, PAGE) });
    }
    for (int i = 0; i < spans.n; i++) {
        foci_range t = scratch[i];
        if (!holes) t.begin = max64(t.begin, stream->first);
        if (t.end <= t.begin) continue;
        b->span[b->n_spans++] = (struct tile_span){ level, t };
        b->tiles += t.end - t.begin;
    }
}

void step_spans(const struct exact_step *x, struct step_bundle *b)
{
    const foci_mech_def *def = b->mech->def;
    const int64_t        last = position_of(x, b, b->rows - 1);
    const foci_range     rows = { position_of(x, b, 0), last + 1 };
    const int            levels = x->e.stage->n_levels;

    if (def->mask || !def->order)
        add_level(x, b, -1, rows, last + 1, SPANS - 2 * levels);
    for (int l = 0; l < levels; l++) {
        const int64_t n = slots_done(&x->e.stage->levels[l].slots, last + 1);
        if (n) add_level(x, b, l, rows, n, 2);
    }
}

uint64_t step_seen(const struct exact_step *x, const struct step_bundle *b, int level,
                   int64_t pos, int64_t t)
{
    const foci_mech *m = b->mech;
    const int64_t    n =
        level < 0 ? pos + 1 : slots_done(&x->e.stage->levels[level].slots, pos + 1);
    const uint64_t seen = foci_bits_in((foci_range){ 0, n }, t * PAGE);

    if (!seen) return 0;
    if (level >= 0) return seen & m->def->slot_mask(m, level, pos, t * PAGE);
    return m->def->mask ? seen & m->def->mask(m, pos, t * PAGE) : seen;
}

int64_t step_count(const struct exact_step *x, const struct step_bundle *b, int64_t pos)
{
    int64_t n = 0;

    if (!b->mech->def->mask && !b->mech->def->order && !x->e.stage->n_levels)
        return pos + 1;
    for (int i = 0; i < b->n_spans; i++)
        for (int64_t t = b->span[i].tiles.begin; t < b->span[i].tiles.end; t++)
            for (uint64_t seen = step_seen(x, b, b->span[i].level, pos, t); seen;
                 seen &= seen - 1)
                n++;
    return n;
}
