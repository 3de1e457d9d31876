/* linear_step.c -- sums over features, token by token: states and steps. */
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "engine/linear_step.h"

/*
 * What a state has
 */

static size_t lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

static struct set_layout layout_of(const struct linear *x)
{
    const size_t      m = (size_t)x->m;
    struct set_layout l = {
        .shared = !step_projects(x) && !x->l->decays,
        .lds = (int)round_up(x->dv, 8),
        .room = (int)round_up(x->m, LANES),
        .has_total = x->divides || x->l->norm == FOCI_NORM_FEATURE,
    };

    l.sets = l.shared ? x->kv_heads : x->heads;
    l.total = lines(m * (size_t)l.lds * sizeof(double));
    l.top = l.total + (l.has_total ? lines(m * sizeof(double)) : 0);
    l.all = l.top + (x->logs        ? (size_t)l.room * sizeof(float)
                     : x->lane_logs ? lines(sizeof(float))
                                    : 0);
    return l;
}

static struct set set_of(const struct stepping *s, void *sets, int64_t i)
{
    char *at = (char *)sets + (size_t)i * s->set.all;

    return (struct set){ (double *)(void *)at, (double *)(void *)(at + s->set.total),
                         (float *)(void *)(at + s->set.top) };
}

static struct stepping stepping_of(const foci_plan *plan, int g)
{
    struct stepping s = { 0 };

    linear_geometry(&s.x, plan, &plan->stages[g]);
    s.set = layout_of(&s.x);
    s.ldx = round_up(s.x.dq, LANES);
    return s;
}

/* No token yet: every unit is e^-inf. */
static void clear(const struct stepping *s, void *sets)
{
    memset(sets, 0, s->set.all * (size_t)s->set.sets);
    for (int64_t i = 0; i < s->set.sets; i++) {
        float    *top = set_of(s, sets, i).top;
        const int n = s->x.logs ? s->set.room : s->x.lane_logs;
        for (int t = 0; t < n; t++)
            top[t] = -INFINITY;
    }
}

/*
 * Pools and states
 */

/* On a null arena only sizes. */
static void fill_pool(const foci_plan *plan, int g, struct linear_pool *own,
                      struct arena *a)
{
    struct linear x;

    linear_geometry(&x, plan, &plan->stages[g]);
    x.seqs = &own->seq;
    x.n_seqs = 1;
    linear_maps_take(&x, a);
    own->maps = x.maps;
    own->turns = arena_take(a, x.turns ? x.m : 0, sizeof *own->turns);
    for (int64_t t = 0; a->base && x.turns && t < x.m / 2; t++) {
        own->turns[2 * t] = cos(x.maps.speeds[t]);
        own->turns[2 * t + 1] = sin(x.maps.speeds[t]);
    }
}

static foci_status pool_make(foci_pool *pool, int g)
{
    foci_ctx           *ctx = pool->plan->ctx;
    struct linear_pool *own = ctx_alloc(ctx, 1, sizeof *own);
    struct arena        a = { 0 };

    pool->own[g] = own;
    if (!own) return FOCI_ERR_MEMORY;
    fill_pool(pool->plan, g, own, &a);
    own->bytes = a.used;
    own->tables = ctx_alloc(ctx, own->bytes, 1);
    if (!own->tables) return FOCI_ERR_MEMORY;
    a = (struct arena){ .base = own->tables };
    fill_pool(pool->plan, g, own, &a);
    return FOCI_OK;
}

static void pool_free(foci_pool *pool, int g)
{
    struct linear_pool *own = pool->own[g];

    if (!own) return;
    ctx_free(pool->plan->ctx, own->tables, own->bytes, 1);
    ctx_free(pool->plan->ctx, own, 1, sizeof *own);
    pool->own[g] = NULL;
}

static foci_status make(foci_state *state, int g)
{
    const foci_plan      *plan = state->pool->plan;
    const struct stepping s = stepping_of(plan, g);

    state->own[g] = ctx_alloc(plan->ctx, (size_t)s.set.sets, s.set.all);
    if (!state->own[g]) return FOCI_ERR_MEMORY;
    clear(&s, state->own[g]);
    return FOCI_OK;
}

static size_t bytes(const foci_state *state, int g)
{
    const struct stepping s = stepping_of(state->pool->plan, g);
    return s.set.all * (size_t)s.set.sets;
}

static foci_status copy(const foci_state *from, foci_state *to, int g)
{
    memcpy(to->own[g], from->own[g], bytes(from, g));
    return FOCI_OK;
}

static void release(foci_state *state, int g)
{
    const foci_plan      *plan = state->pool->plan;
    const struct stepping s = stepping_of(plan, g);

    ctx_free(plan->ctx, state->own[g], (size_t)s.set.sets, s.set.all);
    state->own[g] = NULL;
}

static void save(const foci_state *state, int g, struct writer *w)
{
    write_bytes(w, state->own[g], bytes(state, g));
}

static foci_status restore(foci_state *state, int g, struct reader *r)
{
    return read_bytes(r, state->own[g], bytes(state, g)) ? FOCI_OK
                                                         : state_damaged(state->pool);
}

static foci_status truncate(foci_state *state, int g, int64_t len, bool really)
{
    const foci_plan *plan = state->pool->plan;

    if (len)
        return ctx_fail(plan->ctx, FOCI_ERR_UNSUP,
                        "the state cannot be cut back to %" PRId64
                        " tokens: %s keeps sums over all of them, which forget none",
                        len, plan->spec.groups[g].mech.def->name);
    if (really) {
        const struct stepping s = stepping_of(plan, g);
        clear(&s, state->own[g]);
    }
    return FOCI_OK;
}

/*
 * What a step may be
 */

/* A number of the statistics that is not there, if they have one. */
static bool uncalibrated(const struct stepping *s, const float *params)
{
    const struct group *g = s->x.stage->group;
    const int64_t       d = s->x.dq;
    const int           last = s->x.l->moments == FOCI_MOMENTS_NORM ? 1 : 5;

    for (int t = 1; s->x.l->moments && t <= last; t++)
        for (int64_t i = 0; i < s->x.heads * d * (t > 1 ? d : 1); i++)
            if (isnan(params[g->param0[t] + i])) return true;
    return false;
}

static foci_status check(const foci_pool *pool, int g, const foci_step_io *io)
{
    const struct stepping s = stepping_of(pool->plan, g);
    const char           *name = s.x.stage->group->mech.def->name;
    const bool            reads =
        step_projects(&s.x) || (s.x.l->decays && s.x.stage->group->param0[0] >= 0);

    if (reads && pool->plan->n_floats && !io->params)
        return ctx_fail(pool->plan->ctx, FOCI_ERR_ARG,
                        "params is NULL: %s needs them for tokens that are only "
                        "appended, too",
                        name);
    if (uncalibrated(&s, io->params))
        return ctx_fail(pool->plan->ctx, FOCI_ERR_UNSUP,
                        "the statistics of %s are not numbers: decoding needs them "
                        "frozen, by foci_params_calibrate() or given as A",
                        name);
    return FOCI_OK;
}

static foci_status reserve(foci_state *state, int g, int64_t tokens, int64_t *pages)
{
    const struct stage *s = &state->pool->plan->stages[g];
    const int64_t       len = state->len + tokens;

    (void)pages;
    if (s->linear.turned && (double)len > s->linear.length)
        return ctx_fail(state->pool->plan->ctx, FOCI_ERR_UNSUP,
                        "%s has length=%.0f, and the state would have %" PRId64
                        " tokens",
                        s->group->mech.def->name, s->linear.length, len);
    return FOCI_OK;
}

/*
 * Memory
 */

static struct step_room room_take(const struct stepping *s, struct arena *a)
{
    const struct linear *x = &s->x;
    const int64_t        m = s->set.room;
    struct step_room     r = { 0 };

    r.rows = arena_take(a, 8 * s->ldx, sizeof *r.rows);
    r.dots = arena_take(a, (int64_t)8 * LANES, sizeof *r.dots);
    r.key = arena_take(a, m, sizeof *r.key);
    r.query = arena_take(a, m, sizeof *r.query);
    r.keyt = x->turns ? arena_take(a, m, sizeof *r.keyt) : r.key;
    r.queryt = x->turns ? arena_take(a, m, sizeof *r.queryt) : r.query;
    r.top = arena_take(a, x->logs ? m : 0, sizeof *r.top);
    r.shrink = arena_take(a, x->logs ? m : 0, sizeof *r.shrink);
    r.angles = arena_take(a, x->turns ? m : 0, sizeof *r.angles);
    r.turns = arena_take(a, x->turns ? m : 0, sizeof *r.turns);
    r.keep = arena_take(a, m, sizeof *r.keep);
    r.v = arena_take(a, s->set.lds, sizeof *r.v);
    r.out = arena_take(a, s->set.lds, sizeof *r.out);
    r.o = arena_take(a, s->set.lds, sizeof *r.o);
    if (s->chunks) r.scan = linear_scan_take(x, a);
    return r;
}

static void take(struct stepping *s, int64_t n_seqs, struct arena *a)
{
    struct linear *x = &s->x;
    struct arena   one = { 0 };

    s->turns = arena_take(a, x->turns ? n_seqs : 0, (size_t)x->m * sizeof *s->turns);
    s->bias = step_has_bias(x)
                  ? arena_take(a, x->heads * (int64_t)s->set.room, sizeof *s->bias)
                  : NULL;
    if (s->chunks) {
        x->seqs = arena_take(a, n_seqs, sizeof *x->seqs);
        linear_params_take(x, a);
    }
    room_take(s, &one);
    s->scratch_bytes = one.used;
    s->scratch = arena_take(a, x->threads, one.used);
}

static size_t append_bytes(const foci_pool *pool, int g)
{
    struct stepping s = stepping_of(pool->plan, g);
    struct arena    a = { 0 };

    s.chunks = true;
    take(&s, 1, &a);
    return a.used;
}

static size_t step_bytes(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                         int64_t max_len)
{
    struct stepping s = stepping_of(pool->plan, g);
    struct arena    a = { 0 };

    (void)max_len;
    s.chunks = tokens >= MANY;
    take(&s, n_seqs, &a);
    return a.used;
}

/*
 * A token
 */

static const char *row_at(const struct stepping *s, const void *base, int64_t row,
                          int64_t d)
{
    return (const char *)base + (size_t)(row * d) * foci_dtype_bytes(s->x.plan->p.dtype);
}

/* Key/value head kv of token t of the sequence among the rows of k and v. */
static int64_t kv_row(const struct stepping *s, const struct item *i, int64_t t)
{
    const struct step *step = s->step;
    const int64_t      head = step->kv0 + (s->x.kv0 + i->kv) * step->kv_step;

    return (i->seq->row0 + t) * s->x.plan->p.kv_heads + head;
}

static int64_t q_row(const struct stepping *s, const struct item *i, int64_t t,
                     int64_t h)
{
    return (i->seq->row0 + t) * s->x.plan->p.heads + s->x.head0 + h;
}

static void load(const struct stepping *s, const void *base, int64_t row, int d,
                 int64_t ld, float *out)
{
    s->x.k->load_rows(out, ld, row_at(s, base, row, d), d, (int)s->x.plan->p.dtype, 1,
                      d);
}

static void fill_keep(const struct stepping *s, double keep, const struct step_room *r)
{
    for (int i = 0; i < s->set.room; i++)
        r->keep[i] = keep;
}

/* Pairs that are turned share their unit. */
static void share_tops(const struct stepping *s, const struct step_room *r)
{
    const bool half = s->x.stage->score.rope_half;
    const int  m = s->x.m;

    memcpy(r->top, r->key, (size_t)s->set.room * sizeof *r->top);
    for (int t = 0; s->x.turns && t < m / 2; t++) {
        const int   a = half ? t : 2 * t, b = half ? t + m / 2 : 2 * t + 1;
        const float most = r->key[a] > r->key[b] ? r->key[a] : r->key[b];
        r->top[a] = r->top[b] = most;
    }
}

/* Logs of the key to features in the units of the set, which may move. */
static void settle(const struct stepping *s, const struct item *i,
                   const struct step_room *r)
{
    share_tops(s, r);
    if (!s->x.k->log_key(r->key, i->set.top, r->shrink, r->top, s->set.room)) return;
    for (int t = 0; t < s->x.m; t++)
        r->keep[t] = (double)r->shrink[t];
}

/* The same with one log for all. */
static void settle_row(const struct stepping *s, const struct item *i, float log,
                       const struct step_room *r)
{
    float *top = i->set.top;

    if (log > *top + 8) {
        fill_keep(s, exp((double)*top - (double)log), r);
        *top = log;
    }
    const float by = expf(log - *top);
    for (int t = 0; t < s->x.m; t++)
        r->key[t] *= by;
}

static void turn(const struct stepping *s, const float *f, float *out,
                 const struct step_room *r)
{
    if (!s->x.turns) return;
    memcpy(out, f, (size_t)s->x.m * sizeof *out);
    s->x.k->turn(out, s->x.m, r->angles, s->x.m, 1, s->x.m, s->x.stage->score.rope_half,
                 0);
}

static void map_key(const struct stepping *s, const struct item *i, int64_t t,
                    bool query, const struct step_room *r)
{
    const int64_t pos = i->seq->state->len - i->seq->tokens + t;

    load(s, s->step->io->k, kv_row(s, i, t), s->x.dq, s->ldx, r->rows);
    if (step_projects(&s->x)) {
        if (query)
            load(s, s->step->io->q, q_row(s, i, t, i->h), s->x.dq, s->ldx,
                 r->rows + s->ldx);
        const float log = step_project(s, i->h, query, r);
        if (s->x.lane_logs) settle_row(s, i, log, r);
    } else
        step_map(s, true, pos, r);
    if (s->x.logs) settle(s, i, r);
    turn(s, r->key, r->keyt, r);
}

/* z = keep z + g */
static void add_total(const struct stepping *s, const struct item *i,
                      const struct step_room *r)
{
    for (int t = 0; s->set.has_total && t < s->x.m; t++)
        i->set.total[t] = r->keep[t] * i->set.total[t] + (double)r->key[t];
}

/* Softmax over the row, and every feature divided by its sum. */
static void divide_features(const struct stepping *s, const struct item *i,
                            const struct step_room *r)
{
    double sum = 0;

    memset(r->top, 0, (size_t)s->set.room * sizeof *r->top);
    (void)s->x.k->log_query(r->query, r->top, s->set.room);
    for (int t = 0; t < s->x.m; t++)
        sum += (double)r->query[t];
    for (int t = 0; t < s->x.m; t++) {
        const double total = i->set.total[t];
        r->query[t] = total != 0 ? (float)((double)r->query[t] / (sum * total)) : 0;
    }
}

static double read_total(const struct stepping *s, const struct item *i,
                         const struct step_room *r)
{
    enum { SIDE = 4 };
    double sum[SIDE] = { 0 };
    int    t = 0;

    for (; t + SIDE <= s->x.m; t += SIDE)
        for (int c = 0; c < SIDE; c++)
            sum[c] += (double)r->query[t + c] * i->set.total[t + c];
    for (; t < s->x.m; t++)
        sum[0] += (double)r->query[t] * i->set.total[t];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* What a row is multiplied by, `den` being the sum of its weights and n the keys seen. */
static double share_of(const struct stepping *s, const struct item *i, double den,
                       int64_t n)
{
    const foci_linear *l = s->x.l;
    const double       least = linear_signed(l) ? 1e-30 : 0;

    switch (l->norm) {
    case FOCI_NORM_COUNT: return 1 / (double)n;
    case FOCI_NORM_SUM: den += l->eps; return fabs(den) <= least ? 0 : 1 / den;
    case FOCI_NORM_RETNET: {
        const double t = sqrt(linear_series(i->lam, n));
        return 1 / fmax(fabs(den), t);
    }
    default: return 1;
    }
}

/* Head h reads the set, to which the token is added by the first of them. */
static void read_set(const struct stepping *s, const struct item *i, int64_t t,
                     int64_t h, const struct step_room *r)
{
    const struct linear *x = &s->x;
    const int64_t        n = i->seq->state->len - i->seq->tokens + t + 1;

    if (!step_projects(x)) {
        load(s, s->step->io->q, q_row(s, i, t, h), x->dq, s->ldx, r->rows + s->ldx);
        step_map(s, false, n - 1, r);
    }
    if (x->l->norm == FOCI_NORM_FEATURE)
        divide_features(s, i, r);
    else if (x->logs)
        (void)x->k->log_query(r->query, i->set.top, s->set.room);
    const double den = x->divides ? read_total(s, i, r) : 0;
    turn(s, r->query, r->queryt, r);

    memset(r->o, 0, (size_t)s->set.lds * sizeof *r->o);
    x->k->recur(i->set.rows, s->set.lds, r->keep, h == i->h ? r->keyt : NULL, r->v,
                r->o, r->queryt, x->m);
    const double share = share_of(s, i, den, n);
    for (int c = 0; c < x->dv; c++)
        r->out[c] = share != 0 ? (float)(r->o[c] * share) : 0;
    x->k->store_rows((char *)s->step->io->o + (size_t)(q_row(s, i, t, h) * x->dv) *
                                                  foci_dtype_bytes(x->plan->p.dtype),
                     x->dv, (int)x->plan->p.dtype, r->out, s->set.lds, 1.0f, 1, x->dv);
}

/* Cosines and sines of this token; those of the next follow from them. */
static void set_angles(const struct stepping *s, const struct step_room *r)
{
    const bool    half = s->x.stage->score.rope_half;
    const int     m = s->x.m;
    const double *by = ((const struct linear_pool *)s->step->pool->own[s->g])->turns;

    for (int64_t t = 0; t < m / 2; t++) {
        const double c = r->turns[2 * t], n = r->turns[2 * t + 1];

        r->angles[half ? t : 2 * t] = (float)c;
        r->angles[half ? t + m / 2 : 2 * t + 1] = (float)n;
        r->turns[2 * t] = c * by[2 * t] - n * by[2 * t + 1];
        r->turns[2 * t + 1] = c * by[2 * t + 1] + n * by[2 * t];
    }
}

static void token(const struct stepping *s, const struct item *i, int64_t t,
                  bool attend, const struct step_room *r)
{
    if (s->x.turns) set_angles(s, r);
    load(s, s->step->io->v, kv_row(s, i, t), s->x.dv, s->set.lds, r->v);
    map_key(s, i, t, attend, r);
    add_total(s, i, r);
    for (int64_t h = i->h; attend && h < i->h + i->heads; h++)
        read_set(s, i, t, h, r);
    if (!attend)
        s->x.k->recur(i->set.rows, s->set.lds, r->keep, r->keyt, r->v, NULL, NULL,
                      s->x.m);
    if (s->x.logs || s->x.lane_logs) fill_keep(s, 1, r);
}

/*
 * A step
 */

/* The angles of new token number t of a sequence. */
static void start_turns(const struct stepping *s, const struct step_seq *seq, int64_t t,
                        double *turns)
{
    const double pos = (double)(seq->state->len - seq->tokens + t);

    for (int64_t c = 0; s->x.turns && c < s->x.m / 2; c++) {
        turns[2 * c] = cos(pos * s->x.maps.speeds[c]);
        turns[2 * c + 1] = sin(pos * s->x.maps.speeds[c]);
    }
}

/* Set number n % sets of sequence n / sets. */
static void do_item(const struct stepping *s, int64_t n, bool attend,
                    struct step_room *r)
{
    const struct linear *x = &s->x;
    const int64_t        q = n / s->set.sets, at = n % s->set.sets;
    struct item          i = { .q = q,
                               .seq = &s->step->seqs[q],
                               .set = set_of(s, s->step->seqs[q].state->own[s->g], at) };

    i.heads = s->set.shared ? x->per_kv : 1;
    i.h = at * i.heads;
    i.kv = i.h / x->per_kv;
    i.lam = x->l->decays ? linear_decay(x, i.h) : 1;
    const int64_t first = s->chunks ? step_chunks(s, &i, attend, r) : 0;
    fill_keep(s, i.lam, r);
    if (x->turns && first)
        start_turns(s, i.seq, first, r->turns);
    else if (x->turns)
        memcpy(r->turns, s->turns + q * x->m, (size_t)x->m * sizeof *r->turns);
    for (int64_t t = first; t < i.seq->tokens; t++)
        token(s, &i, t, attend, r);
}

/* Below this much to read and write, waking threads costs more than they save. */
static const double alone_bytes = 1 << 20;

static int threads_of(const struct stepping *s)
{
    double all = 0;

    for (int64_t i = 0; i < s->step->n_seqs; i++)
        all += (double)s->step->seqs[i].tokens * (double)s->set.sets *
               (double)s->set.all * 2;
    return all < alone_bytes ? 1 : team_size(s->x.threads);
}

static void run(struct stepping *s, bool attend)
{
    const int64_t items = s->step->n_seqs * s->set.sets;
    const int     threads = threads_of(s);

    for (int64_t i = 0; i < s->step->n_seqs; i++)
        start_turns(s, &s->step->seqs[i], 0, s->turns + i * s->x.m);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        struct arena        mine = { .base = s->scratch +
                                             (size_t)omp_get_thread_num() * s->scratch_bytes };
        struct step_room    r = room_take(s, &mine);
        struct thread_state before;

        if (s->x.k->begin) s->x.k->begin(&before);
        if (s->bias) {
#pragma omp for schedule(dynamic, 1)
            for (int64_t h = 0; h < s->x.heads; h++)
                step_bias(s, h, &r);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < items; i++)
            do_item(s, i, attend, &r);
        if (s->x.k->end) s->x.k->end(&before);
    }
}

static void step_run(const struct step *step, int g, struct arena *a, bool attend)
{
    struct stepping s = stepping_of(step->pool->plan, g);

    s.step = step;
    s.g = g;
    s.chunks = step->max_tokens >= MANY;
    s.io.params = step->io->params;
    s.x.io = &s.io;
    s.x.maps = ((const struct linear_pool *)step->pool->own[g])->maps;
    take(&s, step->n_seqs, a);
    if (s.chunks) step_chunks_open(&s);
    run(&s, attend);
}

/* With outputs, tokens are added while queries read: by step. */
static void append(const struct step *step, int g)
{
    struct arena a = { .base = step->pool->scratch };

    if (!step->io->o) step_run(step, g, &a, false);
}

static void step_all(const struct step *step, int g, struct arena work)
{
    step_run(step, g, &work, true);
}

const struct decoder linear_decoder = {
    .pool_make = pool_make,
    .pool_free = pool_free,
    .make = make,
    .copy = copy,
    .free = release,
    .bytes = bytes,
    .save = save,
    .restore = restore,
    .truncate = truncate,
    .check = check,
    .reserve = reserve,
    .append_bytes = append_bytes,
    .append = append,
    .step_bytes = step_bytes,
    .step = step_all,
};
