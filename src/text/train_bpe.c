/* train_bpe.c -- learn the merges of byte pair encoding.
 *
 * Words are sequences of tokens, bytes at first.  The most frequent adjacent pair becomes
 * a token, everywhere, until there are as many tokens as wanted (Sennrich, Haddow and
 * Birch, "Neural Machine Translation of Rare Words with Subword Units", 2016).  It is
 * fast because each distinct word is stored once, with its count; each pair has a list of
 * the words where it was formed; and a heap of pairs updates the count of a pair when it
 * comes to the top, since counts of present pairs only fall.
 *
 * So that the `tokenizers` library finds the same merges: of equal counts the pair with
 * the smaller ids is first; a pair of equal tokens counts at each place, overlapping or
 * not (three times in "aaaa"); and two pairs whose tokens spell the same make one token.
 * Of such a token pairs may be listed again, with the new places only.
 *
 * Time is that of the places that are changed, about the letters of all distinct words
 * times the depth of the merges, and a heap's log; memory 12 bytes for each place.
 */
#include <string.h>

#include "text/train.h"

/* A distinct word: its tokens stand at its place in trainer.ids. */
struct bpe_word {
    int64_t start, n, count;
};

/* A pair, and the words where it came to be by the merge at work. */
struct pair {
    uint64_t key;
    int64_t  count;
    int64_t  where; /* the last place in a list; -1: none */
};

/* One of a list of words. */
struct place {
    int64_t before; /* the next of the list; -1: none */
    int32_t word;
};

/* A pair that waits to be merged at some places. */
struct bpe_candidate {
    int64_t  count; /* as it was when it was put here */
    uint64_t key;
    int64_t  where;
};

struct trainer {
    foci_ctx             *ctx;
    struct bpe_word      *words; /* [n_words] */
    int64_t               n_words, cap_words;
    int32_t              *ids;
    int64_t               n_ids, cap_ids;
    struct pair_map       index; /* of pairs by their key */
    struct pair          *pairs;
    int64_t               n_pairs, cap_pairs;
    struct place         *places;
    int64_t               n_places, cap_places;
    struct bpe_candidate *heap;
    int64_t               n_heap, cap_heap;
    int64_t              *changed; /* pairs that got places by the merge at work */
    int64_t               n_changed, cap_changed;
    struct text_buffer    text;
};

/*
 * The heap: most frequent first, then by the ids
 */

static bool goes_before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static foci_status heap_push(struct trainer *t, struct bpe_candidate x)
{
    TRY(grow(t->ctx, &t->heap, &t->cap_heap, t->n_heap + 1, sizeof *t->heap));
    int64_t i = t->n_heap++;
    for (; i > 0 && goes_before(&x, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = x;
    return FOCI_OK;
}

/* Put x at the top in place of what is there. */
static void heap_replace(struct trainer *t, struct bpe_candidate x)
{
    int64_t i = 0;

    for (int64_t child; (child = 2 * i + 1) < t->n_heap; i = child) {
        if (child + 1 < t->n_heap && goes_before(&t->heap[child + 1], &t->heap[child]))
            child++;
        if (!goes_before(&t->heap[child], &x)) break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = x;
}

/* Take the pair that is most frequent now; false: none is frequent enough. */
static bool heap_take(struct trainer *t, int64_t min_count, struct bpe_candidate *top)
{
    while (t->n_heap) {
        *top = t->heap[0];
        const int64_t count = t->pairs[pair_find(&t->index, top->key)->value].count;
        if (count != top->count) {
            top->count = count;
            heap_replace(t, *top);
            continue;
        }
        const struct bpe_candidate last = t->heap[--t->n_heap];
        if (t->n_heap) heap_replace(t, last);
        return top->count >= max64(min_count, 1);
    }
    return false;
}

/*
 * Pairs and the places where they came to be
 */

static foci_status pair_of(struct trainer *t, uint64_t key, struct pair **pair)
{
    struct pair_slot *slot = pair_find(&t->index, key);

    if (!slot) {
        TRY(grow(t->ctx, &t->pairs, &t->cap_pairs, t->n_pairs + 1, sizeof *t->pairs));
        slot = pair_add(&t->index, key);
        if (!slot) return FOCI_ERR_MEMORY;
        slot->value = t->n_pairs;
        t->pairs[t->n_pairs++] = (struct pair){ .key = key, .where = -1 };
    }
    *pair = &t->pairs[slot->value];
    return FOCI_OK;
}

/* A pair came to be in a word that occurs so often. */
static foci_status pair_gained(struct trainer *t, int32_t left, int32_t right,
                               int32_t word, int64_t count)
{
    struct pair *p;

    TRY(pair_of(t, pair_key(left, right), &p));
    p->count += count;
    if (p->where >= 0 && t->places[p->where].word == word) return FOCI_OK;
    TRY(grow(t->ctx, &t->places, &t->cap_places, t->n_places + 1, sizeof *t->places));
    if (p->where < 0) {
        TRY(grow(t->ctx, &t->changed, &t->cap_changed, t->n_changed + 1,
                 sizeof *t->changed));
        t->changed[t->n_changed++] = p - t->pairs;
    }
    t->places[t->n_places] = (struct place){ p->where, word };
    p->where = t->n_places++;
    return FOCI_OK;
}

static void pair_lost(struct trainer *t, int32_t left, int32_t right, int64_t count)
{
    t->pairs[pair_find(&t->index, pair_key(left, right))->value].count -= count;
}

/* What got places waits to be merged. */
static foci_status queue_changed(struct trainer *t)
{
    for (int64_t i = 0; i < t->n_changed; i++) {
        struct pair *p = &t->pairs[t->changed[i]];
        if (p->count > 0)
            TRY(heap_push(t, (struct bpe_candidate){ p->count, p->key, p->where }));
        p->where = -1;
    }
    t->n_changed = 0;
    return FOCI_OK;
}

/*
 * Words
 */

/* Words of one byte have no pairs. */
static foci_status take_words(struct trainer *t, const struct dict *counts,
                              const int32_t id_of_byte[256])
{
    for (int64_t i = 0; i < counts->n; i++) {
        const struct dict_entry *e = &counts->entries[i];
        if (e->bytes < 2) continue;
        TRY(grow(t->ctx, &t->words, &t->cap_words, t->n_words + 1, sizeof *t->words));
        TRY(grow(t->ctx, &t->ids, &t->cap_ids, t->n_ids + e->bytes, sizeof *t->ids));
        t->words[t->n_words++] = (struct bpe_word){ t->n_ids, e->bytes, e->value };
        for (int64_t b = 0; b < e->bytes; b++)
            t->ids[t->n_ids++] = id_of_byte[(unsigned char)e->text[b]];
    }
    return FOCI_OK;
}

static foci_status count_pairs(struct trainer *t)
{
    for (int64_t w = 0; w < t->n_words; w++) {
        const int32_t *ids = t->ids + t->words[w].start;
        for (int64_t i = 0; i + 1 < t->words[w].n; i++)
            TRY(pair_gained(t, ids[i], ids[i + 1], (int32_t)w, t->words[w].count));
    }
    return queue_changed(t);
}

/* Make a pair one token in a word, from left to right. */
static foci_status merge_in(struct trainer *t, int32_t w, int32_t left, int32_t right,
                            int32_t made)
{
    struct bpe_word *word = &t->words[w];
    int32_t         *ids = t->ids + word->start;
    int64_t          kept = 0;
    const int64_t    n = word->n, count = word->count;

    for (int64_t i = 0; i < n; i++) {
        if (ids[i] != left || i + 1 == n || ids[i + 1] != right) {
            ids[kept++] = ids[i];
            continue;
        }
        if (kept > 0) {
            pair_lost(t, ids[kept - 1], left, count);
            TRY(pair_gained(t, ids[kept - 1], made, w, count));
        }
        i++;
        if (i + 1 < n) {
            pair_lost(t, right, ids[i + 1], count);
            TRY(pair_gained(t, made, ids[i + 1], w, count));
        }
        ids[kept++] = made;
    }
    word->n = kept;
    return FOCI_OK;
}

/* The token that a pair makes: a new one, or one that spells the same. */
static foci_status make_token(struct trainer *t, struct dict *tokens, int32_t left,
                              int32_t right, int32_t *made)
{
    struct text_buffer *b = &t->text;

    b->used = 0;
    TRY(buffer_add(b, tokens->entries[left].text, tokens->entries[left].bytes));
    TRY(buffer_add(b, tokens->entries[right].text, tokens->entries[right].bytes));
    struct dict_entry *e = dict_add(tokens, b->at, b->used, text_hash(b->at, b->used));
    if (!e) return FOCI_ERR_MEMORY;
    *made = (int32_t)(e - tokens->entries);
    return FOCI_OK;
}

static foci_status merge(struct trainer *t, const struct bpe_candidate *c,
                         struct dict *tokens, struct merge_list *merges)
{
    const int32_t left = (int32_t)((c->key - 1) >> 32);
    const int32_t right = (int32_t)((c->key - 1) & UINT32_MAX);
    int32_t       made;

    TRY(make_token(t, tokens, left, right, &made));
    TRY(grow(t->ctx, &merges->pairs, &merges->cap, merges->n + 1,
             sizeof *merges->pairs));
    merges->pairs[merges->n++] = c->key;
    for (int64_t p = c->where; p >= 0; p = t->places[p].before)
        TRY(merge_in(t, t->places[p].word, left, right, made));
    return queue_changed(t);
}

static foci_status learn(struct trainer *t, const struct dict *counts, int64_t size,
                         int64_t min_count, struct dict *tokens,
                         struct merge_list *merges)
{
    int32_t              id_of_byte[256];
    struct bpe_candidate top;

    for (int b = 0; b < 256; b++) {
        const char byte = (char)b;
        id_of_byte[b] = (int32_t)(dict_find(tokens, &byte, 1, text_hash(&byte, 1)) -
                                  tokens->entries);
    }
    TRY(take_words(t, counts, id_of_byte));
    TRY(count_pairs(t));
    while (tokens->n < size && heap_take(t, min_count, &top))
        TRY(merge(t, &top, tokens, merges));
    return FOCI_OK;
}

foci_status train_merges(foci_ctx *ctx, const struct dict *counts, int64_t size,
                         int64_t min_count, struct dict *tokens,
                         struct merge_list *merges)
{
    struct trainer t = { .ctx = ctx, .index = { .ctx = ctx }, .text = { .ctx = ctx } };

    const foci_status status = learn(&t, counts, size, min_count, tokens, merges);
    if (t.words) ctx_free(ctx, t.words, (size_t)t.cap_words, sizeof *t.words);
    if (t.ids) ctx_free(ctx, t.ids, (size_t)t.cap_ids, sizeof *t.ids);
    if (t.pairs) ctx_free(ctx, t.pairs, (size_t)t.cap_pairs, sizeof *t.pairs);
    if (t.places) ctx_free(ctx, t.places, (size_t)t.cap_places, sizeof *t.places);
    if (t.heap) ctx_free(ctx, t.heap, (size_t)t.cap_heap, sizeof *t.heap);
    if (t.changed) ctx_free(ctx, t.changed, (size_t)t.cap_changed, sizeof *t.changed);
    pair_free(&t.index);
    buffer_free(&t.text);
    return status;
}
