/* data.h -- what the parts of a data object share.
 *
 * Examples pass through three stages, and a position can be saved:
 *
 *     supply   reads or makes a block of examples and puts their ids into a store: one file
 *              for each sort of source (text.c, pairs.c, labelled.c, images.c, made.c)
 *     plan     says which rows of the block make up which batch (plan.c)
 *     batch    copies rows into the arrays of a batch (batch.c), hiding tokens (mask.c)
 *     save     the position, as bytes (save.c)
 *
 * "Side" 0 is what a model predicts or reads alone, side 1 the source of a translation.
 */
#ifndef FOCI_DATA_INSIDE_H
#define FOCI_DATA_INSIDE_H

#include "core/core.h"
#include "data/lines.h"
#include "data/task/task.h"
#include "data/vec.h"
#include "foci/data.h"
#include "foci/file.h"
#include "text/utf8.h"

/* Purposes of random streams: every draw starts at a hash of the seed, its purpose and two
 * numbers (data_stream()).  Generated examples have streams of their own. */
enum { DRAW_ORDER = 0x6f726465, DRAW_MASK = 0x6d61736b };

/* Where the ids of an example lie in the store. */
struct example {
    int64_t begin[2]; /* images: number 0 is its place in the block */
    int64_t first_slice;
    int64_t number; /* in its file or split */
    int32_t n[2];
    int32_t answer; /* the class */
};

/* The words and characters that a label spells, counted in an evaluation of text. */
struct spelled {
    int32_t words, chars;
};

/* The examples of a block. */
struct store {
    struct vec ids[2]; /* int32_t */
    struct vec labels; /* int32_t, as many as ids[0]; tasks only */
    struct vec slices; /* int32_t, n_slices for each label or class; tasks only */
    struct vec spelled; /* as many as ids[0]; lm in the order FOCI_DATA_ORDER_ONCE only */
    struct vec examples; /* not of running text */
    struct vec pixels;   /* bytes, images as they are in the file */
};

/* Text that is still to be encoded. */
struct data_chunk {
    struct vec text;    /* char */
    struct vec ends;    /* int64_t, of each text in it */
    struct vec closed;  /* char: the end of a line followed */
    struct vec numbers; /* int64_t */
    struct vec answers; /* int32_t */
    struct vec strings; /* foci_string, for the encoder */
    struct vec ids;     /* int32_t, the encoded texts */
    struct vec offsets; /* int64_t */
};

/* The block of the source that is in the store. */
struct data_block {
    int64_t index;  /* in its pass */
    int64_t begin;  /* lines, images or examples before it */
    int64_t taken;  /* lines, images or examples of the block itself */
    int32_t before; /* running text: the token before its first one */
    int32_t after;  /* its last token */
    bool    last;   /* nothing comes after it in this pass */
};

/* Counts of a pass so far; 0 at its start. */
struct data_totals {
    int64_t examples, batches, tokens, dropped, cut, not_utf8;
};

/* Which rows make up which batch: those of the batch that comes as number t are
 * order[starts[turns[t]]] to order[starts[turns[t] + 1]], half open, numbers of examples or
 * of windows.  Segments have none of it. */
struct plan_rows {
    struct vec order, starts, turns; /* int64_t */
    struct vec sorted;               /* struct by_length, to sort */
    int64_t    n_batches;
    int64_t    shift; /* running text: labels of the first window; 0: all that fit */
};

/* Names in the order of their bytes, the class of each, and the index of each class's name. */
struct classes {
    struct vec names;          /* char * */
    struct vec numbers, ranks; /* int64_t */
};

struct images {
    foci_array one; /* an image of the file, without data */
    int64_t    n, height, width, channels;
    int64_t    rows, cols; /* of patches */
    size_t     bytes;      /* of an image */
    int64_t    begin, end; /* the part that is used */
    int64_t    at;         /* the next one in the file */
    struct vec labels;     /* int32_t, [n] */
    struct vec floats;     /* float, memory for one image */
};

/* The arrays of a batch, and memory for the largest. */
struct batch_memory {
    int64_t    rows, cells, source_cells; /* most rows, most rows * len */
    struct vec ids, labels, words, source_ids, source_words; /* int32_t, by cells */
    struct vec lens, source_lens, classes, docs;             /* int32_t, by rows */
    struct vec positions, patch_rows, patch_cols, slices;    /* int32_t */
    struct vec label_at, examples;                           /* int64_t */
    struct vec patches;                                      /* float */
};

struct supply;

struct foci_data {
    foci_ctx            *ctx;
    foci_data_options    o; /* with what was left 0 filled in; readers are in `lines` */
    const struct supply *supply;
    foci_data_kind       kind; /* never FOCI_DATA_TASK */
    bool                 causal;
    int64_t              vocab[2];

    struct line_reader    lines[2]; /* of the readers: source, target */
    const foci_tokenizer *tokenizer[2];
    foci_encoder         *encoder[2];
    int32_t               pad[2], eos[2], bos, mask;
    bool                  counts; /* words and characters of labels are wanted */
    bool              line_eos;   /* running text: <eos> stands for the end of a line */
    struct data_chunk chunk[2];
    int64_t           part[2]; /* of bytes, half open */
    int64_t        first_line; /* of the part, counted in the file; -1: not read yet */
    struct classes classes;

    struct task          task;
    struct task_memory   task_memory;
    struct task_example *made; /* [task_memory.n] */
    struct images        images;

    struct store        store;
    struct data_block   block;
    struct plan_rows    plan;
    struct batch_memory batch;

    int64_t            pass, index; /* batches before the next one in its pass */
    int64_t            next;        /* likewise in its block */
    bool               whole;       /* all is in the store, and stays there */
    bool               begun;       /* a block is in the store */
    bool               over;    /* the end of an evaluation's pass has been reported */
    bool               failed;  /* reading failed: only rewinding helps */
    struct data_totals seen;    /* of this pass with its present block */
    struct data_totals earlier; /* of this pass without its present block */
    struct data_totals known;   /* of a whole pass */
    uint64_t           content; /* a checksum of the block */
    bool               counted; /* `known` is valid */
};

/* Where examples come from. */
struct supply {
    /* Check options and read what is needed before the first block. */
    foci_status (*open)(foci_data *d);

    /* Read the next block, from where the one before ended, and set d->store, d->block.taken,
     * d->block.last and d->seen. */
    foci_status (*fill)(foci_data *d);

    /* rewind: the next block is the first of a pass.  skip: skip n lines, images or
     * examples, as block.begin counts them. */
    foci_status (*rewind)(foci_data *d);
    foci_status (*skip)(foci_data *d, int64_t n);

    bool running; /* the store holds one text, not examples */
};

extern const struct supply supply_text, supply_documents, supply_pairs, supply_labelled,
    supply_images, supply_made;

/* Whether the order has one pass, and whether rows continue from batch to batch. */
static inline bool is_once(const foci_data *d)
{
    return d->o.order == FOCI_DATA_ORDER_ONCE ||
           d->o.order == FOCI_DATA_ORDER_ONCE_SEGMENTS;
}

static inline bool is_segments(const foci_data *d)
{
    return d->o.order == FOCI_DATA_ORDER_SEGMENTS ||
           d->o.order == FOCI_DATA_ORDER_ONCE_SEGMENTS;
}

/* options.c: check d->o and fill in defaults; readers are in d->lines.  options_fit: the same
 * for what depends on the longest rows, once these are known. */
foci_status options_take(foci_data *d);
foci_status options_fit(foci_data *d);

/* The random stream of a purpose and two numbers, a and b. */
static inline struct rng data_stream(const foci_data *d, uint64_t purpose, int64_t a,
                                     int64_t b)
{
    const uint64_t key = rng_absorb(rng_absorb(d->o.seed, purpose), (uint64_t)a + 1);
    return (struct rng){ .state = rng_absorb(key, (uint64_t)b + 1) };
}

/* Positions that rows of at most n tokens are padded to. */
static inline int64_t padded(const foci_data *d, int64_t n, int64_t most)
{
    return min64(round_up(n, d->o.multiple), most);
}

/* Tokens of running text that are predicted, or that may be hidden. */
static inline int64_t running_labels(const foci_data *d)
{
    return d->store.ids[0].n - (d->kind == FOCI_DATA_LM);
}

/* plan.c: order the rows of the block for this pass, and cut them into batches. */
foci_status plan_make(foci_data *d);

/* A row to be copied: where its ids lie, and its first position with a label. */
struct data_row {
    int64_t begin[2], n[2];
    int64_t first, first_slice, number;
    int32_t answer;
};

/* The number of rows of batch number t, in order of use, and row r of it. */
int64_t         plan_n(const foci_data *d, int64_t t);
struct data_row plan_row(const foci_data *d, int64_t t, int64_t r);

/* batch.c: allocate memory for batches; and fill batch number t of the block. */
foci_status batch_open(foci_data *d);
foci_status batch_make(foci_data *d, int64_t t, foci_batch *batch);
void        batch_free(foci_data *d);

/* mask.c: hide tokens of a row; its labels get the tokens that were there. */
void mask_row(const foci_data *d, const struct data_row *row, int32_t *ids,
              int32_t *labels);

/* save.c: a checksum of the store. */
uint64_t content_sum(const foci_data *d);

/* blocks.c: read the first block of a pass, the next one, and the one that d->block names. */
foci_status blocks_begin(foci_data *d, int64_t pass);
foci_status blocks_next(foci_data *d);
foci_status blocks_fill(foci_data *d);

/*
 * Lines into chunks, chunks into ids (chunk.c)
 */

/* The id of a special token or, without one, of the other (which may be the same).
 * FOCI_ERR_ARG if the tokenizer has neither; `why` says what needs it, for the message. */
foci_status special_take(foci_data *d, int side, foci_special which, foci_special other,
                         const char *why, int32_t *id);

/* The encoder of a side. */
foci_status encoder_open(foci_data *d, int side, const foci_tokenizer *tokenizer);

/* The next line of the part of reader number r that is used; line->text is NULL behind the
 * last. */
foci_status part_next(foci_data *d, int r, bool pieces, struct data_line *line);
foci_status part_more(foci_data *d, int r, bool *more);
/* Find where the part begins and ends. */
foci_status part_open(foci_data *d);

/* supply.rewind and supply.skip for sources that are read by lines; of pairs both readers. */
foci_status lines_supply_rewind(foci_data *d);
foci_status lines_supply_skip(foci_data *d, int64_t n);

void chunk_clear(foci_data *d);
/* Whether the chunk is large enough to be encoded. */
bool chunk_full(const foci_data *d);
/* Append to the open text; close it. */
foci_status chunk_add(foci_data *d, int side, const char *text, int64_t bytes);
foci_status chunk_close(foci_data *d, int side, int64_t number, bool closed,
                        int32_t answer);
/* Encode all texts of the side; then text i has ids offsets[i] to offsets[i + 1]. */
foci_status    chunk_encode(foci_data *d, int side);
int64_t        chunk_n(const foci_data *d, int side);
foci_string    chunk_text(const foci_data *d, int side, int64_t i);
const int32_t *chunk_ids(const foci_data *d, int side, int64_t i, int64_t *n);

/* Whether the store has as much as memory allows. */
bool store_full(const foci_data *d);
void store_clear(foci_data *d);

/* spelled.c: the words and characters that each of the n ids of a text spells.  eos: the last
 * one is <eos>, which stands for the end of a line. */
void spell_out(const foci_tokenizer *t, foci_string text, bool eos, const int32_t *ids,
               int64_t n, struct spelled *out);

#endif
