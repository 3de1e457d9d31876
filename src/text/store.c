/* store.c -- memory of tokenizers: growing blocks, dictionaries, numbers by pairs.
 *
 * Dictionaries are looked up for each word of a text and grow with its distinct words
 * only, so texts are copied to chunks that never move and slots carry half of the hash:
 * most of what differs is told apart without a look at the entry.
 */
#include <pthread.h>
#include <string.h>

#include "text/text.h"

static foci_status grow_alone(foci_ctx *ctx, void *block, int64_t *cap, int64_t need,
                              size_t size)
{
    const int64_t most = INT64_MAX / (int64_t)size;
    int64_t       room = *cap > most / 2 ? most : max64(2 * *cap, 16);
    void         *old, *new = NULL;

    if (need > most)
        return ctx_fail(ctx, FOCI_ERR_MEMORY,
                        "no memory: %lld times %zu bytes overflows", (long long)need,
                        size);
    room = max64(room, need);
    memcpy(&old, block, sizeof old);
    new = ctx->alloc(ctx->user, old, (size_t)*cap * size, (size_t)room * size);
    if (!new)
        return ctx_fail(ctx, FOCI_ERR_MEMORY, "no memory: %zu bytes were refused",
                        (size_t)room * size);
    memcpy(block, &new, sizeof new);
    *cap = room;
    return FOCI_OK;
}

/* Threads ask for memory seldom, once for each doubling. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

foci_status grow(foci_ctx *ctx, void *block, int64_t *cap, int64_t need, size_t size)
{
    if (need <= *cap) return FOCI_OK;
    pthread_mutex_lock(&lock);
    const foci_status status = grow_alone(ctx, block, cap, need, size);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ctx_alloc() and ctx_free() that threads of a parallel region may call. */
static void *alloc_alone(foci_ctx *ctx, int64_t n, size_t size)
{
    pthread_mutex_lock(&lock);
    void *p = ctx_alloc(ctx, (size_t)n, size);
    pthread_mutex_unlock(&lock);
    return p;
}

static void free_alone(foci_ctx *ctx, void *p, int64_t n, size_t size)
{
    pthread_mutex_lock(&lock);
    ctx_free(ctx, p, (size_t)n, size);
    pthread_mutex_unlock(&lock);
}

foci_status buffer_add(struct text_buffer *b, const char *text, int64_t bytes)
{
    TRY(grow(b->ctx, &b->at, &b->cap, b->used + bytes + 1, 1)); /* never NULL then */
    memcpy(b->at + b->used, text, (size_t)bytes);
    b->used += bytes;
    return FOCI_OK;
}

foci_status buffer_text(struct text_buffer *b, const char *text)
{
    return buffer_add(b, text, (int64_t)strlen(text));
}

void buffer_free(struct text_buffer *b)
{
    if (b->at) ctx_free(b->ctx, b->at, (size_t)b->cap, 1);
    *b = (struct text_buffer){ .ctx = b->ctx };
}

/*
 * Dictionaries
 */

uint64_t text_hash(const char *text, int64_t bytes)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t       h = (uint64_t)bytes * odd, word;

    for (; bytes >= 8; text += 8, bytes -= 8) {
        memcpy(&word, text, 8);
        h = (h ^ word) * odd;
        h ^= h >> 32;
    }
    if (bytes > 0) {
        word = 0;
        memcpy(&word, text, (size_t)bytes);
        h = (h ^ word) * odd;
        h ^= h >> 32;
    }
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

static bool entry_is(const struct dict_entry *e, const char *text, int64_t bytes,
                     uint64_t hash)
{
    return e->hash == hash && e->bytes == bytes &&
           memcmp(e->text, text, (size_t)bytes) == 0;
}

/* The slot of a text, or the free one where it would be; there is one. */
static struct dict_slot *find_slot(const struct dict *d, const char *text,
                                   int64_t bytes, uint64_t hash)
{
    const uint64_t mask = (uint64_t)d->n_slots - 1;
    const uint32_t tag = (uint32_t)(hash >> 32);

    for (uint64_t i = hash & mask;; i = (i + 1) & mask) {
        struct dict_slot *slot = &d->slots[i];
        if (!slot->entry) return slot;
        if (slot->tag == tag &&
            entry_is(&d->entries[slot->entry - 1], text, bytes, hash))
            return slot;
    }
}

struct dict_entry *dict_find(const struct dict *d, const char *text, int64_t bytes,
                             uint64_t hash)
{
    if (!d->n_slots) return NULL;
    const struct dict_slot *slot = find_slot(d, text, bytes, hash);
    return slot->entry ? &d->entries[slot->entry - 1] : NULL;
}

/* Twice the slots, so that at most half of them are taken. */
static foci_status more_slots(struct dict *d)
{
    const int64_t     n_slots = max64(64, 2 * d->n_slots);
    struct dict_slot *slots = alloc_alone(d->ctx, n_slots, sizeof *slots);

    if (!slots) return FOCI_ERR_MEMORY;
    for (int64_t e = 0; e < d->n; e++) {
        const uint64_t mask = (uint64_t)n_slots - 1;
        uint64_t       i = d->entries[e].hash & mask;
        while (slots[i].entry)
            i = (i + 1) & mask;
        slots[i] = (struct dict_slot){ (uint32_t)(d->entries[e].hash >> 32),
                                       (int32_t)(e + 1) };
    }
    if (d->slots) free_alone(d->ctx, d->slots, d->n_slots, sizeof *d->slots);
    d->slots = slots;
    d->n_slots = n_slots;
    return FOCI_OK;
}

/* Copied texts, one after the other. */
struct dict_chunk {
    struct dict_chunk *before;
    int64_t            used, cap; /* bytes of text, which follow */
};

const char *dict_copy(struct dict *d, const char *text, int64_t bytes)
{
    enum { USUAL = (1 << 16) - (int)sizeof(struct dict_chunk) };
    struct dict_chunk *c = d->chunk;

    if (!c || c->cap - c->used < bytes) {
        const int64_t cap = max64(USUAL, bytes);
        c = alloc_alone(d->ctx, (int64_t)sizeof *c + cap, 1);
        if (!c) return NULL;
        *c = (struct dict_chunk){ .before = d->chunk, .cap = cap };
        d->chunk = c;
    }
    char *copy = (char *)(c + 1) + c->used;
    memcpy(copy, text, (size_t)bytes);
    c->used += bytes;
    return copy;
}

struct dict_entry *dict_add(struct dict *d, const char *text, int64_t bytes,
                            uint64_t hash)
{
    if (2 * (d->n + 1) > d->n_slots && more_slots(d)) return NULL;

    struct dict_slot *slot = find_slot(d, text, bytes, hash);
    if (slot->entry) return &d->entries[slot->entry - 1];
    if (d->n == INT32_MAX - 1) {
        ctx_fail(d->ctx, FOCI_ERR_MEMORY, "more than %d different words", INT32_MAX - 1);
        return NULL;
    }
    if (grow(d->ctx, &d->entries, &d->cap, d->n + 1, sizeof *d->entries)) return NULL;
    const char *copy = dict_copy(d, text, bytes);
    if (!copy) return NULL;

    struct dict_entry *e = &d->entries[d->n++];
    *e = (struct dict_entry){ .text = copy, .bytes = bytes, .hash = hash };
    *slot = (struct dict_slot){ (uint32_t)(hash >> 32), (int32_t)d->n };
    return e;
}

void dict_free(struct dict *d)
{
    for (struct dict_chunk *c = d->chunk, *before; c; c = before) {
        before = c->before;
        free_alone(d->ctx, c, (int64_t)sizeof *c + c->cap, 1);
    }
    if (d->entries) free_alone(d->ctx, d->entries, d->cap, sizeof *d->entries);
    if (d->slots) free_alone(d->ctx, d->slots, d->n_slots, sizeof *d->slots);
    *d = (struct dict){ .ctx = d->ctx };
}

/*
 * Numbers by pairs
 */

static struct pair_slot *free_slot(struct pair_slot *slots, int64_t n_slots,
                                   uint64_t key)
{
    const uint64_t mask = (uint64_t)n_slots - 1;
    uint64_t       i = pair_hash(key) & mask;
    while (slots[i].key)
        i = (i + 1) & mask;
    return &slots[i];
}

static foci_status more_pairs(struct pair_map *m)
{
    const int64_t     n_slots = max64(64, 2 * m->n_slots);
    struct pair_slot *slots = alloc_alone(m->ctx, n_slots, sizeof *slots);

    if (!slots) return FOCI_ERR_MEMORY;
    for (int64_t i = 0; i < m->n_slots; i++)
        if (m->slots[i].key) *free_slot(slots, n_slots, m->slots[i].key) = m->slots[i];
    if (m->slots) free_alone(m->ctx, m->slots, m->n_slots, sizeof *m->slots);
    m->slots = slots;
    m->n_slots = n_slots;
    return FOCI_OK;
}

struct pair_slot *pair_add(struct pair_map *m, uint64_t key)
{
    struct pair_slot *slot = pair_find(m, key);

    if (slot) return slot;
    if (2 * (m->n + 1) > m->n_slots && more_pairs(m)) return NULL;
    slot = free_slot(m->slots, m->n_slots, key);
    *slot = (struct pair_slot){ .key = key };
    m->n++;
    return slot;
}

void pair_free(struct pair_map *m)
{
    if (m->slots) free_alone(m->ctx, m->slots, m->n_slots, sizeof *m->slots);
    *m = (struct pair_map){ .ctx = m->ctx };
}
