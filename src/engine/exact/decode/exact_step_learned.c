/* exact_step_learned.c -- learned slots of a run of tokens, made when its last token
 * comes. */
#include "engine/exact/decode/exact_step.h"

struct step_learned_scratch step_learned_scratch(const struct exact_step *x,
                                                 struct arena            *a)
{
    const int64_t floats =
        stage_learned(x->e.stage) ? PAGE * sum_row(max64(x->e.d.q, x->e.d.v)) : 0;
    struct step_learned_scratch m;

    m.tile = arena_alloc(a, floats, sizeof *m.tile);
    m.sum = arena_alloc(a, floats, sizeof *m.sum);
    return m;
}

/* sum[n][ld] of the slots from `slot` on of a run. */
static void sum_up(const struct exact_step *x, const foci_state *state, int64_t run,
                   int64_t kv, bool values, int64_t slot, int n,
                   const struct step_learned_scratch *scratch)
{
    const foci_pool  *pool = state->pool;
    const foci_slots *s = &x->e.stage->levels[0].slots;
    const int64_t    *at = x->e.stage->group->param0;
    const int         d = values ? x->e.d.v : x->e.d.q;
    const int64_t     ld = sum_row(d), row = kv * s->learned + slot;
    const float *by = x->step->io->params + at[values && at[1] >= 0] + row * s->run_len;

    for (int64_t c = 0; c < s->run_len; c += PAGE) {
        const int m = (int)min64(PAGE, s->run_len - c);

        for (int i = 0; i < m; i++)
            x->e.k->load_rows(scratch->tile + i * ld, ld,
                              step_row_in(pool, x->g, &state->tokens,
                                          run * s->run_len + c + i, kv,
                                          values ? x->sets : 0),
                              d, (int)x->e.plan->p.dtype, 1, d);
        x->e.k->gemm_f32(scratch->sum, ld, by + c, s->run_len, 1, scratch->tile, ld, n,
                         (int)ld, m, c > 0);
    }
}

void step_learned(const struct exact_step *x, const foci_state *state, int64_t run,
                  int64_t kv, bool values, const struct step_learned_scratch *scratch)
{
    const foci_slots         *s = &x->e.stage->levels[0].slots;
    const struct exact_state *own = state->own[x->g];
    const int                 d = values ? x->e.d.v : x->e.d.q;

    for (int64_t slot = 0; slot < s->learned; slot += PAGE) {
        const int n = (int)min64(PAGE, s->learned - slot);

        sum_up(x, state, run, kv, values, slot, n, scratch);
        for (int i = 0; i < n; i++)
            x->e.k->store_rows(step_row_in(state->pool, x->g, &own->level[0],
                                           run * s->learned + slot + i, kv,
                                           values ? x->sets : 0),
                               d, (int)x->e.plan->p.dtype,
                               scratch->sum + i * sum_row(d), sum_row(d), 1.0f, 1, d);
    }
}
