/* data.h -- examples in batches: text, pairs of sentences, labels, images, generated tasks.
 *
 * A data object reads examples, puts them into batches and gives one batch after the
 * other, in training for ever, in an evaluation once:
 *
 *     foci_reader       text;
 *     foci_data_options o = { FOCI_SIZED(foci_data_options), .kind = FOCI_DATA_LM,
 *                             .source = &text, .tokenizer = tokenizer,
 *                             .batch = 16, .len = 256, .seed = 1 };
 *     if (foci_reader_open(ctx, "book.txt", &text) || foci_data_open(ctx, &o, &data))
 *         die(foci_errmsg(ctx));
 *     while (steps--) {
 *         foci_batch batch = { FOCI_SIZED(foci_batch) };
 *         if (foci_data_next(data, &batch)) die(foci_errmsg(ctx));
 *         ...
 *     }
 *
 * Text is read once where its ids fit into options.memory, and is then shuffled as a whole.
 * Larger text streams: it is read again in every pass, in blocks of whole examples whose
 * ids fill that memory, and examples are shuffled inside their block.  Blocks keep the
 * order of the file, so a large file whose order says something should be shuffled once
 * beforehand.
 *
 * Everything drawn (order, masks, generated examples) follows from the seed, the number of
 * the pass and the number of the example, so batches are the same for any number of threads
 * and after a restore.
 */
#ifndef FOCI_DATA_H
#define FOCI_DATA_H

#include "foci/mechanism.h"
#include "foci/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The task, which determines what a batch holds (foci_batch). */
typedef enum foci_data_kind {
    FOCI_DATA_LM,        /* the next token of a text */
    FOCI_DATA_MLM,       /* tokens of a text that are hidden */
    FOCI_DATA_TRANSLATE, /* the tokens of a sentence from those of another */
    FOCI_DATA_CLASSIFY,  /* the class of a text */
    FOCI_DATA_IMAGES,    /* the class of an image */
    FOCI_DATA_TASK /* examples of a generator; foci_data_get_info() says which of the
                          * other kinds they are of */
} foci_data_kind;

/* In which order examples come. */
typedef enum foci_data_order {
    FOCI_DATA_ORDER_SHUFFLED, /* for training: without end, every pass in an order of its own */
    FOCI_DATA_ORDER_SEGMENTS, /* lm and mlm without documents, without end: the text is cut into
                         * as many runs as a batch has rows, and row b of a batch goes on
                         * where row b of the batch before ended (foci_batch.carries) */
    FOCI_DATA_ORDER_ONCE, /* for evaluation: one pass, in the order of the file but for
                         * bucketing */
    FOCI_DATA_ORDER_ONCE_SEGMENTS /* one pass of segments */
} foci_data_order;

/* What the examples of an lm or mlm are. */
typedef enum foci_data_documents {
    FOCI_DATA_DOCUMENTS_NONE,      /* windows of one long text */
    FOCI_DATA_DOCUMENTS_LINES,     /* every line is a text of its own */
    FOCI_DATA_DOCUMENTS_PARAGRAPHS /* texts stand between empty lines */
} foci_data_documents;

/* Examples that are longer than a row. */
typedef enum foci_data_long {
    FOCI_DATA_LONG_DEFAULT, /* dropped when training, cut in an evaluation */
    FOCI_DATA_LONG_DROP,    /* left out; foci_data_info.n_dropped counts them */
    FOCI_DATA_LONG_CUT /* their end is left out; foci_data_info.n_cut counts them */
} foci_data_long;

/* Which random stream generated examples come from. */
typedef enum foci_data_split {
    FOCI_DATA_SPLIT_TRAIN,
    FOCI_DATA_SPLIT_VALID,
    FOCI_DATA_SPLIT_TEST
} foci_data_split;

/* What is left 0 takes the default beside it. */
typedef struct foci_data_options {
    size_t         size;
    foci_data_kind kind; /* 0: FOCI_DATA_LM */

    /* Where examples come from.  The data object takes readers over and closes them, also
     * when it cannot be opened.
     *
     * lm, mlm    source: text; lines end with "\n" or "\r\n", read as "\n"
     * translate  source and target: line i of one is the translation of line i of the
     *            other; or source alone: SOURCE<TAB>TARGET in every line (`reverse`
     *            exchanges the two)
     * classify   source: LABEL<TAB>TEXT in every line
     * images     source: an array of images in a .npy file, [n][height][width] or
     *            [n][height][width][channels]; target: one of labels, [n] whole numbers
     *            from 0 on
     * task       `task` */
    foci_reader *source, *target; /* NULL: there is none */
    int          reverse; /* 1: sources and targets change places; 0: they do not */

    /* "NAME" or "NAME(ARG=VALUE, ...)", written as a mechanism of a spec is; NULL where
     * the kind is not FOCI_DATA_TASK. */
    const char     *task;
    foci_data_split split; /* of a task; 0: FOCI_DATA_SPLIT_TRAIN */

    /* Text, which needs one; they have to outlive the data object.  With target_tokenizer
     * NULL both sides of a pair are read by `tokenizer`. */
    const foci_tokenizer *tokenizer, *target_tokenizer;

    /* The part of the source whose lines or images are used: those that begin in this
     * share of its bytes, half open.  0 and 0: all.  The source is read once more to find
     * its length. */
    double part_begin, part_end;

    /* Shape.  `batch` is the most rows; `len` is the longest row, of the target in a
     * translation, and source_len that of the source (0: as len).  Text needs len; images
     * and tasks have their own (0).  With `tokens` above 0 a batch has at most so many
     * tokens, padding included, on either side: rows are put together by length, and there
     * are as many as fit, at most `batch` (0: any number).  One of batch and tokens must be
     * given. */
    int64_t batch, len, source_len, tokens;

    /* Rows are padded to a multiple of so many positions, though not beyond len: fewer
     * shapes to plan for.  0: 1, to the longest row of the batch. */
    int64_t multiple;

    foci_data_order     order;     /* 0: FOCI_DATA_ORDER_SHUFFLED */
    foci_data_documents documents; /* 0: FOCI_DATA_DOCUMENTS_NONE */
    foci_data_long      too_long;  /* 0: FOCI_DATA_LONG_DEFAULT */

    /* 1: several short documents in one row, one behind the other (foci_batch.docs): rows
     * are batch * len long, and there is one of them.  lm and mlm with documents, and
     * classify.  0: a row is one example. */
    int pack;

    /* lm in the order FOCI_DATA_ORDER_ONCE: how many tokens of a full row are predicted, the
     * others being there to be seen only.  0: all.  Every token is predicted once. */
    int64_t stride;

    double  mask;  /* mlm: share of the tokens that are chosen; 0: 0.15 */
    int     words; /* 1: give the word index of every token; 0: do not */
    int64_t patch; /* images: side of a patch, which divides height and width; 0: 1 */

    /* Images: a value x is given as (x - shift) * scale.  scale 0: both are chosen so that
     * values have mean 0 and variance 1 over all images; foci_data_get_info() says what that
     * came to. */
    double shift, scale;

    /* classify: the names of the classes, in order.  NULL: those that the source has, in
     * the order of their bytes.  images: as many classes as n_classes; 0: one more than the
     * largest label.  Any other label is an error. */
    const char *const *classes;
    int64_t            n_classes;

    uint64_t seed; /* of all that is drawn; 0 is a seed like others */

    /* task: examples of a pass, always the same ones.  0: fresh ones for ever, and 1,000
     * where there is one pass.  Files: only the first so many lines, or images, of the part
     * that is used, so that larger numbers add to smaller ones; 0: all of it. */
    int64_t examples;

    size_t memory; /* bytes of examples that are kept at once; 0: 1 GiB */
} foci_data_options;

/* One batch.  Arrays are the data object's and stay as they are until the next call of
 * foci_data_next(), foci_data_restore() or foci_data_free().  Rows are padded with the pad
 * token (0 in tasks), labels with -1. */
typedef struct foci_batch {
    size_t  size;
    int64_t batch; /* rows; 0: the pass of an evaluation is over */
    int64_t len;   /* of the padded rows */

    const int32_t *ids;  /* [batch][len]; what a decoder reads; NULL: images */
    const int32_t *lens; /* [batch] tokens of each row; 0 where a run of segments has
                          * ended */

    /* [batch][len] what the output at each position should be: of an lm the token that
     * follows, of an mlm the token that stood there; -1: no loss.  NULL where
     * there are classes. */
    const int32_t *labels;

    /* The positions with a label, in order, as row * len + position. */
    const int64_t *label_at; /* [n_labels] */

    /* [batch] index of the class of each row; of a pack, [n_docs]. */
    const int32_t *classes;

    /* [batch][len] word of each token, from 0 in every row, as foci_token_words(); pads
     * have the last one.  NULL: not asked for. */
    const int32_t *words;

    int64_t        source_len; /* translate: what the encoder reads, padded likewise */
    const int32_t *source_ids, *source_lens, *source_words;

    /* images: [batch][len][patch_width] the values of each patch, [row][column][channel],
     * and the place of each patch in the grid, [len]. */
    const float   *patches;
    int64_t        patch_width;
    const int32_t *patch_rows, *patch_cols;

    /* pack: where documents begin, [n_docs + 1], as foci_io.docs; and the position of every
     * token in its document, [len].  NULL: positions are 0, 1, 2 ... in each row. */
    const int32_t *docs;
    int64_t        n_docs;
    const int32_t *positions;

    /* [batch] (pack: [n_docs]) number of each example, from 0, counted in its file or, of a
     * task, in its split: examples come in another order than they stand there.  -1 in
     * windows of text. */
    const int64_t *examples;

    /* task: the slices that each label is reported under, named by foci_data_slice():
     * [n_slices][n_labels], and of classes [n_slices][batch]. */
    const int32_t *slices;
    int            n_slices;

    int64_t n_labels; /* of classes as many as there are */
    int64_t n_tokens; /* without padding, both sides */

    /* Words and characters that the labels spell, one word for every end of a line: over
     * one pass of FOCI_DATA_ORDER_ONCE those of the text exactly.  0 in other orders and
     * kinds. */
    int64_t n_words, n_chars;

    int     carries; /* 1: row b continues row b of the batch before */
    int64_t pass;    /* passes before this one */
    int64_t index;   /* batches before this one in its pass */
} foci_batch;

/* Examples and where they come from. */
typedef struct foci_data foci_data;

/* Open, check what can be checked, and read the first block.  On failure *data is NULL and
 * foci_errmsg(ctx) says what to change.  Files are named by their readers; lines are
 * counted from 1. */
FOCI_API foci_status foci_data_open(foci_ctx *ctx, const foci_data_options *options,
                                    foci_data **data);
/* NULL is accepted. */
FOCI_API void foci_data_free(foci_data *data);

/* The next batch, into the fields that batch->size covers.  In an evaluation the call after
 * the last batch gives one of 0 rows, and the one after that begins a new pass. */
FOCI_API foci_status foci_data_next(foci_data *data, foci_batch *batch);

/* Begin pass `pass` anew. */
FOCI_API foci_status foci_data_rewind(foci_data *data, int64_t pass);

/* Write the position to `to`, if cap suffices; the result is the size it needs.  A data
 * object that was opened on the same files with the same options goes on from there with
 * the same batches.  With other options restoring fails and nothing has changed; where the
 * files are others, only foci_data_rewind() helps. */
FOCI_API size_t      foci_data_save(const foci_data *data, void *to, size_t cap);
FOCI_API foci_status foci_data_restore(foci_data *data, const void *from, size_t bytes);

/* A description of the data.  Numbers that are not known yet are -1: counts of a text that
 * streams, until a whole pass was read. */
typedef struct foci_data_info {
    size_t         size;
    foci_data_kind kind;    /* what a model has to be, never FOCI_DATA_TASK */
    int            causal;  /* 1: positions may not see those behind them */
    int            streams; /* 1: larger than options.memory */

    int64_t vocab, source_vocab; /* ids are below; 0: images */
    int64_t len, source_len;     /* of the longest rows there can be */
    int64_t batch;               /* most rows */
    int64_t n_classes;
    int64_t patch_width, grid_rows, grid_cols; /* images */
    double  shift, scale;

    int64_t n_examples; /* of a pass: lines, pairs, images, or windows */
    int64_t n_batches;  /* of a pass */
    int64_t n_tokens;   /* of the text; both sides */
    int64_t n_dropped, n_cut;
    int64_t n_not_utf8; /* lines that hold bytes that are not UTF-8 */

    int n_slices;
    int from_last; /* task: 1: a model is to answer from the last token alone
                    * (foci_model_config.from_last) */
} foci_data_info;

/* Describe the data, into the fields that info->size covers. */
FOCI_API foci_status foci_data_get_info(const foci_data *data, foci_data_info *info);

/* Names: of classes, where they have some, and of the slices of a task. */
FOCI_API int64_t     foci_data_class_count(const foci_data *data);
FOCI_API const char *foci_data_class(const foci_data *data, int64_t i);
FOCI_API int         foci_data_slice_count(const foci_data *data);
FOCI_API const char *foci_data_slice(const foci_data *data, int i);

/*
 * Generated tasks
 *
 * Their vocabularies are their own; id 0 is the pad.  Example i of a split follows from
 * task, arguments, seed, split and i alone, on every machine.
 */

/* A generator. */
typedef struct foci_task_info {
    size_t              size;
    const char         *name, *summary;
    const char         *source; /* where it comes from */
    const foci_arg_def *args;
    size_t              n_args;
    int                 version; /* rises when the same arguments give other examples */
    /* Options of `foci train` that suit the task on a CPU, and those of the paper, with
     * --task first where its arguments differ; NULL: none are known. */
    const char *preset, *published;
} foci_task_info;

/* The generators; one goes into the fields that info->size covers. */
FOCI_API int         foci_task_count(void);
FOCI_API foci_status foci_task(int i, foci_task_info *info);

/* The full text of a task with all its arguments, as snprintf would. */
FOCI_API int foci_data_task(const foci_data *data, char *text, size_t cap);

/* Write ids of the target (side 0) or of the source (side 1) of a task as text, as snprintf
 * would; pads are left out. */
FOCI_API int foci_data_text(const foci_data *data, int side, const int32_t *ids,
                            int64_t n, char *text, size_t cap);

/* The accuracy of a rule that learns nothing, which a model should exceed. */
typedef struct foci_floor {
    size_t      size;
    const char *name; /* "most frequent", "last value" */
    double      accuracy;
} foci_floor;

/* The floors of a task (other data have none); one is counted over `examples` examples of
 * the split of `data` after what needs counting was counted in as many of its training
 * split. */
FOCI_API int         foci_data_floor_count(const foci_data *data);
FOCI_API foci_status foci_data_floor(foci_data *data, int i, int64_t examples,
                                     foci_floor *floor);

#ifdef __cplusplus
}
#endif
#endif
