/* encode.c -- text to ids.
 *
 * A text is cut at the tokens that are looked for in raw text, first those that come
 * before normalisation, then the others; what is between them goes to the model.  Words
 * of a text repeat (Zipf), so each thread caches the ids of recent words: a
 * table with one entry for each hash, where the last word wins.
 */
#include <string.h>

#include "text/text.h"
#include "text/utf8.h"

enum { N_SLOTS = 1 << 14, SLOT_BYTES = 22, SLOT_IDS = 8 };

/* One cache line. */
struct cache_slot {
    uint64_t      hash;
    unsigned char bytes, n; /* bytes 0: free */
    char          text[SLOT_BYTES];
    int32_t       ids[SLOT_IDS];
};

struct encode_worker {
    const struct foci_tokenizer *t;
    struct cache_slot           *cache; /* [N_SLOTS] */
    struct merge_scratch         merge;
    struct text_buffer           repaired, prefixed;
    int32_t                     *out; /* where the next id goes */
    foci_status                  status;
};

/* Texts that one job encodes, and the place of their ids. */
struct encode_group {
    int64_t first, last; /* texts, half open */
    int64_t start, n;    /* of the ids, as written */
};

enum { GROUPS_A_THREAD = 8, GROUP_BYTES = 1 << 14 };

struct foci_encoder {
    const struct foci_tokenizer *t;
    int                          threads;
    struct encode_worker        *workers;    /* [threads] */
    struct encode_group         *groups;     /* [threads * GROUPS_A_THREAD] */
    int32_t                      ascii[128]; /* of chars: ids of ASCII */

    /* The call at work. */
    const foci_string *texts;
    unsigned           flags;
    int32_t           *ids;
    int64_t           *offsets;
};

/*
 * Models
 */

static void put(struct encode_worker *w, int32_t id)
{
    if (id >= 0) *w->out++ = id;
}

/* The ids of its bytes, and then its merges. */
static foci_status merge_word(struct encode_worker *w, const char *p, int64_t bytes)
{
    const struct foci_tokenizer *t = w->t;
    int32_t                     *ids = w->out;
    bool                         unknown = false;

    for (int64_t i = 0; i < bytes; i++) {
        const int32_t id = t->byte_id[(unsigned char)p[i]];
        if (id >= 0)
            put(w, id);
        else if (!unknown || !t->fuse)
            put(w, t->unknown);
        unknown = id < 0;
    }
    int64_t n = w->out - ids;
    TRY(merge_ids(t, &w->merge, ids, &n));
    w->out = ids + n;
    return FOCI_OK;
}

static foci_status new_word(struct encode_worker *w, const char *p, int64_t bytes,
                            uint64_t hash)
{
    if (w->t->whole) {
        const struct dict_entry *e = dict_find(&w->t->vocab, p, bytes, hash);
        if (e) {
            put(w, (int32_t)(e->value - 1));
            return FOCI_OK;
        }
    }
    return merge_word(w, p, bytes);
}

static foci_status encode_word(struct encode_worker *w, const char *p, int64_t bytes)
{
    const uint64_t     hash = text_hash(p, bytes);
    struct cache_slot *slot = &w->cache[hash & (N_SLOTS - 1)];

    if (slot->hash == hash && slot->bytes == bytes &&
        memcmp(slot->text, p, (size_t)bytes) == 0) {
        for (int i = 0; i < slot->n; i++)
            *w->out++ = slot->ids[i];
        return FOCI_OK;
    }
    const int32_t *ids = w->out;
    TRY(new_word(w, p, bytes, hash));
    const int64_t n = w->out - ids;
    if (bytes > SLOT_BYTES || n > SLOT_IDS) return FOCI_OK;
    *slot = (struct cache_slot){ .hash = hash,
                                 .bytes = (unsigned char)bytes,
                                 .n = (unsigned char)n };
    memcpy(slot->text, p, (size_t)bytes);
    memcpy(slot->ids, ids, (size_t)n * sizeof *ids);
    return FOCI_OK;
}

/* A blank before what begins without one makes its first word look like the others. */
static foci_status add_blank(struct encode_worker *w, const char **p, int64_t *bytes)
{
    struct text_buffer *b = &w->prefixed;

    if (!w->t->prefix || **p == ' ') return FOCI_OK;
    b->used = 0;
    TRY(buffer_add(b, " ", 1));
    TRY(buffer_add(b, *p, *bytes));
    *p = b->at;
    *bytes = b->used;
    return FOCI_OK;
}

static foci_status encode_bpe(struct encode_worker *w, const char *p, int64_t bytes)
{
    TRY(add_blank(w, &p, &bytes));
    if (!w->t->split) return encode_word(w, p, bytes);
    for (const char *end = p + bytes; p < end;) {
        const int64_t n = word_next(p, end);
        TRY(encode_word(w, p, n));
        p += n;
    }
    return FOCI_OK;
}

static void encode_bytes(struct encode_worker *w, const char *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        *w->out++ = w->t->byte_id[(unsigned char)p[i]];
}

static int32_t id_of(const struct encode_worker *w, const char *p, int64_t bytes)
{
    const struct dict_entry *e = dict_find(&w->t->vocab, p, bytes, text_hash(p, bytes));
    return e ? (int32_t)(e->value - 1) : w->t->unknown;
}

static void encode_chars(struct encode_worker *w, const int32_t *ascii, const char *p,
                         int64_t bytes)
{
    const char *end = p + bytes;
    uint32_t    c;

    for (int n; p < end; p += n) {
        n = utf8_next(p, end, &c);
        put(w, c < 128 ? ascii[c] : id_of(w, p, n));
    }
}

static void encode_words(struct encode_worker *w, const char *p, int64_t bytes)
{
    const char *end = p + bytes, *word = p;
    uint32_t    c;

    for (int n; p < end; p += n) {
        n = utf8_next(p, end, &c);
        if (char_class(c) != CHAR_SPACE) continue;
        if (p > word) put(w, id_of(w, word, p - word));
        word = p + n;
    }
    if (p > word) put(w, id_of(w, word, p - word));
}

static foci_status encode_piece(const struct foci_encoder *e, struct encode_worker *w,
                                const char *p, int64_t bytes)
{
    switch (w->t->kind) {
    case TEXT_BYTES: encode_bytes(w, p, bytes); break;
    case TEXT_CHARS: encode_chars(w, e->ascii, p, bytes); break;
    case TEXT_WORDS: encode_words(w, p, bytes); break;
    case TEXT_BPE: return encode_bpe(w, p, bytes);
    }
    return FOCI_OK;
}

/*
 * Added tokens
 */

/* Where the white space that ends at `end` begins, not before `start`. */
static int64_t space_before(const char *text, int64_t start, int64_t end)
{
    uint32_t c;

    for (int64_t at = end - 1; at >= start && end - at <= UTF8_MOST; at--)
        if (utf8_next(text + at, text + end, &c) == end - at &&
            char_class(c) == CHAR_SPACE)
            end = at;
    return end;
}

static int64_t space_after(const char *text, int64_t at, int64_t end)
{
    uint32_t c;

    while (at < end) {
        const int n = utf8_next(text + at, text + end, &c);
        if (char_class(c) != CHAR_SPACE) break;
        at += n;
    }
    return at;
}

/* Cut a text at the tokens of a tree; the rest goes on to the second tree, and then to
 * the model.  As in `tokenizers`, a token may begin with white space that the one before
 * it has taken. */
static foci_status encode_cut(const struct foci_encoder *e, struct encode_worker *w,
                              const struct added_tree *tree, const char *text,
                              int64_t bytes)
{
    const struct foci_tokenizer *t = w->t;
    int64_t                      at = 0, scan = 0, start = 0, found;

    if (!bytes) return FOCI_OK;
    if (!tree) return encode_piece(e, w, text, bytes);

    const struct added_tree *then = tree == &t->early ? &t->late : NULL;
    while (tree->n && (found = added_find(tree, text, bytes, scan, &start)) >= 0) {
        const struct added *a = &t->added[found];
        int64_t             stop = scan = start + a->bytes;
        if (a->special && e->flags & FOCI_ENCODE_PLAIN) continue;
        if (a->lstrip) start = space_before(text, at, start);
        if (a->rstrip) stop = space_after(text, stop, bytes);
        if (start > at) TRY(encode_cut(e, w, then, text + at, start - at));
        put(w, a->id);
        at = stop;
    }
    return encode_cut(e, w, then, text + at, bytes - at);
}

static foci_status encode_text(const struct foci_encoder *e, struct encode_worker *w,
                               const foci_string *s)
{
    const struct foci_tokenizer *t = w->t;
    const char                  *text = s->text;
    int64_t                      bytes = s->bytes;

    if ((t->kind == TEXT_CHARS || t->kind == TEXT_WORDS) && !utf8_valid(text, bytes)) {
        const int64_t n = utf8_repair(text, bytes, NULL);
        TRY(grow(t->ctx, &w->repaired.at, &w->repaired.cap, n, 1));
        utf8_repair(text, bytes, w->repaired.at);
        text = w->repaired.at;
        bytes = n;
    }
    return encode_cut(e, w, &t->early, text, bytes);
}

/*
 * Many texts
 */

static void run_group(void *arg, int64_t i, int thread)
{
    const struct foci_encoder *e = arg;
    struct encode_group       *g = &e->groups[i];
    struct encode_worker      *w = &e->workers[thread];

    w->out = e->ids + g->start;
    for (int64_t s = g->first; s < g->last && !w->status; s++) {
        w->status = encode_text(e, w, &e->texts[s]);
        e->offsets[s + 1] = w->out - (e->ids + g->start);
    }
    g->n = w->out - (e->ids + g->start);
}

/* A blank before each piece can double a text of which every other byte is a token. */
static int64_t most_ids(const struct foci_tokenizer *t, int64_t bytes)
{
    return t->prefix ? 2 * bytes + 1 : bytes;
}

int64_t foci_encoder_most(const foci_encoder *e, const foci_string *texts, int64_t n)
{
    int64_t most = 0;

    for (int64_t i = 0; i < n; i++)
        most += most_ids(e->t, texts[i].bytes);
    return most;
}

/* The result is how many groups there are. */
static int64_t make_groups(struct foci_encoder *e, int64_t n, int64_t most)
{
    const int64_t n_groups = (int64_t)e->threads * GROUPS_A_THREAD;
    const int64_t size = max64(GROUP_BYTES, div_up(most, n_groups));
    int64_t       g = 0, start = 0, next = 0;

    for (int64_t first = 0, i = 0; i < n; i++) {
        next += most_ids(e->t, e->texts[i].bytes);
        if (i + 1 < n && (next - start < size || g == n_groups - 1)) continue;
        e->groups[g++] =
            (struct encode_group){ .first = first, .last = i + 1, .start = start };
        first = i + 1;
        start = next;
    }
    return g;
}

/* Move the ids of all groups together. */
static void close_gaps(struct foci_encoder *e, int64_t n_groups)
{
    int64_t end = 0;

    for (int64_t i = 0; i < n_groups; i++) {
        const struct encode_group *g = &e->groups[i];
        memmove(e->ids + end, e->ids + g->start, (size_t)g->n * sizeof *e->ids);
        for (int64_t s = g->first; s < g->last; s++)
            e->offsets[s + 1] += end;
        end += g->n;
    }
}

static foci_status check_call(const struct foci_encoder *e, const foci_string *texts,
                              int64_t n, unsigned flags, const int32_t *ids,
                              int64_t cap, const int64_t *offsets)
{
    foci_ctx *ctx = e->t->ctx;

    if (n < 0 || (n && !texts) || !offsets || flags & ~FOCI_ENCODE_PLAIN)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "encoding needs texts, offsets, and no flags but "
                        "FOCI_ENCODE_PLAIN");
    for (int64_t i = 0; i < n; i++)
        if (texts[i].bytes < 0 || texts[i].bytes >= INT32_MAX / 2 ||
            (texts[i].bytes && !texts[i].text))
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "text %lld has %lld bytes; encoding takes 0 to %d at once",
                            (long long)i, (long long)texts[i].bytes, INT32_MAX / 2 - 1);
    const int64_t most = foci_encoder_most(e, texts, n);
    if (most && (!ids || cap < most))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "there is room for %lld ids; these texts can become %lld",
                        ids ? (long long)cap : 0, (long long)most);
    return FOCI_OK;
}

foci_status foci_encode(foci_encoder *e, const foci_string *texts, int64_t n,
                        unsigned flags, int32_t *ids, int64_t cap, int64_t *offsets)
{
    if (!e) return ctx_fail(NULL, FOCI_ERR_ARG, "there is no encoder");
    TRY(check_call(e, texts, n, flags, ids, cap, offsets));
    e->texts = texts;
    e->flags = flags;
    e->ids = ids;
    e->offsets = offsets;

    const int64_t most = foci_encoder_most(e, texts, n);
    memset(offsets, 0, ((size_t)n + 1) * sizeof *offsets);
    if (!most) return FOCI_OK;

    const int64_t n_groups = make_groups(e, n, most);
    const int     threads = jobs_threads(e->threads, n_groups, 20.0 * (double)most);
    const struct phase phase = { .n = n_groups, .chunk = 1, .job = run_group, .arg = e };

    phases_run(&e->t->ctx->kernels, false, threads, &phase, 1);
    foci_status status = FOCI_OK;
    for (int i = 0; i < e->threads; i++) {
        if (e->workers[i].status) status = e->workers[i].status;
        e->workers[i].status = FOCI_OK;
    }
    if (status) /* the sentence is that of the worker's thread */
        return ctx_fail(e->t->ctx, status, "no memory to encode %lld texts",
                        (long long)n);
    close_gaps(e, n_groups);
    return FOCI_OK;
}

void foci_encoder_free(foci_encoder *e)
{
    if (!e) return;
    foci_ctx *ctx = e->t->ctx;
    for (int i = 0; e->workers && i < e->threads; i++) {
        struct encode_worker *w = &e->workers[i];
        ctx_free(ctx, w->cache, N_SLOTS, sizeof *w->cache);
        merge_free(ctx, &w->merge);
        buffer_free(&w->repaired);
        buffer_free(&w->prefixed);
    }
    ctx_free(ctx, e->workers, (size_t)e->threads, sizeof *e->workers);
    ctx_free(ctx, e->groups, (size_t)e->threads * GROUPS_A_THREAD, sizeof *e->groups);
    ctx_free(ctx, e, 1, sizeof *e);
}

/* Only words of byte pair encoding are remembered. */
static foci_status open_worker(struct encode_worker *w, const struct foci_tokenizer *t)
{
    w->t = t;
    w->repaired.ctx = w->prefixed.ctx = t->ctx;
    if (t->kind != TEXT_BPE) return FOCI_OK;
    w->cache = ctx_alloc(t->ctx, N_SLOTS, sizeof *w->cache);
    return w->cache ? FOCI_OK : FOCI_ERR_MEMORY;
}

static foci_status open_workers(struct foci_encoder *e)
{
    foci_ctx *ctx = e->t->ctx;

    e->groups = ctx_alloc(ctx, (size_t)e->threads * GROUPS_A_THREAD, sizeof *e->groups);
    if (!e->groups) return FOCI_ERR_MEMORY;
    e->workers = ctx_alloc(ctx, (size_t)e->threads, sizeof *e->workers);
    if (!e->workers) return FOCI_ERR_MEMORY;
    for (int i = 0; i < e->threads; i++)
        TRY(open_worker(&e->workers[i], e->t));
    return FOCI_OK;
}

foci_status foci_encoder_create(const foci_tokenizer *t, foci_encoder **encoder)
{
    if (encoder) *encoder = NULL;
    if (!t || !encoder)
        return ctx_fail(t ? t->ctx : NULL, FOCI_ERR_ARG,
                        "an encoder needs a tokenizer and a place");
    struct foci_encoder *e = ctx_alloc(t->ctx, 1, sizeof *e);
    if (!e) return FOCI_ERR_MEMORY;
    e->t = t;
    e->threads = t->ctx->threads;

    const foci_status status = open_workers(e);
    if (status) {
        foci_encoder_free(e);
        return status;
    }
    for (int c = 0; c < 128; c++) {
        const char byte = (char)c;
        e->ascii[c] = id_of(&e->workers[0], &byte, 1);
    }
    *encoder = e;
    return FOCI_OK;
}
