/* merge.c -- byte pair encoding of a word, given as the ids of its bytes.
 *
 * Of all adjacent pairs the one whose merge was learned first is joined, and so on until
 * no pair has a merge (Sennrich, Haddow and Birch, "Neural Machine Translation of Rare
 * Words with Subword Units", 2016).  A short word keeps the ranks of its pairs in a row
 * and looks for the least, O(n^2) for n of a few dozen; a long one keeps them in a heap,
 * O(n log n), so that a line without blanks takes no longer for its bytes than others.
 */
#include <assert.h>
#include <string.h>

#include "text/text.h"

enum { SHORT = 40 };

/* rank << 32 | id of the merge of a pair; INT64_MAX: none. */
static int64_t merge_of(const struct foci_tokenizer *t, int32_t left, int32_t right)
{
    const struct pair_slot *slot = pair_find(&t->merges, pair_key(left, right));
    return slot ? slot->value : INT64_MAX;
}

static int64_t merge_short(const struct foci_tokenizer *t, int32_t *ids, int64_t n)
{
    int64_t value[SHORT];

    for (int64_t i = 0; i + 1 < n; i++)
        value[i] = merge_of(t, ids[i], ids[i + 1]);
    for (;;) {
        int64_t best = INT64_MAX, at = 0;
        for (int64_t i = 0; i + 1 < n; i++)
            if (value[i] < best) {
                best = value[i];
                at = i;
            }
        if (best == INT64_MAX) return n;

        ids[at] = (int32_t)best;
        n--;
        for (int64_t i = at + 1; i < n; i++)
            ids[i] = ids[i + 1];
        for (int64_t i = at + 1; i + 1 < n; i++)
            value[i] = value[i + 1];
        if (at > 0) value[at - 1] = merge_of(t, ids[at - 1], ids[at]);
        if (at + 1 < n) value[at] = merge_of(t, ids[at], ids[at + 1]);
    }
}

/*
 * Long words: a list of tokens, and a heap of rank << 32 | position.  What is in the heap
 * of pairs that are gone is seen by its rank, which no other pair has.
 */

static foci_status heap_push(const struct foci_tokenizer *t, struct merge_scratch *s,
                             int64_t *n, uint64_t x)
{
    TRY(grow(t->ctx, &s->heap, &s->cap_heap, *n + 1, sizeof *s->heap));
    int64_t i = (*n)++;
    for (; i > 0 && s->heap[(i - 1) / 2] > x; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = x;
    return FOCI_OK;
}

static uint64_t heap_pop(struct merge_scratch *s, int64_t *n)
{
    const uint64_t top = s->heap[0], x = s->heap[--*n];
    int64_t        i = 0;

    for (int64_t child; (child = 2 * i + 1) < *n; i = child) {
        if (child + 1 < *n && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= x) break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = x;
    return top;
}

/* Push the pair of a token and the one behind it, if it has a merge. */
static foci_status push_pair(const struct foci_tokenizer *t, struct merge_scratch *s,
                             int64_t *n_heap, const int32_t *ids, int32_t at)
{
    if (at < 0 || s->next[at] < 0) return FOCI_OK;
    const int64_t value = merge_of(t, ids[at], ids[s->next[at]]);
    if (value == INT64_MAX) return FOCI_OK;
    return heap_push(t, s, n_heap,
                     ((uint64_t)value & ~(uint64_t)UINT32_MAX) | (uint32_t)at);
}

/* Join the token at `at` with the one behind it. */
static void join(struct merge_scratch *s, int32_t *ids, int32_t at, int32_t id)
{
    const int32_t gone = s->next[at], after = s->next[gone];

    ids[at] = id;
    ids[gone] = -1;
    s->next[at] = after;
    if (after >= 0) s->before[after] = at;
}

static foci_status merge_long(const struct foci_tokenizer *t, struct merge_scratch *s,
                              int32_t *ids, int64_t n)
{
    int64_t n_heap = 0;

    TRY(grow(t->ctx, &s->next, &s->cap_next, n, sizeof *s->next));
    TRY(grow(t->ctx, &s->before, &s->cap_before, n, sizeof *s->before));
    for (int32_t i = 0; i < n; i++) {
        s->next[i] = i + 1 < n ? i + 1 : -1;
        s->before[i] = i - 1;
    }
    for (int32_t i = 0; i + 1 < n; i++)
        TRY(push_pair(t, s, &n_heap, ids, i));

    while (n_heap) {
        const uint64_t top = heap_pop(s, &n_heap);
        const int32_t  at = (int32_t)(top & UINT32_MAX);
        if (ids[at] < 0 || s->next[at] < 0) continue;
        const int64_t value = merge_of(t, ids[at], ids[s->next[at]]);
        if (value == INT64_MAX || (uint64_t)value >> 32 != top >> 32) continue;
        join(s, ids, at, (int32_t)value);
        TRY(push_pair(t, s, &n_heap, ids, s->before[at]));
        TRY(push_pair(t, s, &n_heap, ids, at));
    }
    return FOCI_OK;
}

foci_status merge_ids(const struct foci_tokenizer *t, struct merge_scratch *s,
                      int32_t *ids, int64_t *n)
{
    assert(*n <= INT32_MAX);
    if (*n <= SHORT) {
        *n = merge_short(t, ids, *n);
        return FOCI_OK;
    }
    TRY(merge_long(t, s, ids, *n));
    int64_t kept = 0;
    for (int64_t i = 0; i < *n; i++)
        if (ids[i] >= 0) ids[kept++] = ids[i];
    *n = kept;
    return FOCI_OK;
}

void merge_free(foci_ctx *ctx, struct merge_scratch *s)
{
    if (s->next) ctx_free(ctx, s->next, (size_t)s->cap_next, sizeof *s->next);
    if (s->before) ctx_free(ctx, s->before, (size_t)s->cap_before, sizeof *s->before);
    if (s->heap) ctx_free(ctx, s->heap, (size_t)s->cap_heap, sizeof *s->heap);
    *s = (struct merge_scratch){ 0 };
}
