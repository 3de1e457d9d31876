/* positional_step.c -- patterns token by token.
 *
 * A head keeps a few rows of doubles, and of words the number of the last one and of its
 * tokens:
 *
 *     previous   the row (word) before
 *     left       the mean, and the two rows (the word) after it
 *     end        the mean              start   four means
 *     words      and the mean of the word so far
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/positional.h"

/* Rows that a head keeps. */
enum { MEAN, BEFORE, BEFORE2, PART = 4, KEPT };

struct kept {
    int64_t word, tokens; /* of it; 0: there was none yet */
};

static struct positional geometry(const foci_plan *plan, int g)
{
    struct positional x;

    positional_geometry(&x, plan, &plan->stages[g]);
    return x;
}

/* Which rows a pattern keeps, as bits. */
static unsigned rows_kept(const foci_positional *p)
{
    const unsigned part = p->words ? 1u << PART : 0;

    switch (p->pattern) {
    case FOCI_PATTERN_PREVIOUS: return part | 1u << BEFORE;
    case FOCI_PATTERN_LEFT:
        return part | 1u << MEAN | 1u << BEFORE | (p->words ? 0 : 1u << BEFORE2);
    case FOCI_PATTERN_END: return part | 1u << MEAN;
    case FOCI_PATTERN_START: return part | ((1u << PART) - 1);
    default: return part;
    }
}

static int count_rows(unsigned rows)
{
    int n = 0;
    for (; rows; rows &= rows - 1)
        n++;
    return n;
}

/* Bytes of the state of heads before h. */
static size_t head_at(const struct positional *x, int64_t h)
{
    size_t at = 0;

    for (int64_t i = 0; i < h; i++) {
        const foci_positional p = positional_what(x, i);
        if (positional_is_taps(&p))
            at += taps_state_bytes(x);
        else
            at += (p.words ? 64 : 0) +
                  (size_t)count_rows(rows_kept(&p)) * (size_t)x->ldv * sizeof(double);
    }
    return at;
}

static size_t state_bytes(const foci_plan *plan, int g)
{
    const struct positional x = geometry(plan, g);
    return head_at(&x, x.heads);
}

static foci_status make(foci_state *state, int g)
{
    const foci_plan *plan = state->pool->plan;
    const size_t     n = state_bytes(plan, g);

    state->own[g] = ctx_alloc(plan->ctx, n + 1, 1);
    return state->own[g] ? FOCI_OK : FOCI_ERR_MEMORY;
}

static size_t bytes(const foci_state *state, int g)
{
    return state_bytes(state->pool->plan, g);
}

static foci_status copy(const foci_state *from, foci_state *to, int g)
{
    memcpy(to->own[g], from->own[g], bytes(from, g));
    return FOCI_OK;
}

static void release(foci_state *state, int g)
{
    const foci_plan *plan = state->pool->plan;

    ctx_free(plan->ctx, state->own[g], state_bytes(plan, g) + 1, 1);
    state->own[g] = NULL;
}

static void save(const foci_state *state, int g, struct writer *w)
{
    write_bytes(w, state->own[g], bytes(state, g));
}

/* Numbers of words are read as they are, so they have to make sense. */
static bool sound(const struct positional *x, const foci_state *state, const char *own)
{
    for (int64_t h = 0; h < x->heads; h++) {
        const foci_positional p = positional_what(x, h);
        struct kept           kept = { 0 };

        if (!p.words) continue;
        memcpy(&kept, own + head_at(x, h), sizeof kept);
        if (kept.word < 0 || kept.tokens < 0 || kept.word > state->len ||
            kept.tokens > state->len || (kept.tokens == 0) != (state->len == 0))
            return false;
    }
    return true;
}

static foci_status restore(foci_state *state, int g, struct reader *r)
{
    const struct positional x = geometry(state->pool->plan, g);

    if (!read_bytes(r, state->own[g], bytes(state, g)) ||
        !sound(&x, state, state->own[g]))
        return state_damaged(state->pool);
    return FOCI_OK;
}

static foci_status truncate(foci_state *state, int g, int64_t len, bool really)
{
    const foci_plan *plan = state->pool->plan;

    if (len)
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP,
                        "the state cannot be cut back to %" PRId64
                        " tokens: %s keeps means over all of them, which forget none",
                        len, plan->spec.groups[g].mech.def->name);
    if (really) memset(state->own[g], 0, bytes(state, g));
    return FOCI_OK;
}

/* New words go on where the state stopped. */
static foci_status check(const foci_pool *pool, int g, const foci_step_io *io)
{
    const struct positional x = geometry(pool->plan, g);
    int64_t                 row = 0;

    if (!positional_what(&x, 0).words) return FOCI_OK;
    if (!io->words)
        return ctx_fail(pool->plan->ctx, FOCI_ERR_ARG,
                        "words of the step is NULL, and %s reads words",
                        x.stage->group->mech.def->name);
    for (int64_t i = 0; i < io->n_states; i++) {
        const struct kept *kept = io->states[i] ? io->states[i]->own[g] : NULL;
        bool               first = !kept || !kept->tokens;
        int64_t            word = first ? 0 : kept->word;

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

/*
 * A token
 */

/* A head of a sequence, and where its rows are. */
struct token {
    const struct positional *x;
    foci_positional          what;
    void                    *kept; /* a struct kept, or rows of values */
    double                  *row[KEPT];
    int64_t                  n; /* tokens before it */
    float                   *v, *o;
    struct positional_room  *r;
};

static double mean_factor(int64_t m)
{
    const double n = (double)m;
    return 4 * n / ((n + 1) * (n + 1));
}

static void include(const struct token *t, const double *v, int64_t m)
{
    const double a = mean_factor(m);

    for (int c = 0; c < t->x->ldv; c++)
        t->row[MEAN][c] += a * (v[c] - t->row[MEAN][c]);
}

static void give(const struct token *t, const double *v)
{
    for (int c = 0; c < t->x->ldv; c++)
        t->o[c] = v ? (float)v[c] : 0;
}

static void keep(const struct token *t, double *to, const double *from)
{
    memcpy(to, from, (size_t)t->x->ldv * sizeof *to);
}

/* A row that sees nothing. */
static void give_empty(const struct token *t, const double *self)
{
    give(t, t->what.self ? self : NULL);
}

static void plain_token(const struct token *t)
{
    double      *v = t->r->base;
    struct cubes f;

    for (int c = 0; c < t->x->ldv; c++)
        v[c] = (double)t->v[c];
    switch (t->what.pattern) {
    case FOCI_PATTERN_CURRENT: give(t, v); break;
    case FOCI_PATTERN_PREVIOUS:
        if (t->n)
            give(t, t->row[BEFORE]);
        else
            give_empty(t, v);
        keep(t, t->row[BEFORE], v);
        break;
    case FOCI_PATTERN_LEFT:
        if (t->n >= 2) {
            include(t, t->row[BEFORE2], t->n - 1);
            give(t, t->row[MEAN]);
        } else {
            give_empty(t, v);
        }
        keep(t, t->row[BEFORE2], t->row[BEFORE]);
        keep(t, t->row[BEFORE], v);
        break;
    case FOCI_PATTERN_END:
        include(t, v, t->n + 1);
        give(t, t->row[MEAN]);
        break;
    case FOCI_PATTERN_START:
        positional_cubes(&f, t->n, 1);
        t->x->k->cube_rows(t->o, t->x->ldv, t->v, t->x->ldv, 1, t->x->ldv, &f,
                           t->row[MEAN]);
        break;
    default: give_empty(t, v); break;
    }
}

/* A new word begins: the one before is whole. */
static void end_word(const struct token *t, int64_t word)
{
    struct cubes f;

    switch (t->what.pattern) {
    case FOCI_PATTERN_LEFT:
        if (word >= 2) include(t, t->row[BEFORE], word - 1);
        keep(t, t->row[BEFORE], t->row[PART]);
        break;
    case FOCI_PATTERN_PREVIOUS: keep(t, t->row[BEFORE], t->row[PART]); break;
    case FOCI_PATTERN_END: include(t, t->row[PART], word); break;
    case FOCI_PATTERN_START:
        positional_cubes(&f, word - 1, 1);
        for (int c = 0; c < t->x->ldv; c++)
            t->r->tile[c] = (float)t->row[PART][c];
        t->x->k->cube_rows(t->r->tile, t->x->ldv, t->r->tile, t->x->ldv, 1, t->x->ldv,
                           &f, t->row[MEAN]);
        break;
    default: break;
    }
}

/* The word so far beside the means of those before. */
static void give_parts(const struct token *t, double by, const double *f, int n)
{
    const int ld = t->x->ldv;

    for (int c = 0; c < ld; c++) {
        double sum = by * t->row[PART][c];
        for (int p = 0; p < n; p++)
            sum += f[p] * t->row[MEAN][p * ld + c];
        t->o[c] = (float)sum;
    }
}

static void word_token(const struct token *t, int64_t word)
{
    struct kept *kept = t->kept;
    struct cubes f;
    double       a, rest;

    if (!kept->tokens || word != kept->word) {
        if (kept->tokens) end_word(t, word);
        *kept = (struct kept){ .word = word };
    }
    kept->tokens++;
    for (int c = 0; c < t->x->ldv; c++)
        t->row[PART][c] = kept->tokens == 1
                              ? (double)t->v[c]
                              : t->row[PART][c] + ((double)t->v[c] - t->row[PART][c]) /
                                                      (double)kept->tokens;
    switch (t->what.pattern) {
    case FOCI_PATTERN_CURRENT: give(t, t->row[PART]); break;
    case FOCI_PATTERN_PREVIOUS:
        if (word > 0)
            give(t, t->row[BEFORE]);
        else
            give_empty(t, t->row[PART]);
        break;
    case FOCI_PATTERN_LEFT:
        if (word > 1)
            give(t, t->row[MEAN]);
        else
            give_empty(t, t->row[PART]);
        break;
    case FOCI_PATTERN_END:
        a = mean_factor(word + 1);
        rest = 1 - a;
        give_parts(t, a, &rest, 1);
        break;
    case FOCI_PATTERN_START:
        positional_cubes(&f, word, 1);
        give_parts(t, f.in[3], f.from + 6, 4);
        break;
    default: give_empty(t, t->row[PART]); break;
    }
}

/*
 * A step
 */

struct stepping {
    struct positional  x;
    const struct step *step;
    int                g;
    bool               attend;
};

static struct token open_head(const struct stepping *s, const struct step_seq *q,
                              int64_t h, struct positional_room *r)
{
    struct token t = {
        .x = &s->x, .what = positional_what(&s->x, h), .r = r, .v = r->more
    };
    char          *at = (char *)q->state->own[s->g] + head_at(&s->x, h);
    const unsigned rows = rows_kept(&t.what);

    t.o = r->more + s->x.ldv;
    t.kept = at;
    for (int i = 0; i < KEPT; i++)
        t.row[i] = r->state; /* of those that are not kept nothing is asked */
    if (positional_is_taps(&t.what)) return t;
    if (t.what.words) {
        at += 64;
    }
    for (int i = 0; i < KEPT; i++) {
        if (!(rows >> i & 1)) continue;
        t.row[i] = (double *)(void *)at;
        at += (size_t)s->x.ldv * sizeof(double);
    }
    return t;
}

static void tap_token(const struct stepping *s, const struct token *t, int64_t row,
                      int64_t h)
{
    const foci_problem *p = s->x.p;

    if (s->attend && s->x.kind.pattern == FOCI_PATTERN_TAPS_OF_X)
        s->x.k->load_rows(t->r->xs, s->x.ldx,
                          (const char *)s->step->io->x +
                              (size_t)(row * p->dim_x) * s->x.el,
                          p->dim_x, (int)p->dtype, 1, (int)p->dim_x);
    taps_token(&s->x, s->step->io->params, h, t->kept, t->v, t->r->xs,
               s->attend ? t->o : NULL, t->r);
}

static void job(void *arg, int64_t i, int thread)
{
    const struct stepping *s = arg;
    const foci_problem    *p = s->x.p;
    const struct step_seq *q = &s->step->seqs[i / s->x.heads];
    const int64_t          h = i % s->x.heads;
    const int64_t          kv = s->x.kv0 + h / s->x.per_kv;
    struct arena mine = { .base = s->x.scratch + (size_t)thread * s->x.scratch_bytes };
    struct positional_room room;

    positional_room(&s->x, &mine, &room);
    struct token t = open_head(s, q, h, &room);
    for (int64_t n = 0; n < q->tokens; n++) {
        const int64_t row = q->row0 + n;
        const int64_t from = row * p->kv_heads + s->step->kv0 + kv * s->step->kv_step;
        const int64_t to = row * p->heads + s->x.head0 + h;

        s->x.k->load_rows(t.v, s->x.ldv,
                          (const char *)s->step->io->v +
                              (size_t)(from * p->dim_v) * s->x.el,
                          p->dim_v, (int)p->dtype, 1, s->x.dv);
        t.n = q->state->len - q->tokens + n;
        if (positional_is_taps(&t.what))
            tap_token(s, &t, row, h);
        else if (t.what.words)
            word_token(&t, s->step->io->words[row]);
        else
            plain_token(&t);
        if (s->attend)
            s->x.k->store_rows(
                (char *)s->step->io->o + (size_t)(to * p->dim_v) * s->x.el, p->dim_v,
                (int)p->dtype, t.o, s->x.ldv, 1.0f, 1, s->x.dv);
    }
}

static void take(struct stepping *s, struct arena *a)
{
    struct arena           one = { 0 };
    struct positional_room room;

    positional_room(&s->x, &one, &room);
    s->x.scratch_bytes = (one.used + 63) / 64 * 64;
    s->x.scratch = arena_take(a, s->x.plan->ctx->threads, s->x.scratch_bytes);
}

/* Rows below which waking threads costs more than they save. */
enum { FEW = 4096 };

static void run(const struct step *step, int g, bool attend, struct arena *a)
{
    struct stepping s = {
        .x = geometry(step->pool->plan, g), .step = step, .g = g, .attend = attend
    };
    const int64_t jobs = step->n_seqs * s.x.heads;

    take(&s, a);
    phases_run(s.x.k, false,
               jobs * step->max_tokens < FEW ? 1 : step->pool->plan->ctx->threads,
               &(struct phase){ jobs, 1, job, &s }, 1);
}

static size_t append_bytes(const foci_pool *pool, int g)
{
    struct stepping s = { .x = geometry(pool->plan, g) };
    struct arena    a = { 0 };

    take(&s, &a);
    return a.used;
}

static void append(const struct step *step, int g)
{
    struct arena a = { .base = step->pool->scratch };

    if (!step->io->o) run(step, g, false, &a);
}

static void step_all(const struct step *step, int g, struct arena work)
{
    run(step, g, true, &work);
}

const struct decoder positional_decoder = {
    .make = make,
    .copy = copy,
    .free = release,
    .bytes = bytes,
    .save = save,
    .restore = restore,
    .truncate = truncate,
    .check = check,
    .append_bytes = append_bytes,
    .append = append,
    .step = step_all,
};
