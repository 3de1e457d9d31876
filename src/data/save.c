/* save.c -- the position in the data as bytes.
 *
 * A position is the pass, the block that is being read (how much of the source lies before
 * it, how many blocks, the token before its text) and the number of its batches that were
 * used; everything drawn follows from these and the seed.  Checksums of the options and of
 * the ids of the block are saved too, so that restoring on other data is refused.  All is
 * written as 64-bit numbers, least byte first.
 */
#include <string.h>

#include "data/data.h"

/* What stands at the start: "focidata", and the version of all that follows. */
static const uint64_t magic = UINT64_C(0x6174616469636f66), version = 1;

enum {
    MAGIC,
    VERSION,
    OPTIONS,
    CONTENT,
    PASS,
    INDEX,
    NEXT,
    OVER,
    BLOCK_INDEX,
    BLOCK_BEGIN,
    BLOCK_BEFORE,
    COUNTED,
    SEEN,             /* totals of the pass before the block */
    KNOWN = SEEN + 6, /* totals of a whole pass */
    SUM = KNOWN + 6,  /* of all before it */
    N_WORDS
};

static uint64_t mix(uint64_t sum, uint64_t word) { return rng_absorb(sum ^ word, 1); }

static uint64_t mix_real(uint64_t sum, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return mix(sum, bits);
}

static uint64_t mix_bytes(uint64_t sum, const void *from, size_t bytes)
{
    const unsigned char *p = from;

    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t word = 0;
        for (int i = 0; i < 8; i++)
            word |= (uint64_t)p[i] << (8 * i);
        sum = mix(sum, word);
    }
    while (bytes--)
        sum = mix(sum, *p++);
    return sum;
}

/* Of ids on any machine: number by number. */
static uint64_t mix_ids(uint64_t sum, const struct vec *v)
{
    for (int64_t i = 0; i < v->n; i++)
        sum = mix(sum, (uint32_t)VEC(int32_t, v, i));
    return mix(sum, (uint64_t)v->n);
}

/* All that batches depend on; memory only where it cuts blocks. */
static uint64_t options_sum(const foci_data *d)
{
    const foci_data_options *o = &d->o;
    const int64_t            whole[] = { o->kind,
                                         o->reverse,
                                         o->split,
                                         o->batch,
                                         o->len,
                                         o->source_len,
                                         o->tokens,
                                         o->multiple,
                                         o->order,
                                         o->documents,
                                         o->too_long,
                                         o->pack,
                                         o->stride,
                                         o->patch,
                                         o->examples,
                                         (int64_t)o->seed,
                              d->whole ? 0 : (int64_t)o->memory,
                                         d->classes.names.n };
    const double real[] = { o->part_begin, o->part_end, o->mask, o->shift, o->scale };
    char         task[512];
    uint64_t     sum = 0;

    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        sum = mix(sum, (uint64_t)whole[i]);
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        sum = mix_real(sum, real[i]);
    for (int side = 0; side < 2; side++)
        sum =
            mix(sum, d->tokenizer[side] ? foci_tokenizer_fingerprint(d->tokenizer[side])
                                        : 0);
    for (int64_t i = 0; i < d->classes.names.n; i++) {
        const char *name = foci_data_class(d, i);
        sum = mix_bytes(sum, name, strlen(name) + 1);
    }
    if (d->task.def) {
        (void)task_print(&d->task, task, sizeof task);
        sum = mix(sum, (uint64_t)d->task.def->version);
        sum = mix_bytes(sum, task, strlen(task));
    }
    return sum;
}

uint64_t content_sum(const foci_data *d)
{
    uint64_t sum = mix_ids(mix_ids(0, &d->store.ids[0]), &d->store.ids[1]);

    for (int64_t i = 0; i < d->store.examples.n; i++) {
        const struct example *e = (const struct example *)d->store.examples.at + i;
        sum = mix(sum, (uint64_t)e->answer);
        sum = mix(sum, (uint64_t)e->number);
    }
    return d->store.pixels.n
               ? mix_bytes(sum, d->store.pixels.at, (size_t)d->store.pixels.n)
               : sum;
}

static void put_totals(uint64_t *to, const struct data_totals *t)
{
    to[0] = (uint64_t)t->examples;
    to[1] = (uint64_t)t->batches;
    to[2] = (uint64_t)t->tokens;
    to[3] = (uint64_t)t->dropped;
    to[4] = (uint64_t)t->cut;
    to[5] = (uint64_t)t->not_utf8;
}

static struct data_totals get_totals(const uint64_t *from)
{
    return (struct data_totals){ (int64_t)from[0], (int64_t)from[1], (int64_t)from[2],
                                 (int64_t)from[3], (int64_t)from[4], (int64_t)from[5] };
}

static uint64_t words_sum(const uint64_t *word)
{
    uint64_t sum = 0;

    for (int i = 0; i < SUM; i++)
        sum = mix(sum, word[i]);
    return sum;
}

size_t foci_data_save(const foci_data *d, void *to, size_t cap)
{
    uint64_t       word[N_WORDS] = { 0 };
    unsigned char *out = to;

    if (!d || !to || cap < sizeof word) return sizeof word;
    word[MAGIC] = magic;
    word[VERSION] = version;
    word[OPTIONS] = options_sum(d);
    word[CONTENT] = d->content;
    word[PASS] = (uint64_t)d->pass;
    word[INDEX] = (uint64_t)d->index;
    word[NEXT] = (uint64_t)d->next;
    word[OVER] = d->over;
    word[BLOCK_INDEX] = (uint64_t)d->block.index;
    word[BLOCK_BEGIN] = (uint64_t)d->block.begin;
    word[BLOCK_BEFORE] = (uint32_t)d->block.before;
    word[COUNTED] = d->counted;
    put_totals(word + SEEN, &d->earlier);
    put_totals(word + KNOWN, &d->known);
    word[SUM] = words_sum(word);
    for (int i = 0; i < N_WORDS; i++)
        for (int b = 0; b < 8; b++)
            *out++ = (unsigned char)(word[i] >> (8 * b));
    return sizeof word;
}

/*
 * Going back
 */

static foci_status read_words(foci_data *d, const void *from, size_t bytes,
                              uint64_t word[N_WORDS])
{
    const unsigned char *in = from;

    if (!from || bytes != N_WORDS * sizeof *word)
        return ctx_fail(d->ctx, FOCI_ERR_FILE,
                        "a position in the data has %zu bytes; these are %zu",
                        N_WORDS * sizeof *word, bytes);
    for (int i = 0; i < N_WORDS; i++) {
        word[i] = 0;
        for (int b = 0; b < 8; b++)
            word[i] |= (uint64_t)*in++ << (8 * b);
    }
    if (word[MAGIC] != magic || word[VERSION] != version || word[SUM] != words_sum(word))
        return ctx_fail(d->ctx, FOCI_ERR_FILE,
                        "the position in the data is damaged, or of another version");
    if (word[OPTIONS] != options_sum(d))
        return ctx_fail(
            d->ctx, FOCI_ERR_FILE,
            "the position is one in other data: options, seed, tokenizer or "
            "classes are not the same");
    return FOCI_OK;
}

/* Read the block again that was being read. */
static foci_status seek(foci_data *d, const uint64_t *word)
{
    d->pass = (int64_t)word[PASS];
    d->over = false;
    if (d->whole) return plan_make(d);
    TRY(d->supply->rewind(d));
    TRY(d->supply->skip(d, (int64_t)word[BLOCK_BEGIN]));
    d->block = (struct data_block){ .index = (int64_t)word[BLOCK_INDEX],
                                    .begin = (int64_t)word[BLOCK_BEGIN],
                                    .before = (int32_t)(uint32_t)word[BLOCK_BEFORE] };
    d->seen = get_totals(word + SEEN);
    d->known = get_totals(word + KNOWN);
    d->counted = word[COUNTED] != 0;
    return blocks_fill(d);
}

static foci_status restore(foci_data *d, const uint64_t *word)
{
    TRY(seek(d, word));
    if (word[CONTENT] != d->content || word[NEXT] > (uint64_t)d->plan.n_batches)
        return lines_fail(&d->lines[0], NULL,
                          "is not what it was when the position was saved");
    d->next = (int64_t)word[NEXT];
    d->index = (int64_t)word[INDEX];
    d->over = word[OVER] != 0;
    return FOCI_OK;
}

foci_status foci_data_restore(foci_data *data, const void *from, size_t bytes)
{
    uint64_t word[N_WORDS] = { 0 };

    if (!data) return ctx_fail(NULL, FOCI_ERR_ARG, "there are no data to restore");
    TRY(read_words(data, from, bytes, word));
    const foci_status status = restore(data, word);
    data->failed = status != FOCI_OK;
    return status;
}
