/* positional_step.c -- steps of the positional engine. */
#include <inttypes.h>
#include <string.h>

#include "engine/positional/positional_step.h"

/* The words of new tokens continue those of the state. */
static foci_status positional_step_check(const foci_pool *pool, int g,
                                         const foci_step_io *io)
{
    const struct positional x = positional_step_geometry(pool->plan, g);
    int64_t                 row = 0;

    if (!positional_kind(&x, 0).words) return FOCI_OK;
    if (!io->words)
        return ctx_fail(pool->plan->ctx, FOCI_ERR_ARG,
                        "words of the step is NULL, and %s reads words",
                        x.stage->group->mech.def->name);
    for (int64_t i = 0; i < io->n_states; i++) {
        const struct last_word *last = io->states[i] ? io->states[i]->own[g] : NULL;
        bool                    first = !last || !last->tokens;
        int64_t                 word = first ? 0 : last->number;

        for (int32_t t = 0; t < (io->tokens ? io->tokens[i] : 1); t++, row++) {
            if (io->words[row] != word && (first || io->words[row] != word + 1))
                return ctx_fail(pool->plan->ctx, FOCI_ERR_ARG,
                                "words of the step: %" PRId32 " of state %" PRId64
                                " should be %" PRId64 "%s",
                                io->words[row], i, word, first ? "" : " or one more");
            word = io->words[row];
            first = false;
        }
    }
    return FOCI_OK;
}

struct positional_step {
    struct positional        x;
    const struct state_step *step;
    int                      g;
    bool                     attend;
};

static struct positional_token open_head(const struct positional_step *s,
                                         const struct step_seq *q, int64_t h,
                                         struct positional_scratch *r)
{
    struct positional_token t = {
        .x = &s->x, .kind = positional_kind(&s->x, h), .r = r, .v = r->tile2
    };
    char          *at = (char *)q->state->own[s->g] + positional_head_offset(&s->x, h);
    const unsigned rows = positional_kept_rows(&t.kind);

    t.o = r->tile2 + s->x.ldv;
    t.state = at;
    for (int i = 0; i < MAX_KEPT; i++)
        t.row[i] = r->mean;
    if (positional_is_taps(&t.kind)) return t;
    if (t.kind.words) at += LAST_WORD_BYTES;
    for (int i = 0; i < MAX_KEPT; i++) {
        if (!(rows >> i & 1)) continue;
        t.row[i] = (double *)(void *)at;
        at += (size_t)s->x.ldv * sizeof(double);
    }
    return t;
}

static void taps_token(const struct positional_step  *s,
                       const struct positional_token *t, int64_t row, int64_t h)
{
    const foci_problem *p = s->x.p;

    if (s->attend && s->x.kind.pattern == FOCI_PATTERN_TAPS_OF_X)
        s->x.k->load_rows(t->r->x_rows, s->x.ldx,
                          (const char *)s->step->io->x +
                              (size_t)(row * p->dim_x) * s->x.el,
                          p->dim_x, (int)p->dtype, 1, (int)p->dim_x);
    positional_taps_token(t, s->step->io->params, h, s->attend);
}

/* New token number n of the sequence. */
static void step_token(const struct positional_step *s, const struct step_seq *q,
                       int64_t n, int64_t h, struct positional_token *t)
{
    const foci_problem *p = s->x.p;
    const int64_t       row = q->row0 + n, kv = s->x.kv0 + h / s->x.per_kv;
    const int64_t       from = row * p->kv_heads + s->step->kv0 + kv * s->step->kv_step;
    const int64_t       to = row * p->heads + s->x.head0 + h;
    const char         *v = s->step->io->v;
    char               *o = s->step->io->o;

    s->x.k->load_rows(t->v, s->x.ldv, v + (size_t)(from * p->dim_v) * s->x.el, p->dim_v,
                      (int)p->dtype, 1, s->x.dv);
    t->n = q->state->len - q->tokens + n;
    if (positional_is_taps(&t->kind))
        taps_token(s, t, row, h);
    else if (t->kind.words)
        positional_word_token(t, s->step->io->words[row]);
    else
        positional_token(t);
    if (s->attend)
        s->x.k->store_rows(o + (size_t)(to * p->dim_v) * s->x.el, p->dim_v,
                           (int)p->dtype, t->o, s->x.ldv, 1.0f, 1, s->x.dv);
}

/* All new tokens of one head of one sequence. */
static void job(void *arg, int64_t i, int thread)
{
    const struct positional_step *s = arg;
    const struct step_seq        *q = &s->step->seqs[i / s->x.heads];
    const int64_t                 h = i % s->x.heads;
    struct positional_scratch     r;

    positional_thread_scratch(&s->x, thread, &r);
    struct positional_token t = open_head(s, q, h, &r);
    for (int64_t n = 0; n < q->tokens; n++)
        step_token(s, q, n, h, &t);
}

static void positional_step_carve(struct positional_step *s, struct arena *a)
{
    struct arena              one = { 0 };
    struct positional_scratch r;

    positional_scratch_carve(&s->x, &one, &r);
    s->x.scratch_bytes = (one.used + 63) / 64 * 64;
    s->x.scratch = arena_alloc(a, s->x.plan->ctx->threads, s->x.scratch_bytes);
}

/* With fewer rows, waking threads costs more than they save. */
enum { FEW_ROWS = 4096 };

static void run_step(const struct state_step *step, int g, bool attend, struct arena *a)
{
    struct positional_step s = { .x = positional_step_geometry(step->pool->plan, g),
                                 .step = step,
                                 .g = g,
                                 .attend = attend };
    const int64_t          jobs = step->n_seqs * s.x.heads;

    positional_step_carve(&s, a);
    phases_run(s.x.k, false,
               jobs * step->max_tokens < FEW_ROWS ? 1 : step->pool->plan->ctx->threads,
               &(struct phase){ jobs, 1, job, &s }, 1);
}

static size_t append_bytes(const foci_pool *pool, int g)
{
    struct positional_step s = { .x = positional_step_geometry(pool->plan, g) };
    struct arena           a = { 0 };

    positional_step_carve(&s, &a);
    return a.used;
}

static void append(const struct state_step *step, int g)
{
    struct arena a = { .base = step->pool->scratch };

    if (!step->io->o) run_step(step, g, false, &a);
}

static void step_all(const struct state_step *step, int g, struct arena work)
{
    run_step(step, g, true, &work);
}

const struct decoder positional_decoder = {
    .make = positional_state_make,
    .copy = positional_state_copy,
    .free = positional_state_free,
    .bytes = positional_state_bytes,
    .save = positional_state_save,
    .restore = positional_state_restore,
    .truncate = positional_state_truncate,
    .check = positional_step_check,
    .append_bytes = append_bytes,
    .append = append,
    .step = step_all,
};
