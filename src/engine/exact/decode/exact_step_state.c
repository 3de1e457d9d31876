/* exact_step_state.c -- what exact attention keeps of a sequence beside its pages. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/exact/decode/exact_step.h"

/*
 * Pools
 */

foci_status exact_pool_make(foci_pool *pool, int g)
{
    foci_ctx           *ctx = pool->plan->ctx;
    const struct stage *s = &pool->plan->stages[g];
    struct exact_pool  *own = ctx_alloc(ctx, 1, sizeof *own);

    pool->own[g] = own;
    if (!own) return FOCI_ERR_MEMORY;
    if (s->order.chunk || s->order.topk)
        return ctx_fail(ctx, FOCI_ERR_UNSUP,
                        "%s has no decoding state with these arguments: which keys a "
                        "query sees depends on those after it",
                        s->group->mech.def->name);
    const int64_t d = pool->parts[g].dim_qk;
    own->frequency = ctx_alloc(ctx, (size_t)d, sizeof *own->frequency);
    if (!own->frequency) return FOCI_ERR_MEMORY;
    for (int64_t t = 0; s->score.rope_base > 0 && t < d / 2; t++)
        own->frequency[t] = pow(s->score.rope_base, -2 * (double)t / (double)d);
    own->norm = ctx_alloc(ctx, (size_t)(s->group->heads * max64(1, s->order.rounds)),
                          sizeof *own->norm);
    if (!own->norm) return FOCI_ERR_MEMORY;
    for (int t = 0; t < s->score.n_tables; t++) {
        const foci_mod *mod = s->score.table[t];

        own->entry[t] = ctx_alloc(ctx, KNOWN_DISTANCES, sizeof *own->entry[t]);
        if (!own->entry[t]) return FOCI_ERR_MEMORY;
        for (int64_t back = 0; back < KNOWN_DISTANCES; back++)
            own->entry[t][back] = (int32_t)mod->def->entry(mod, true, -back);
    }
    return FOCI_OK;
}

void exact_pool_free(foci_pool *pool, int g)
{
    foci_ctx           *ctx = pool->plan->ctx;
    const struct stage *s = &pool->plan->stages[g];
    struct exact_pool  *own = pool->own[g];

    if (!own) return;
    for (int t = 0; t < 2; t++)
        ctx_free(ctx, own->entry[t], KNOWN_DISTANCES, sizeof *own->entry[t]);
    ctx_free(ctx, own->frequency, (size_t)pool->parts[g].dim_qk, sizeof *own->frequency);
    ctx_free(ctx, own->norm, (size_t)(s->group->heads * max64(1, s->order.rounds)),
             sizeof *own->norm);
    ctx_free(ctx, own, 1, sizeof *own);
    pool->own[g] = NULL;
}

/*
 * States
 */

foci_status exact_state_make(foci_state *state, int g)
{
    const foci_pool    *pool = state->pool;
    const struct stage *s = &pool->plan->stages[g];
    foci_ctx           *ctx = pool->plan->ctx;

    if (!s->n_levels && !s->order.label) return FOCI_OK;
    struct exact_state *own = ctx_alloc(ctx, 1, sizeof *own);
    state->own[g] = own;
    if (!own) return FOCI_ERR_MEMORY;
    for (int l = 0; l < s->n_levels; l++) {
        if (s->levels[l].slots.tail || s->levels[l].slots.learned) continue;
        own->sums[l] =
            ctx_alloc(ctx, (size_t)sum_floats(pool, g), sizeof *own->sums[l]);
        if (!own->sums[l]) return FOCI_ERR_MEMORY;
    }
    own->n_maps = labels_maps(s);
    own->maps = ctx_alloc(ctx, (size_t)own->n_maps, sizeof *own->maps);
    return own->maps ? FOCI_OK : FOCI_ERR_MEMORY;
}

foci_status exact_state_copy(const foci_state *from, foci_state *to, int g)
{
    foci_pool                *pool = from->pool;
    const struct exact_state *old = from->own[g];
    struct exact_state       *own = to->own[g];
    const size_t              floats = (size_t)sum_floats(pool, g);

    if (!own) return FOCI_OK;
    for (int l = 0; l < pool->plan->stages[g].n_levels; l++) {
        TRY(stream_copy(pool, &old->level[l], &own->level[l]));
        if (own->sums[l]) memcpy(own->sums[l], old->sums[l], floats * sizeof(float));
    }
    for (int64_t i = 0; i < own->n_maps; i++)
        TRY(labels_copy(pool->plan->ctx, &old->maps[i], from->len, &own->maps[i]));
    return FOCI_OK;
}

void exact_state_free(foci_state *state, int g)
{
    foci_pool          *pool = state->pool;
    foci_ctx           *ctx = pool->plan->ctx;
    struct exact_state *own = state->own[g];

    if (!own) return;
    for (int l = 0; l < FOCI_MAX_LEVELS; l++) {
        stream_free(pool, &own->level[l]);
        if (own->sums[l])
            ctx_free(ctx, own->sums[l], (size_t)sum_floats(pool, g), sizeof(float));
    }
    for (int64_t i = 0; own->maps && i < own->n_maps; i++)
        labels_free(ctx, &own->maps[i]);
    ctx_free(ctx, own->maps, (size_t)own->n_maps, sizeof *own->maps);
    ctx_free(ctx, own, 1, sizeof *own);
    state->own[g] = NULL;
}

size_t exact_state_bytes(const foci_state *state, int g)
{
    const foci_pool          *pool = state->pool;
    const struct exact_state *own = state->own[g];
    size_t                    n = 0;

    if (!own) return 0;
    for (int l = 0; l < pool->plan->stages[g].n_levels; l++) {
        n += stream_bytes(pool, &own->level[l]);
        if (own->sums[l]) n += (size_t)sum_floats(pool, g) * sizeof(float);
    }
    for (int64_t i = 0; i < own->n_maps; i++)
        n += labels_bytes(&own->maps[i]);
    return n + sizeof *own;
}

/*
 * Saved
 */

void exact_state_save(const foci_state *state, int g, struct state_writer *w)
{
    const foci_pool          *pool = state->pool;
    const struct exact_state *own = state->own[g];

    if (!own) return;
    for (int l = 0; l < pool->plan->stages[g].n_levels; l++) {
        stream_save(pool, &own->level[l], g, g + 1, w);
        if (own->sums[l])
            write_bytes(w, own->sums[l], (size_t)sum_floats(pool, g) * sizeof(float));
    }
    for (int64_t i = 0; i < own->n_maps; i++)
        labels_save(&own->maps[i], state->len, w);
}

/* The first slot that tokens from n on need. */
static int64_t first_slot_of(const struct stage *s, int level, int64_t n)
{
    const foci_mech *m = &s->group->mech;
    const int64_t    done = slots_done(&s->levels[level].slots, n);

    return m->def->first_slot ? min64(done, max64(0, m->def->first_slot(m, level, n)))
                              : 0;
}

foci_status exact_state_restore(foci_state *state, int g, struct state_reader *r)
{
    foci_pool          *pool = state->pool;
    const struct stage *s = &pool->plan->stages[g];
    struct exact_state *own = state->own[g];

    if (!own) return FOCI_OK;
    for (int l = 0; l < s->n_levels; l++) {
        const int64_t rows = slots_done(&s->levels[l].slots, state->len);
        TRY(stream_restore(pool, &own->level[l], g, g + 1, rows,
                           first_slot_of(s, l, state->len), r));
        if (own->sums[l] &&
            !read_bytes(r, own->sums[l], (size_t)sum_floats(pool, g) * sizeof(float)))
            return state_damaged(pool);
    }
    for (int64_t i = 0; i < own->n_maps; i++)
        TRY(labels_restore(pool, &own->maps[i], state->len, labels_most(s), r));
    return FOCI_OK;
}

/*
 * Steps
 */

/* The longest sequence that parameters and lists of the plan's length serve. */
static int64_t longest(const struct stage *s)
{
    const foci_mech *m = &s->group->mech;
    int64_t          n = s->order.label ? INT32_MAX : INT64_MAX;

    if (s->score.txl_r >= 0) n = min64(n, m->dims.len);
    if (m->def->list && m->def->list->count && m->def->list->count(m) >= 0)
        n = min64(n, m->dims.len);
    return n;
}

foci_status exact_state_check(const foci_pool *pool, int g, const foci_step_io *io)
{
    const struct stage *s = &pool->plan->stages[g];
    foci_ctx           *ctx = pool->plan->ctx;
    const bool          hashed = s->order.label && s->order.label != FOCI_LABEL_PLACE;

    if ((hashed || stage_own_keys(s)) && !io->params)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "params is NULL: %s needs them for tokens that are only "
                        "appended, too",
                        s->group->mech.def->name);
    if (io->o && !io->x && mech_reads(&s->group->mech) & FOCI_READ_X)
        return ctx_fail(ctx, FOCI_ERR_ARG, "x is NULL: %s makes logits of hidden states",
                        s->group->mech.def->name);
    if (s->order.shared_qk && !io->q)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "q is NULL: %s makes keys of queries, also of tokens that are "
                        "only appended (leave o NULL for these)",
                        s->group->mech.def->name);
    return FOCI_OK;
}

static foci_status check_longest(const foci_plan *plan, const struct stage *s,
                                 int64_t len)
{
    const int64_t most = min64(longest(s), step_source_longest(plan, s));
    char          why[300] = "";

    if (step_source_refuses(s, len, why, sizeof why))
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP, "%s: %s", s->group->mech.def->name,
                        why);
    if (len > most)
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP,
                        "%s was planned for %" PRId64
                        " tokens, and the state would have %" PRId64,
                        s->group->mech.def->name, most, len);
    return FOCI_OK;
}

foci_status exact_state_reserve(foci_state *state, int g, int64_t tokens, int64_t *pages)
{
    foci_pool          *pool = state->pool;
    const struct stage *s = &pool->plan->stages[g];
    struct exact_state *own = state->own[g];
    const int64_t       len = state->len + tokens;

    TRY(check_longest(pool->plan, s, len));
    if (!own) return FOCI_OK;
    for (int l = 0; l < s->n_levels; l++)
        TRY(stream_reserve(pool, &own->level[l],
                           slots_done(&s->levels[l].slots, len) - own->level[l].rows,
                           pages));
    for (int64_t i = 0; i < own->n_maps; i++) {
        struct label_map *m = &own->maps[i];
        TRY(labels_reserve(pool->plan->ctx, m, len,
                           min64(labels_most(s), m->n_labels + tokens)));
    }
    return FOCI_OK;
}

void exact_state_drop(foci_state *state, int g)
{
    const struct stage *s = &state->pool->plan->stages[g];
    struct exact_state *own = state->own[g];

    for (int l = 0; own && l < s->n_levels; l++)
        stream_drop(state->pool, &own->level[l], first_slot_of(s, l, state->len), NULL);
}

/* Whether the sums of the unfinished run at `len` can be made from its tokens. */
static bool can_sum(const foci_state *state, const foci_slots *s, int64_t len)
{
    return s->tail || len % s->run_len == 0 ||
           state->tokens.first * PAGE <= len / s->run_len * s->run_len;
}

foci_status exact_state_truncate(foci_state *state, int g, int64_t len, bool really)
{
    foci_pool          *pool = state->pool;
    const struct stage *s = &pool->plan->stages[g];
    struct exact_state *own = state->own[g];

    for (int l = 0; own && l < s->n_levels; l++) {
        const foci_slots *slots = &s->levels[l].slots;

        if (!really && len &&
            (first_slot_of(s, l, len) < own->level[l].first * PAGE ||
             !can_sum(state, slots, len)))
            return ctx_fail(pool->plan->ctx, FOCI_ERR_UNSUP,
                            "the state cannot be cut back to %" PRId64
                            " tokens: of runs of %" PRId64
                            ", what was summed up is no longer kept",
                            len, slots->run_len);
        if (!really) continue;
        stream_cut(pool, &own->level[l], slots_done(slots, len));
        if (own->sums[l]) exact_sum_open(state, g, l, len, (float *)pool->scratch);
    }
    for (int64_t i = 0; own && really && i < own->n_maps; i++)
        labels_cut(&own->maps[i], state->len, len);
    return FOCI_OK;
}
