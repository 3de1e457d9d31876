/* exact_step_labels.c -- keys that share a label with a query, in a step.
 *
 * Tokens of equal label are chained, so a row that looks for its keys walks these and
 * no others.  With several rounds its chains are merged from the last token back; a
 * token that several have comes up once.
 */
#include <math.h>
#include <string.h>

#include "engine/exact_step.h"

int64_t labels_maps(const struct stage *s)
{
    if (s->order.label == FOCI_LABEL_NONE) return 0;
    if (s->order.label == FOCI_LABEL_PLACE) return max64(1, s->order.rounds);
    return s->group->heads * max64(1, s->order.rounds);
}

int64_t labels_most(const struct stage *s)
{
    if (s->order.label == FOCI_LABEL_NEAREST) return vectors_count(s);
    return s->order.label == FOCI_LABEL_ANGULAR ? 2 * vectors_count(s) : INT32_MAX;
}

/*
 * Maps
 */

static uint64_t place_in(const struct label_map *m, int64_t label)
{
    uint64_t h = (uint64_t)label * UINT64_C(0x9E3779B97F4A7C15);
    return (h ^ h >> 32) % (uint64_t)m->n_table;
}

/* Where the number of a label is in the table, or would be. */
static int32_t *entry(const struct label_map *m, int64_t label)
{
    uint64_t at = place_in(m, label);
    while (m->table[at] >= 0 && m->label[m->table[at]] != label)
        at = (at + 1) % (uint64_t)m->n_table;
    return &m->table[at];
}

static void fill_table(struct label_map *m)
{
    memset(m->table, 0xff, (size_t)m->n_table * sizeof *m->table);
    for (int32_t i = 0; i < m->n_labels; i++)
        *entry(m, m->label[i]) = i;
}

static foci_status grow_labels(foci_ctx *ctx, struct label_map *m, int64_t n)
{
    const int64_t cap = max64(n, 2 * m->cap_labels);
    const size_t  used = (size_t)m->n_labels;
    int64_t      *label = ctx_alloc(ctx, (size_t)cap, sizeof *label);
    int32_t      *last = ctx_alloc(ctx, (size_t)cap, sizeof *last);
    int32_t      *table = ctx_alloc(ctx, 2 * (size_t)cap, sizeof *table);

    if (!label || !last || !table) {
        ctx_free(ctx, label, (size_t)cap, sizeof *label);
        ctx_free(ctx, last, (size_t)cap, sizeof *last);
        ctx_free(ctx, table, 2 * (size_t)cap, sizeof *table);
        return FOCI_ERR_MEMORY;
    }
    if (used) {
        memcpy(label, m->label, used * sizeof *label);
        memcpy(last, m->last, used * sizeof *last);
    }
    ctx_free(ctx, m->label, (size_t)m->cap_labels, sizeof *label);
    ctx_free(ctx, m->last, (size_t)m->cap_labels, sizeof *last);
    ctx_free(ctx, m->table, (size_t)m->n_table, sizeof *table);
    m->label = label;
    m->last = last;
    m->table = table;
    m->cap_labels = cap;
    m->n_table = 2 * cap;
    fill_table(m);
    return FOCI_OK;
}

static foci_status grow_tokens(foci_ctx *ctx, struct label_map *m, int64_t n)
{
    const int64_t cap = max64(n, 2 * m->cap);
    int32_t      *before = ctx_alloc(ctx, (size_t)cap, sizeof *before);
    int32_t      *what = ctx_alloc(ctx, (size_t)cap, sizeof *what);

    if (!before || !what) {
        ctx_free(ctx, before, (size_t)cap, sizeof *before);
        ctx_free(ctx, what, (size_t)cap, sizeof *what);
        return FOCI_ERR_MEMORY;
    }
    if (m->cap) {
        memcpy(before, m->before, (size_t)m->cap * sizeof *before);
        memcpy(what, m->what, (size_t)m->cap * sizeof *what);
    }
    ctx_free(ctx, m->before, (size_t)m->cap, sizeof *before);
    ctx_free(ctx, m->what, (size_t)m->cap, sizeof *what);
    m->before = before;
    m->what = what;
    m->cap = cap;
    return FOCI_OK;
}

foci_status labels_reserve(foci_ctx *ctx, struct label_map *m, int64_t tokens,
                           int64_t labels)
{
    if (labels > m->cap_labels) TRY(grow_labels(ctx, m, labels));
    if (tokens > m->cap) TRY(grow_tokens(ctx, m, tokens));
    return FOCI_OK;
}

void labels_add(struct label_map *m, int64_t at, int64_t label)
{
    m->what[at] = m->before[at] = -1;
    if (label == NO_LABEL) return;
    int32_t *number = entry(m, label);
    if (*number < 0) {
        *number = (int32_t)m->n_labels++;
        m->label[*number] = label;
        m->last[*number] = -1;
    }
    m->what[at] = *number;
    m->before[at] = m->last[*number];
    m->last[*number] = (int32_t)at;
}

/* Its number; -1: no token has it. */
static int32_t find(const struct label_map *m, int64_t label)
{
    return label == NO_LABEL || !m->n_labels ? -1 : *entry(m, label);
}

/* Labels are numbered as they come, so those of the tokens that go are the last. */
void labels_cut(struct label_map *m, int64_t len, int64_t new_len)
{
    for (int64_t j = len - 1; j >= new_len; j--)
        if (m->what[j] >= 0) m->last[m->what[j]] = m->before[j];
    const int64_t before = m->n_labels;
    while (m->n_labels && m->last[m->n_labels - 1] < 0)
        m->n_labels--;
    if (m->n_labels < before) fill_table(m);
}

foci_status labels_copy(foci_ctx *ctx, const struct label_map *from, int64_t len,
                        struct label_map *to)
{
    if (!len) return FOCI_OK;
    TRY(labels_reserve(ctx, to, len, from->n_labels));
    memcpy(to->before, from->before, (size_t)len * sizeof *to->before);
    memcpy(to->what, from->what, (size_t)len * sizeof *to->what);
    if (!from->n_labels) return FOCI_OK; /* no token has one, and there are no tables */
    memcpy(to->label, from->label, (size_t)from->n_labels * sizeof *to->label);
    memcpy(to->last, from->last, (size_t)from->n_labels * sizeof *to->last);
    to->n_labels = from->n_labels;
    fill_table(to);
    return FOCI_OK;
}

void labels_free(foci_ctx *ctx, struct label_map *m)
{
    ctx_free(ctx, m->label, (size_t)m->cap_labels, sizeof *m->label);
    ctx_free(ctx, m->last, (size_t)m->cap_labels, sizeof *m->last);
    ctx_free(ctx, m->table, (size_t)m->n_table, sizeof *m->table);
    ctx_free(ctx, m->before, (size_t)m->cap, sizeof *m->before);
    ctx_free(ctx, m->what, (size_t)m->cap, sizeof *m->what);
    *m = (struct label_map){ 0 };
}

size_t labels_bytes(const struct label_map *m)
{
    return sizeof *m + (size_t)m->cap_labels * (sizeof *m->label + sizeof *m->last) +
           (size_t)m->n_table * sizeof *m->table +
           (size_t)m->cap * (sizeof *m->before + sizeof *m->what);
}

/* The labels in the order of their numbers, then the number of every token; chains
 * follow from these. */
void labels_save(const struct label_map *m, int64_t len, struct writer *w)
{
    write_bytes(w, &m->n_labels, sizeof m->n_labels);
    write_bytes(w, m->label, (size_t)m->n_labels * sizeof *m->label);
    write_bytes(w, m->what, (size_t)len * sizeof *m->what);
}

foci_status labels_restore(const foci_pool *pool, struct label_map *m, int64_t len,
                           int64_t most, struct reader *r)
{
    int64_t n = 0;

    if (!read_bytes(r, &n, sizeof n) || n < 0 || n > min64(len, most))
        return state_damaged(pool);
    if (!len) return FOCI_OK;
    TRY(labels_reserve(pool->plan->ctx, m, len, n));
    if (!read_bytes(r, m->label, (size_t)n * sizeof *m->label) ||
        !read_bytes(r, m->what, (size_t)len * sizeof *m->what))
        return state_damaged(pool);
    for (int64_t j = 0; j < len; j++) {
        const int32_t number = m->what[j];
        m->before[j] = -1;
        if (number == -1) continue;
        if (number < 0 || number > m->n_labels || number >= n)
            return state_damaged(pool);
        if (number == m->n_labels) {
            if (*entry(m, m->label[number]) >= 0) return state_damaged(pool);
            *entry(m, m->label[number]) = number;
            m->last[number] = -1;
            m->n_labels++;
        }
        m->before[j] = m->last[number];
        m->last[number] = (int32_t)j;
    }
    return m->n_labels == n ? FOCI_OK : state_damaged(pool);
}

/*
 * Rows
 */

static const struct label_map *map_of(const struct stepping *x, const struct piece *p,
                                      int row, int64_t round)
{
    const struct exact_own *own = own_of(x, p->b);
    if (x->stage->order.label == FOCI_LABEL_PLACE) return &own->maps[round];
    return &own->maps[head_of(x, p, row) * x->rounds + round];
}

void step_label(const struct stepping *x, const struct piece *p, int row, struct room *r)
{
    int32_t      *number = x->labels + known_at(x, p, row) * x->rounds;
    const int64_t place = place_of(x, p->b, row);

    /* The labels of queries are those of keys. */
    if (x->stage->order.label == FOCI_LABEL_PLACE || x->stage->order.shared) {
        for (int64_t t = 0; t < x->rounds; t++)
            number[t] = map_of(x, p, row, t)->what[place];
        return;
    }
    step_hash(x, head_of(x, p, row),
              (const char *)x->step->io->q + row_of(x, p, row) * (size_t)x->dq * x->el,
              &r->hash);
    for (int64_t t = 0; t < x->rounds; t++)
        number[t] = find(map_of(x, p, row, t), r->hash.label[t]);
}

/* Go back to the last token of each chain that a row may see. */
static void start(const struct stepping *x, const struct piece *p, int row,
                  struct room *r)
{
    const int32_t *number = x->labels + known_at(x, p, row) * x->rounds;
    const int64_t  place = place_of(x, p->b, row);

    for (int64_t t = 0; t < x->rounds; t++) {
        const struct label_map *m = map_of(x, p, row, t);
        r->chain[t] = number[t] < 0 ? -1 : m->last[number[t]];
        while (r->chain[t] > place)
            r->chain[t] = m->before[r->chain[t]];
    }
}

/* The next token, from the last to the first, and how often it came up; -1: none. */
static int64_t next(const struct stepping *x, const struct piece *p, int row,
                    struct room *r, int *times)
{
    int32_t at = -1;

    *times = 0;
    for (int64_t t = 0; t < x->rounds; t++)
        if (r->chain[t] > at) at = r->chain[t];
    for (int64_t t = 0; at >= 0 && t < x->rounds; t++)
        if (r->chain[t] == at) {
            r->chain[t] = map_of(x, p, row, t)->before[at];
            ++*times;
        }
    return at;
}

int64_t step_label_count(const struct stepping *x, const struct piece *p, int row,
                         struct room *r)
{
    const int64_t place = place_of(x, p->b, row);
    int64_t       n = 0, at;
    bool          self = false;
    int           times;

    start(x, p, row, r);
    while ((at = next(x, p, row, r, &times)) >= 0) {
        if (at == place) self = true;
        n++;
    }
    return self && x->stage->order.shared && n > 1 ? n - 1 : n;
}

static void meet_list(const struct stepping *x, const struct piece *p, int row,
                      struct room *r, struct meeting *m)
{
    const foci_pool     *pool = x->step->pool;
    const struct stream *s = &p->b->seq->state->tokens;
    const size_t         k = (size_t)x->dq * x->el, v = (size_t)x->dv * x->el;
    const uint64_t       seen = foci_bits_in((foci_range){ 0, m->n }, 0);

    for (int i = 0; i < m->n; i++) {
        const int64_t page = stream_page(s, m->list[i] / PAGE);
        const size_t  at = (size_t)(m->list[i] % PAGE);
        memcpy(r->keys + (size_t)i * k,
               pool_keys(pool, x->g, page, p->kv, set_of(x, p, row)) + at * k, k);
        memcpy(r->values + (size_t)i * v, pool_values(pool, x->g, page, p->kv) + at * v,
               v);
    }
    step_meet(x, p, r, m, row, 1, &seen);
    m->n = 0;
}

/* Whether a row shares its labels with none but itself, or with none at all. */
static bool is_alone(const struct stepping *x, const struct piece *p, int row,
                     struct room *r)
{
    int times;

    start(x, p, row, r);
    int64_t at = next(x, p, row, r, &times);
    if (at == place_of(x, p->b, row)) at = next(x, p, row, r, &times);
    return at < 0;
}

void step_label_meet(const struct stepping *x, const struct piece *p, int row,
                     struct room *r)
{
    const foci_order *order = &x->stage->order;
    const int64_t     place = place_of(x, p->b, row);
    const bool        hide_self = order->shared && !is_alone(x, p, row, r);
    int64_t           list[PAGE], at;
    float             each[PAGE];
    int               times;
    struct meeting    m = {
           .k = r->keys, .v = r->values, .list = list, .each = order->again ? each : NULL
    };

    start(x, p, row, r);
    while ((at = next(x, p, row, r, &times)) >= 0) {
        if (hide_self && at == place) continue;
        list[m.n] = at;
        each[m.n++] = log2f((float)times);
        if (m.n == PAGE) meet_list(x, p, row, r, &m);
    }
    if (m.n) meet_list(x, p, row, r, &m);
}
