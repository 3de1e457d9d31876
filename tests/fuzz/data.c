/* data.c -- any bytes may be in the files that examples are read from: text, pairs, labelled
 * texts, images; and in a task and a saved position.  The first bytes choose kind, order and
 * sizes; what follows is the file, for two files cut in the middle.  Data are refused with a
 * reason, or their batches hold what they should, and a position that is saved is gone on
 * from. */
#include "foci/data.h"
#include "fuzz/choices.h"
#include "support/datasets.h"

enum { SAVED = 1024, N_BATCHES = 6 };

static const foci_tokenizer *tokenizer(int i)
{
    static foci_tokenizer   *made[2];
    static const char *const kinds[] = { "bytes", "words" };

    if (!made[i]) made[i] = datasets_tokenizer(fuzz_ctx(), kinds[i], "a b\nc d e\n");
    return made[i];
}

static foci_data_options draw_options(struct choices *c)
{
    foci_data_options o = { FOCI_SIZED(foci_data_options) };

    o.kind = (foci_data_kind)below(c, 6);
    o.order = (foci_data_order)below(c, 4);
    o.documents = (foci_data_documents)(o.kind < 2 ? below(c, 3) : 0);
    o.too_long = (foci_data_long)below(c, 3);
    o.pack = below(c, 4) == 3;
    o.batch = below(c, 5);
    o.tokens = below(c, 3) ? 0 : 1 + below(c, 200);
    o.len = below(c, 40);
    o.source_len = below(c, 3) ? 0 : below(c, 40);
    o.multiple = below(c, 4);
    o.stride = below(c, 3) ? 0 : below(c, 8);
    o.reverse = o.kind == FOCI_DATA_TRANSLATE && below(c, 2);
    o.words = below(c, 2) != 0;
    o.patch = below(c, 4);
    o.scale = (double)below(c, 2);
    o.n_classes = below(c, 3) ? 0 : below(c, 4);
    o.memory = below(c, 2) ? 0 : (size_t)(1 + below(c, 200));
    o.part_end = below(c, 3) ? 0 : 1 / (double)(1 + below(c, 4));
    o.seed = (uint64_t)below(c, 3);
    o.examples = o.kind == FOCI_DATA_TASK ? below(c, 9) : 0;
    if (o.kind != FOCI_DATA_TASK && o.kind != FOCI_DATA_IMAGES)
        o.tokenizer = tokenizer((int)below(c, 2));
    return o;
}

static void check_row(const foci_batch *b, const foci_data_info *i, int64_t r)
{
    MUST(b->lens[r] >= 0 && b->lens[r] <= b->len);
    for (int64_t t = r * b->len; b->ids && t < (r + 1) * b->len; t++) {
        MUST(b->ids[t] >= 0 && b->ids[t] < i->vocab);
        if (b->labels) MUST(b->labels[t] >= -1 && b->labels[t] < i->vocab);
        if (b->words) MUST(b->words[t] >= 0 && b->words[t] < b->len);
    }
    for (int64_t t = 0; b->source_ids && t < b->source_len; t++)
        MUST(b->source_ids[r * b->source_len + t] < i->source_vocab);
    if (b->source_lens)
        MUST(b->source_lens[r] > 0 && b->source_lens[r] <= b->source_len);
    for (int64_t t = 0; b->patches && t < b->len * b->patch_width; t++)
        MUST(isfinite(b->patches[r * b->len * b->patch_width + t]));
}

static void check_batch(const foci_batch *b, const foci_data_info *i)
{
    const int64_t n = b->docs ? b->n_docs : b->batch;

    MUST(b->batch > 0 && b->batch <= i->batch && b->len <= i->len);
    for (int64_t r = 0; r < b->batch; r++)
        check_row(b, i, r);
    for (int64_t l = 0; b->labels && l < b->n_labels; l++)
        MUST(b->labels[b->label_at[l]] >= 0);
    for (int64_t r = 0; b->classes && r < n; r++)
        MUST(b->classes[r] >= 0 && b->classes[r] < i->n_classes);
    for (int64_t r = 0; b->docs && r < n; r++)
        MUST(b->docs[r] >= 0 && b->docs[r] <= b->docs[r + 1]);
    if (b->docs) MUST(b->docs[n] <= b->len);
}

/* Batches up to a failure; a position on the way, gone back to. */
static void use(foci_data *d)
{
    foci_data_info info = { FOCI_SIZED(foci_data_info) };
    char           saved[SAVED];
    uint64_t       sum = 0;
    const size_t   bytes = foci_data_save(d, saved, sizeof saved);

    MUST(foci_data_get_info(d, &info) == FOCI_OK && bytes <= SAVED);
    for (int n = 0; n < N_BATCHES; n++) {
        foci_batch b = { FOCI_SIZED(foci_batch) };
        if (foci_data_next(d, &b)) {
            fuzz_message(fuzz_ctx());
            return;
        }
        if (b.batch) check_batch(&b, &info);
        if (!n) sum = datasets_sum(&b);
    }
    foci_batch b = { FOCI_SIZED(foci_batch) };
    MUST(foci_data_restore(d, saved, bytes) == FOCI_OK);
    MUST(foci_data_next(d, &b) == FOCI_OK && datasets_sum(&b) == sum);
}

/* The reader of what is left from `at` on. */
static struct source source_of(const uint8_t *at, int64_t bytes)
{
    return (struct source){ .text = (const char *)at, .bytes = bytes };
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices    c = { data, data + size };
    foci_data_options o = draw_options(&c);
    const bool        task = o.kind == FOCI_DATA_TASK;
    const bool        two =
        o.kind == FOCI_DATA_IMAGES || (o.kind == FOCI_DATA_TRANSLATE && below(&c, 2));
    const int64_t first = below(&c, 200), left = c.end - c.at;
    const int64_t cut = two ? min64(left, first) : left;
    struct source source[2] = { source_of(c.at, cut),
                                source_of(c.at + cut, left - cut) };
    foci_reader   r[2] = { source_reader(&source[0]), source_reader(&source[1]) };
    char          text[200];
    foci_data    *d = NULL;

    snprintf(text, sizeof text, "%.*s", (int)min64(left, 150), (const char *)c.at);
    if (task)
        o.task = text;
    else
        o.source = &r[0];
    if (two) o.target = &r[1];
    if (foci_data_open(fuzz_ctx(), &o, &d))
        fuzz_message(fuzz_ctx());
    else
        use(d);
    foci_data_free(d);
    return 0;
}
