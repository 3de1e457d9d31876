/* exact_step_mix.c -- learned slots of a run of tokens, made when its last one comes. */
#include "engine/exact_step.h"

struct mixing mixing_take(const struct stepping *x, struct arena *a)
{
    const int64_t floats =
        stage_learned(x->stage) ? PAGE * sum_row(max64(x->dq, x->dv)) : 0;
    struct mixing m;

    m.tile = arena_take(a, floats, sizeof *m.tile);
    m.sum = arena_take(a, floats, sizeof *m.sum);
    return m;
}

/* sum[n][ld] of slots from `slot` on of a run. */
static void sum_up(const struct stepping *x, const foci_state *state, int64_t run,
                   int64_t kv, bool values, int64_t slot, int n,
                   const struct mixing *room)
{
    const foci_pool  *pool = state->pool;
    const foci_slots *s = &x->stage->levels[0].slots;
    const int64_t    *at = x->stage->group->param0;
    const int         d = values ? x->dv : x->dq;
    const int64_t     ld = sum_row(d), row = kv * s->learned + slot;
    const float *by = x->step->io->params + at[values && at[1] >= 0] + row * s->every;

    for (int64_t c = 0; c < s->every; c += PAGE) {
        const int m = (int)min64(PAGE, s->every - c);

        for (int i = 0; i < m; i++)
            x->k->load_rows(room->tile + i * ld, ld,
                            step_row_in(pool, x->g, &state->tokens,
                                        run * s->every + c + i, kv,
                                        values ? x->sets : 0),
                            d, (int)x->plan->p.dtype, 1, d);
        x->k->gemm_f32(room->sum, ld, by + c, s->every, 1, room->tile, ld, n, (int)ld,
                       m, c > 0);
    }
}

void step_mix(const struct stepping *x, const foci_state *state, int64_t run,
              int64_t kv, bool values, const struct mixing *room)
{
    const foci_slots       *s = &x->stage->levels[0].slots;
    const struct exact_own *own = state->own[x->g];
    const int               d = values ? x->dv : x->dq;

    for (int64_t slot = 0; slot < s->learned; slot += PAGE) {
        const int n = (int)min64(PAGE, s->learned - slot);

        sum_up(x, state, run, kv, values, slot, n, room);
        for (int i = 0; i < n; i++)
            x->k->store_rows(step_row_in(state->pool, x->g, &own->level[0],
                                         run * s->learned + slot + i, kv,
                                         values ? x->sets : 0),
                             d, (int)x->plan->p.dtype, room->sum + i * sum_row(d),
                             sum_row(d), 1.0f, 1, d);
    }
}
