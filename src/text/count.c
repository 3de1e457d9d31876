/* count.c -- count the words of texts that may be larger than memory.
 *
 * Text is read in blocks that end where a line ends, or else where no word goes across;
 * threads count parts of a block into dictionaries of their own, which are added up at
 * the end.  Counts are sums, so they do not depend on the threads.
 */
#include <string.h>

#include "text/train.h"
#include "text/utf8.h"

enum { BLOCK = 1 << 22, PARTS_A_THREAD = 4 };

struct count_part {
    const char *start, *end;
};

struct count_worker {
    struct dict        counts;
    struct text_buffer repaired;
    foci_status        status;
};

struct counter {
    foci_ctx            *ctx;
    enum text_kind       kind;
    struct count_worker *workers; /* [threads] */
    struct count_part   *parts;   /* [threads * PARTS_A_THREAD] */
    struct text_buffer   block;
};

static foci_status count_one(struct count_worker *w, const char *p, int64_t bytes)
{
    struct dict_entry *e = dict_add(&w->counts, p, bytes, text_hash(p, bytes));
    if (!e) return FOCI_ERR_MEMORY;
    e->value++;
    return FOCI_OK;
}

static foci_status count_chars(struct count_worker *w, const char *p, const char *end)
{
    uint32_t c;

    for (int n; p < end; p += n) {
        n = utf8_next(p, end, &c);
        if (c) TRY(count_one(w, p, n));
    }
    return FOCI_OK;
}

static foci_status count_word(struct count_worker *w, const char *p, const char *end)
{
    return p < end && !memchr(p, 0, (size_t)(end - p)) ? count_one(w, p, end - p)
                                                       : FOCI_OK;
}

static foci_status count_words(struct count_worker *w, const char *p, const char *end)
{
    const char *word = p;
    uint32_t    c;

    for (int n; p < end; p += n) {
        n = utf8_next(p, end, &c);
        if (char_class(c) != CHAR_SPACE) continue;
        TRY(count_word(w, word, p));
        word = p + n;
    }
    return count_word(w, word, end);
}

static foci_status count_pieces(struct count_worker *w, const char *p, const char *end)
{
    while (p < end) {
        const int64_t n = word_next(p, end);
        TRY(count_one(w, p, n));
        p += n;
    }
    return FOCI_OK;
}

static foci_status count_line(const struct counter *c, struct count_worker *w,
                              const char *p, const char *end)
{
    if (c->kind == TEXT_BPE) return count_pieces(w, p, end);
    if (!utf8_valid(p, end - p)) {
        const int64_t n = utf8_repair(p, end - p, NULL);
        TRY(grow(c->ctx, &w->repaired.at, &w->repaired.cap, n, 1));
        utf8_repair(p, end - p, w->repaired.at);
        p = w->repaired.at;
        end = p + n;
    }
    return c->kind == TEXT_CHARS ? count_chars(w, p, end) : count_words(w, p, end);
}

/* The end of the line at p, behind its '\n'. */
static const char *line_end(const char *p, const char *end)
{
    const char *newline = memchr(p, '\n', (size_t)(end - p));
    return newline ? newline + 1 : end;
}

static void run_part(void *arg, int64_t i, int thread)
{
    const struct counter *c = arg;
    struct count_worker  *w = &c->workers[thread];

    for (const char *p = c->parts[i].start; p < c->parts[i].end && !w->status;) {
        const char *end = line_end(p, c->parts[i].end);
        w->status = count_line(c, w, p, end);
        p = end;
    }
}

/* Count a text that ends where a line may end. */
static foci_status count_block(struct counter *c, const char *text, int64_t bytes)
{
    const int     threads = jobs_threads(c->ctx->threads, bytes, 50.0 * (double)bytes);
    const int64_t n_parts = (int64_t)threads * PARTS_A_THREAD;
    const char   *start = text;

    for (int64_t i = 0; i < n_parts; i++) {
        const char *end = text + bytes * (i + 1) / n_parts;
        if (end < start) end = start;
        if (end > text && end < text + bytes && end[-1] != '\n')
            end = line_end(end, text + bytes);
        c->parts[i] = (struct count_part){ start, end };
        start = end;
    }
    const struct phase phase = { .n = n_parts, .chunk = 1, .job = run_part, .arg = c };
    phases_run(&c->ctx->kernels, false, threads, &phase, 1);
    for (int i = 0; i < threads; i++)
        if (c->workers[i].status) /* whose sentence is that of another thread */
            return ctx_fail(c->ctx, c->workers[i].status,
                            "no memory to count what %lld bytes of text are made of",
                            (long long)bytes);
    return FOCI_OK;
}

/* How many of these bytes can be counted before the rest is known: up to the end of the
 * last line, or, of a long line, up to the last blank between two letters or digits, where
 * every kind begins a word.  0: it takes more. */
static int64_t safe_bytes(const char *text, int64_t bytes)
{
    for (int64_t i = bytes; i > 0; i--)
        if (text[i - 1] == '\n') return i;
    for (int64_t i = bytes - 2; i > 0; i--) {
        const unsigned char before = (unsigned char)text[i - 1];
        const unsigned char after = (unsigned char)text[i + 1];
        if (text[i] == ' ' && before < 0x80 && after < 0x80 &&
            char_class_ascii[before] - 1u < 2 && char_class_ascii[after] - 1u < 2)
            return i;
    }
    return 0;
}

static foci_status failed(const struct counter *c, const foci_reader *r)
{
    const char *why = r->error ? r->error(r->user) : NULL;
    return text_fail(c->ctx, FOCI_ERR_FILE, r->name ? r->name : "text",
                     "cannot be read: %s", why ? why : "its reader failed");
}

/* Count what stands in the block up to a safe place, and keep the rest. */
static foci_status count_some(struct counter *c, bool at_end)
{
    struct text_buffer *b = &c->block;
    const int64_t       n = at_end ? b->used : safe_bytes(b->at, b->used);

    if (n) TRY(count_block(c, b->at, n));
    b->used -= n;
    memmove(b->at, b->at + n, (size_t)b->used);
    return FOCI_OK;
}

static foci_status count_reader(struct counter *c, const foci_reader *r)
{
    struct text_buffer *b = &c->block;

    for (int64_t n = 1; n > 0;) {
        if (b->used == b->cap)
            TRY(grow(c->ctx, &b->at, &b->cap, max64(BLOCK, b->used + 1), 1));
        n = r->read(r->user, b->at + b->used, b->cap - b->used);
        if (n < 0 || n > b->cap - b->used) return failed(c, r);
        b->used += n;
        if (n == 0 || b->used == b->cap) TRY(count_some(c, n == 0));
    }
    return FOCI_OK;
}

static foci_status add_up(struct counter *c, struct dict *counts)
{
    for (int i = 0; i < c->ctx->threads; i++) {
        const struct dict *d = &c->workers[i].counts;
        for (int64_t k = 0; k < d->n; k++) {
            const struct dict_entry *from = &d->entries[k];
            struct dict_entry       *e =
                dict_add(counts, from->text, from->bytes, from->hash);
            if (!e) return FOCI_ERR_MEMORY;
            e->value += from->value;
        }
        dict_free(&c->workers[i].counts);
    }
    return FOCI_OK;
}

static foci_status count_all(struct counter *c, const foci_reader *readers, int n,
                             struct dict *counts)
{
    const size_t threads = (size_t)c->ctx->threads;

    c->workers = ctx_alloc(c->ctx, threads, sizeof *c->workers);
    if (!c->workers) return FOCI_ERR_MEMORY;
    for (size_t i = 0; i < threads; i++)
        c->workers[i].counts.ctx = c->workers[i].repaired.ctx = c->ctx;
    c->parts = ctx_alloc(c->ctx, threads * PARTS_A_THREAD, sizeof *c->parts);
    if (!c->parts) return FOCI_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        TRY(count_reader(c, &readers[i]));
    return add_up(c, counts);
}

foci_status count_texts(foci_ctx *ctx, enum text_kind kind, const foci_reader *readers,
                        int n, struct dict *counts)
{
    const size_t   threads = (size_t)ctx->threads;
    struct counter c = { .ctx = ctx, .kind = kind, .block = { .ctx = ctx } };

    const foci_status status = count_all(&c, readers, n, counts);
    for (size_t i = 0; c.workers && i < threads; i++) {
        dict_free(&c.workers[i].counts);
        buffer_free(&c.workers[i].repaired);
    }
    ctx_free(ctx, c.workers, threads, sizeof *c.workers);
    ctx_free(ctx, c.parts, threads * PARTS_A_THREAD, sizeof *c.parts);
    buffer_free(&c.block);
    return status;
}
