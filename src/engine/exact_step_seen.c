/* exact_step_seen.c -- which tokens and slots the rows of a step see. */
#include <string.h>

#include "engine/exact_step.h"

struct stepping step_geometry(const foci_plan *plan, int g)
{
    const foci_problem *p = &plan->p;
    const struct stage *s = &plan->stages[g];
    struct stepping     x = {
            .plan = plan,
            .g = g,
            .stage = s,
            .score = &s->score,
            .k = &plan->ctx->kernels,
            .kind = (int)s->group->mech.def->weigh,
            .dq = (int)mech_width(&s->group->mech),
            .dv = (int)p->dim_v,
            .el = foci_dtype_bytes(p->dtype),
            .kv_heads = stage_learned(s) ? s->group->heads : s->group->kv_heads,
            .given = (int)p->dim_qk,
            .rounds = s->order.label ? max64(1, s->order.rounds) : 0,
    };
    const bool qk = mech_sources(&s->group->mech) & FOCI_SOURCE_QK;
    if (!qk) x.dq = 0;
    x.per_kv = s->group->heads / x.kv_heads;
    x.bf16 = p->dtype == FOCI_BF16 && min64(x.per_kv, FEW) <= x.k->few_bf16;
    x.own = x.kv_heads / s->group->kv_heads;
    x.ldq = (int)round_up(x.dq, 32);
    x.ld_given = (int)round_up(x.given, 32);
    x.ldo = (int)round_up(x.dv, 32);
    x.counts = x.score->n_rows || x.kind == FOCI_RELU2;
    x.sets = s->order.shared || stage_own_keys(s) ? x.per_kv : qk;
    exact_geometry(&x.e, plan, s);
    x.e.ldq = x.ldq;
    x.plain = x.score->cap == 0 && !x.score->slope && !x.score->n_tables &&
              x.score->shaw_k < 0 && x.score->txl_r < 0 && !x.e.from.from;
    return x;
}

/* Add the tiles of one level, those of `len` tokens or slots that `rows` need. */
static void add_level(const struct stepping *x, struct bundle *b, int level,
                      foci_range rows, int64_t len, int cap)
{
    const foci_mech     *m = b->mech;
    const struct stream *stream = stream_of(x, b, level);
    foci_range           room[SPANS];
    struct tile_spans    spans = { .span = room, .cap = cap };
    foci_tile_list       list = { .len = len, .spans = &spans };
    const bool           holes = level < 0 && m->def->hold;

    if (level < 0 ? m->def->tiles != NULL : m->def->slot_tiles != NULL) {
        if (level < 0)
            m->def->tiles(m, rows, &list);
        else
            m->def->slot_tiles(m, level, rows, &list);
    } else {
        spans_add(&spans, (foci_range){ 0, div_up(len, PAGE) });
    }
    for (int i = 0; i < spans.n; i++) {
        foci_range t = room[i];
        if (!holes) t.begin = max64(t.begin, stream->first);
        if (t.end <= t.begin) continue;
        b->span[b->n_spans++] = (struct span){ level, t };
        b->tiles += t.end - t.begin;
    }
}

void step_spans(const struct stepping *x, struct bundle *b)
{
    const foci_mech_def *def = b->mech->def;
    const int64_t        last = place_of(x, b, b->rows - 1);
    const foci_range     rows = { place_of(x, b, 0), last + 1 };
    const int            levels = x->stage->n_levels;

    if (def->mask || !def->order)
        add_level(x, b, -1, rows, last + 1, SPANS - 2 * levels);
    for (int l = 0; l < levels; l++) {
        const int64_t n = slots_done(&x->stage->levels[l].slots, last + 1);
        if (n) add_level(x, b, l, rows, n, 2);
    }
}

uint64_t step_seen(const struct stepping *x, const struct bundle *b, int level,
                   int64_t place, int64_t t)
{
    const foci_mech *m = b->mech;
    const int64_t    n =
        level < 0 ? place + 1 : slots_done(&x->stage->levels[level].slots, place + 1);
    const uint64_t seen = foci_bits_in((foci_range){ 0, n }, t * PAGE);

    if (!seen) return 0;
    if (level >= 0) return seen & m->def->slot_mask(m, level, place, t * PAGE);
    return m->def->mask ? seen & m->def->mask(m, place, t * PAGE) : seen;
}

int64_t step_count(const struct stepping *x, const struct bundle *b, int64_t place)
{
    int64_t n = 0;

    if (!b->mech->def->mask && !b->mech->def->order && !x->stage->n_levels)
        return place + 1;
    for (int i = 0; i < b->n_spans; i++)
        for (int64_t t = b->span[i].tiles.begin; t < b->span[i].tiles.end; t++)
            for (uint64_t seen = step_seen(x, b, b->span[i].level, place, t); seen;
                 seen &= seen - 1)
                n++;
    return n;
}
