/* datasets.c -- data in memory for tests. */
#include "support/datasets.h"
#include "data/data.h"

/*
 * Readers
 */

static int64_t read_source(void *user, void *to, int64_t bytes)
{
    struct source *s = user;
    int64_t        n = min64(bytes, s->bytes - s->at);

    n = min64(n, s->each ? s->each : 7);
    if (s->fails_at && s->at + n > s->fails_at) return -1;
    if (n) memcpy(to, s->text + s->at, (size_t)n);
    s->at += n;
    return n;
}

static int rewind_source(void *user)
{
    struct source *s = user;

    s->at = 0;
    s->rewinds++;
    if (s->after_rewind) s->bytes = s->after_rewind;
    return s->no_rewind ? -1 : 0;
}

static void close_source(void *user) { ((struct source *)user)->closed++; }

static const char *why(void *user)
{
    (void)user;
    return "the test wants it so";
}

foci_reader source_reader(struct source *s)
{
    return (foci_reader){ FOCI_SIZED(foci_reader),
                          .name = "set.txt",
                          .user = s,
                          .read = read_source,
                          .rewind = rewind_source,
                          .close = close_source,
                          .error = why };
}

foci_tokenizer *datasets_tokenizer(foci_ctx *ctx, const char *kind, const char *text)
{
    struct source s = { .text = text, .bytes = (int64_t)strlen(text), .each = 1 << 20 };
    foci_reader   r = source_reader(&s);
    foci_tokenizer *t = NULL;

    if (foci_tokenizer_train(ctx, kind, NULL, &r, 1, &t))
        fail_msg("%s: %s", kind, foci_errmsg(ctx));
    return t;
}

/*
 * Sets
 */

static const char prose[] =
    "It is a truth universally acknowledged, that a single man in\n"
    "possession of a good fortune, must be in want of a wife.\n"
    "\n"
    "However little known the feelings or views of such a man may be\n"
    "on his first entering a neighbourhood, this truth is so well\n"
    "fixed in the minds of the surrounding families, that he is\n"
    "considered as the rightful property of some one or other of their\n"
    "daughters.\n"
    "\n"
    "“My dear Mr. Bennet,” said his lady to him one day, “have you\n"
    "heard that Netherfield Park is let at last?”\n"
    "Mr. Bennet replied that he had not.\n";

static const char pairs[] = "one\teins\ntwo cats\tzwei Katzen\nthree\tdrei\n"
                            "four old trees\tvier alte Bäume\nfive\tfünf\nsix\tsechs\n"
                            "seven seas\tsieben Meere\neight\tacht\nnine\tneun\n"
                            "ten green bottles\tzehn grüne Flaschen\neleven\telf\n";
static const char english[] = "one\ntwo cats\nthree\nfour old trees\nfive\nsix\n"
                              "seven seas\neight\nnine\nten green bottles\n";
static const char german[] = "eins\nzwei Katzen\ndrei\nvier alte Bäume\nfünf\nsechs\n"
                             "sieben Meere\nacht\nneun\nzehn grüne Flaschen\n";
static const char labelled[] = "good\tfine weather\nbad\train\nnone\tclouds today\n"
                               "good\tsun\nbad\tsnow in the north\ngood\twarm\n"
                               "bad\tcold wind\nnone\tfog\n";

/* Headers of 128 bytes, as NumPy writes them; five images of 4 x 6. */
#define NPY "\x93NUMPY\x01\x00\x76\x00"

static const char images[128 + 120] =
    NPY "{'descr': '|u1', 'fortran_order': False, 'shape': (5, 4, 6), }"
        "                                                       \n"
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ01234567"
        "89!$%&/()=?*+-_.:,;<>|@#^~[]{} ~abcdefghijklmnopqrstuvwxyzAB";
static const char labels[128 + 5] =
    NPY "{'descr': '|i1', 'fortran_order': False, 'shape': (5,), }"
        "                                                            \n"
        "\x00\x01\x02\x01\x00";

#define COMMON FOCI_SIZED(foci_data_options), .seed = 5

const struct dataset datasets[N_DATASETS] = {
    { .name = "windows of text",
      .options = { COMMON, .batch = 3, .len = 16 },
      .tokenizer = "bytes",
      .source = prose },
    { .name = "windows that stream",
      .options = { COMMON, .batch = 3, .len = 16, .memory = 600 },
      .tokenizer = "bytes",
      .source = prose },
    { .name = "words of text",
      .options = { COMMON, .batch = 2, .len = 9, .words = 1 },
      .tokenizer = "words",
      .source = prose },
    { .name = "segments",
      .options = { COMMON, .batch = 4, .len = 10, .order = FOCI_DATA_ORDER_SEGMENTS },
      .tokenizer = "chars",
      .source = prose },
    { .name = "segments that stream",
      .options = { COMMON, .batch = 4, .len = 10, .order = FOCI_DATA_ORDER_SEGMENTS,
                   .memory = 500 },
      .tokenizer = "chars",
      .source = prose },
    { .name = "one pass with a stride",
      .options = { COMMON, .batch = 3, .len = 16, .stride = 5,
                   .order = FOCI_DATA_ORDER_ONCE },
      .tokenizer = "bpe:300",
      .source = prose },
    { .name = "one pass of segments",
      .options = { COMMON, .batch = 3, .len = 16,
                   .order = FOCI_DATA_ORDER_ONCE_SEGMENTS },
      .tokenizer = "bytes",
      .source = prose },
    { .name = "lines",
      .options = { COMMON, .batch = 2, .len = 24,
                   .documents = FOCI_DATA_DOCUMENTS_LINES },
      .tokenizer = "bytes",
      .source = prose },
    { .name = "packed paragraphs",
      .options = { COMMON, .batch = 4, .len = 40,
                   .documents = FOCI_DATA_DOCUMENTS_PARAGRAPHS, .pack = 1, .words = 1 },
      .tokenizer = "bytes",
      .source = prose },
    { .name = "hidden tokens",
      .options = { COMMON, .kind = FOCI_DATA_MLM, .batch = 3, .len = 16, .words = 1 },
      .tokenizer = "words",
      .source = prose },
    { .name = "hidden tokens of lines that stream",
      .options = { COMMON, .kind = FOCI_DATA_MLM, .batch = 3, .len = 16, .memory = 400,
                   .documents = FOCI_DATA_DOCUMENTS_LINES },
      .tokenizer = "bytes",
      .source = prose },
    { .name = "hidden tokens once",
      .options = { COMMON, .kind = FOCI_DATA_MLM, .batch = 3, .len = 16,
                   .order = FOCI_DATA_ORDER_ONCE },
      .tokenizer = "bytes",
      .source = prose },
    { .name = "pairs of a table",
      .options = { COMMON, .kind = FOCI_DATA_TRANSLATE, .tokens = 64, .len = 32 },
      .tokenizer = "bytes",
      .source = pairs },
    { .name = "pairs backward",
      .options = { COMMON, .kind = FOCI_DATA_TRANSLATE, .batch = 3, .len = 32,
                   .reverse = 1, .multiple = 8, .words = 1 },
      .tokenizer = "bytes",
      .target_tokenizer = "words",
      .source = pairs },
    { .name = "pairs of two files",
      .options = { COMMON, .kind = FOCI_DATA_TRANSLATE, .tokens = 40, .len = 32,
                   .memory = 500 },
      .tokenizer = "bytes",
      .source = english,
      .target = german },
    { .name = "pairs once",
      .options = { COMMON, .kind = FOCI_DATA_TRANSLATE, .batch = 4, .len = 12,
                   .order = FOCI_DATA_ORDER_ONCE },
      .tokenizer = "bytes",
      .source = english,
      .target = german },
    { .name = "labels",
      .options = { COMMON, .kind = FOCI_DATA_CLASSIFY, .batch = 3, .len = 32 },
      .tokenizer = "bytes",
      .source = labelled },
    { .name = "packed labels once",
      .options = { COMMON, .kind = FOCI_DATA_CLASSIFY, .batch = 3, .len = 20, .pack = 1,
                   .order = FOCI_DATA_ORDER_ONCE, .memory = 100 },
      .tokenizer = "bytes",
      .source = labelled },
    { .name = "images",
      .options = { COMMON, .kind = FOCI_DATA_IMAGES, .batch = 2, .patch = 2 },
      .source = images,
      .target = labels,
      .source_bytes = sizeof images,
      .target_bytes = sizeof labels },
    { .name = "images that stream",
      .options = { COMMON, .kind = FOCI_DATA_IMAGES, .batch = 2, .scale = 1,
                   .memory = 300 },
      .source = images,
      .target = labels,
      .source_bytes = sizeof images,
      .target_bytes = sizeof labels },
    { .name = "task: recall",
      .options = { COMMON, .kind = FOCI_DATA_TASK, .task = "mqar(vocab=32, length=24)",
                   .batch = 4, .examples = 10 } },
    { .name = "task: lists for ever",
      .options = { COMMON, .kind = FOCI_DATA_TASK, .task = "listops(6, 6, 16, 99)",
                   .tokens = 200 } },
    { .name = "task: numbers once",
      .options = { COMMON, .kind = FOCI_DATA_TASK, .task = "numbers", .tokens = 60,
                   .examples = 20, .split = FOCI_DATA_SPLIT_TEST,
                   .order = FOCI_DATA_ORDER_ONCE } },
    { .name = "task: masked copies that stream",
      .options = { COMMON, .kind = FOCI_DATA_TASK,
                   .task = "reverse(longest=4, test=4, form=masked)", .batch = 5,
                   .memory = 500, .words = 1, .examples = 300 } },
};

/*
 * Opening
 */

static struct source source_of(const char *text, int64_t bytes)
{
    return (struct source){ .text = text,
                            .bytes = bytes || !text ? bytes : (int64_t)strlen(text) };
}

struct opened *datasets_open(foci_ctx *ctx, const struct dataset *set,
                             const foci_data_options *changed, foci_status *status)
{
    struct opened    *o = test_alloc(1, sizeof *o);
    foci_data_options options = changed ? *changed : set->options;
    foci_reader       source, target;

    o->ctx = ctx;
    o->source = source_of(set->source, set->source_bytes);
    o->target = source_of(set->target, set->target_bytes);
    source = source_reader(&o->source);
    target = source_reader(&o->target);
    target.name = "other.txt";
    if (set->tokenizer) o->tokenizer = datasets_tokenizer(ctx, set->tokenizer, prose);
    if (set->target_tokenizer)
        o->target_tokenizer = datasets_tokenizer(ctx, set->target_tokenizer, prose);
    options.tokenizer = o->tokenizer;
    options.target_tokenizer = o->target_tokenizer;
    options.source = set->source ? &source : NULL;
    options.target = set->target ? &target : NULL;

    const foci_status opening = foci_data_open(ctx, &options, &o->data);
    if (status)
        *status = opening;
    else if (opening)
        fail_msg("%s: %s", set->name, foci_errmsg(ctx));
    return o;
}

void datasets_close(struct opened *o)
{
    foci_data_free(o->data);
    foci_tokenizer_free(o->tokenizer);
    foci_tokenizer_free(o->target_tokenizer);
    assert_int_equal(o->source.closed, o->source.text != NULL);
    assert_int_equal(o->target.closed, o->target.text != NULL);
    free(o);
}

foci_batch datasets_next(foci_data *d)
{
    foci_batch b = { FOCI_SIZED(foci_batch) };

    if (foci_data_next(d, &b)) fail_msg("%s", foci_errmsg(d->ctx));
    return b;
}

/*
 * Checksums: FNV-1a
 */

static uint64_t mix(uint64_t sum, const void *from, int64_t n, size_t each)
{
    const unsigned char *p = from;

    for (size_t i = 0; from && i < (size_t)n * each; i++)
        sum = (sum ^ p[i]) * UINT64_C(0x100000001b3);
    return sum * 3 + (from != NULL);
}

uint64_t datasets_sum(const foci_batch *b)
{
    const int64_t numbers[] = { b->batch,    b->len,         b->source_len, b->n_docs,
                                b->n_labels, b->n_tokens,    b->n_words,    b->n_chars,
                                b->pass,     b->patch_width, b->carries,    b->n_slices,
                                b->index };
    const int64_t cells = b->batch * b->len, sources = b->batch * b->source_len;
    const int64_t n = b->docs ? b->n_docs : b->batch;
    uint64_t      s = mix(1, numbers, (int64_t)(sizeof numbers / sizeof *numbers), 8);

    s = mix(s, b->ids, cells, 4);
    s = mix(s, b->lens, b->batch, 4);
    s = mix(s, b->labels, cells, 4);
    s = mix(s, b->label_at, b->n_labels, 8);
    s = mix(s, b->classes, n, 4);
    s = mix(s, b->words, cells, 4);
    s = mix(s, b->source_ids, sources, 4);
    s = mix(s, b->source_lens, b->batch, 4);
    s = mix(s, b->source_words, sources, 4);
    s = mix(s, b->patches, cells * b->patch_width, 4);
    s = mix(s, b->docs, n + 1, 4);
    s = mix(s, b->positions, b->len, 4);
    s = mix(s, b->examples, n, 8);
    return mix(s, b->slices, b->n_slices * b->n_labels, 4);
}
