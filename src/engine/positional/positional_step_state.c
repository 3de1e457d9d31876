/* positional_step_state.c -- what a decoding state keeps of patterns and taps. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "engine/positional/positional_step.h"

struct positional positional_step_geometry(const foci_plan *plan, int g)
{
    struct positional x;

    positional_geometry(&x, plan, &plan->stages[g]);
    return x;
}

unsigned positional_kept_rows(const foci_positional *p)
{
    const unsigned word = p->words ? 1u << WORD : 0;

    switch (p->pattern) {
    case FOCI_PATTERN_PREVIOUS: return word | 1u << BEFORE;
    case FOCI_PATTERN_LEFT:
        return word | 1u << MEAN | 1u << BEFORE | (p->words ? 0 : 1u << BEFORE2);
    case FOCI_PATTERN_END: return word | 1u << MEAN;
    case FOCI_PATTERN_START: return word | ((1u << WORD) - 1);
    default: return word;
    }
}

static int count_rows(unsigned rows)
{
    int n = 0;
    for (; rows; rows &= rows - 1)
        n++;
    return n;
}

size_t positional_head_offset(const struct positional *x, int64_t h)
{
    size_t at = 0;

    for (int64_t i = 0; i < h; i++) {
        const foci_positional p = positional_kind(x, i);
        if (positional_is_taps(&p))
            at += (size_t)(p.width - 1) * (size_t)x->ldv * sizeof(float);
        else
            at += (p.words ? LAST_WORD_BYTES : 0) +
                  (size_t)count_rows(positional_kept_rows(&p)) * (size_t)x->ldv *
                      sizeof(double);
    }
    return at;
}

static size_t state_bytes(const foci_plan *plan, int g)
{
    const struct positional x = positional_step_geometry(plan, g);
    return positional_head_offset(&x, x.heads);
}

foci_status positional_state_make(foci_state *state, int g)
{
    const foci_plan *plan = state->pool->plan;
    const size_t     n = state_bytes(plan, g);

    state->own[g] = ctx_alloc(plan->ctx, n + 1, 1);
    return state->own[g] ? FOCI_OK : FOCI_ERR_MEMORY;
}

size_t positional_state_bytes(const foci_state *state, int g)
{
    return state_bytes(state->pool->plan, g);
}

foci_status positional_state_copy(const foci_state *from, foci_state *to, int g)
{
    memcpy(to->own[g], from->own[g], positional_state_bytes(from, g));
    return FOCI_OK;
}

void positional_state_free(foci_state *state, int g)
{
    const foci_plan *plan = state->pool->plan;

    ctx_free(plan->ctx, state->own[g], state_bytes(plan, g) + 1, 1);
    state->own[g] = NULL;
}

void positional_state_save(const foci_state *state, int g, struct state_writer *w)
{
    write_bytes(w, state->own[g], positional_state_bytes(state, g));
}

/* Whether the word numbers of a saved state can be. */
static bool words_valid(const struct positional *x, const foci_state *state,
                        const char *own)
{
    for (int64_t h = 0; h < x->heads; h++) {
        const foci_positional p = positional_kind(x, h);
        struct last_word      word = { 0 };

        if (!p.words) continue;
        memcpy(&word, own + positional_head_offset(x, h), sizeof word);
        if (word.number < 0 || word.tokens < 0 || word.number > state->len ||
            word.tokens > state->len || (word.tokens == 0) != (state->len == 0))
            return false;
    }
    return true;
}

foci_status positional_state_restore(foci_state *state, int g, struct state_reader *r)
{
    const struct positional x = positional_step_geometry(state->pool->plan, g);

    if (!read_bytes(r, state->own[g], positional_state_bytes(state, g)) ||
        !words_valid(&x, state, state->own[g]))
        return state_damaged(state->pool);
    return FOCI_OK;
}

foci_status positional_state_truncate(foci_state *state, int g, int64_t len, bool really)
{
    const foci_plan *plan = state->pool->plan;

    if (len)
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP,
                        "the state cannot be cut back to %" PRId64
                        " tokens: %s keeps means over all of them, which forget none",
                        len, plan->spec.groups[g].mech.def->name);
    if (really) memset(state->own[g], 0, positional_state_bytes(state, g));
    return FOCI_OK;
}
