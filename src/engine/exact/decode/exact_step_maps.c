/* exact_step_maps.c -- maps from labels to chains of tokens: hash tables that grow with
 * the sequence. */
#include <string.h>

#include "engine/exact/decode/exact_step.h"

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
    int32_t      *number = ctx_alloc(ctx, (size_t)cap, sizeof *number);

    if (!before || !number) {
        ctx_free(ctx, before, (size_t)cap, sizeof *before);
        ctx_free(ctx, number, (size_t)cap, sizeof *number);
        return FOCI_ERR_MEMORY;
    }
    if (m->cap) {
        memcpy(before, m->before, (size_t)m->cap * sizeof *before);
        memcpy(number, m->number, (size_t)m->cap * sizeof *number);
    }
    ctx_free(ctx, m->before, (size_t)m->cap, sizeof *before);
    ctx_free(ctx, m->number, (size_t)m->cap, sizeof *number);
    m->before = before;
    m->number = number;
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
    m->number[at] = m->before[at] = -1;
    if (label == NO_LABEL) return;
    int32_t *number = entry(m, label);
    if (*number < 0) {
        *number = (int32_t)m->n_labels++;
        m->label[*number] = label;
        m->last[*number] = -1;
    }
    m->number[at] = *number;
    m->before[at] = m->last[*number];
    m->last[*number] = (int32_t)at;
}

int32_t labels_find(const struct label_map *m, int64_t label)
{
    return label == NO_LABEL || !m->n_labels ? -1 : *entry(m, label);
}

/* Labels are numbered as they appear, so tokens that are cut off have the last numbers. */
void labels_cut(struct label_map *m, int64_t len, int64_t new_len)
{
    for (int64_t j = len - 1; j >= new_len; j--)
        if (m->number[j] >= 0) m->last[m->number[j]] = m->before[j];
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
    memcpy(to->number, from->number, (size_t)len * sizeof *to->number);
    if (!from->n_labels) return FOCI_OK; /* no token has a label */
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
    ctx_free(ctx, m->number, (size_t)m->cap, sizeof *m->number);
    *m = (struct label_map){ 0 };
}

size_t labels_bytes(const struct label_map *m)
{
    return sizeof *m + (size_t)m->cap_labels * (sizeof *m->label + sizeof *m->last) +
           (size_t)m->n_table * sizeof *m->table +
           (size_t)m->cap * (sizeof *m->before + sizeof *m->number);
}

/* Labels in the order of their numbers, then the number of every token: chains follow
 * from these. */
void labels_save(const struct label_map *m, int64_t len, struct state_writer *w)
{
    write_bytes(w, &m->n_labels, sizeof m->n_labels);
    write_bytes(w, m->label, (size_t)m->n_labels * sizeof *m->label);
    write_bytes(w, m->number, (size_t)len * sizeof *m->number);
}

foci_status labels_restore(const foci_pool *pool, struct label_map *m, int64_t len,
                           int64_t most, struct state_reader *r)
{
    int64_t n = 0;

    if (!read_bytes(r, &n, sizeof n) || n < 0 || n > min64(len, most))
        return state_damaged(pool);
    if (!len) return FOCI_OK;
    TRY(labels_reserve(pool->plan->ctx, m, len, n));
    if (!read_bytes(r, m->label, (size_t)n * sizeof *m->label) ||
        !read_bytes(r, m->number, (size_t)len * sizeof *m->number))
        return state_damaged(pool);
    for (int64_t j = 0; j < len; j++) {
        const int32_t number = m->number[j];
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
