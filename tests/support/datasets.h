/* datasets.h -- data in memory for tests: readers that give few bytes at a time and can
 * fail, one small set of every kind, checksums of batches. */
#ifndef FOCI_DATASETS_H
#define FOCI_DATASETS_H

#include "foci/data.h"
#include "test.h"

/* A text that a reader reads. */
struct source {
    const char *text;
    int64_t     bytes, at;
    int64_t     each;         /* bytes that one call gives at most; 0: 7 */
    int64_t     fails_at;     /* reading fails there; 0: never */
    int         no_rewind;    /* going back fails */
    int         closed;       /* how often it was */
    int         rewinds;      /* likewise */
    int64_t     after_rewind; /* bytes from then on; 0: as before */
};
foci_reader source_reader(struct source *s);

/* A tokenizer of a kind, trained on a text. */
foci_tokenizer *datasets_tokenizer(foci_ctx *ctx, const char *kind, const char *text);

/* Small sets of all kinds: number i, "" beyond the last. */
struct dataset {
    const char       *name;
    foci_data_options options;                      /* without readers and tokenizers */
    const char       *tokenizer, *target_tokenizer; /* kinds; NULL: none */
    const char       *source, *target;
    int64_t           source_bytes, target_bytes; /* 0: up to their zeros */
};
extern const struct dataset datasets[];
enum { N_DATASETS = 24 };

/* One that is open, with all that it needs. */
struct opened {
    foci_ctx       *ctx;
    foci_data      *data;
    foci_tokenizer *tokenizer, *target_tokenizer;
    struct source   source, target;
};

/* Make it on a context, with changes to the options; the status of opening is given back
 * where `status` is not NULL, otherwise it has to open. */
struct opened *datasets_open(foci_ctx *ctx, const struct dataset *set,
                             const foci_data_options *changed, foci_status *status);
void           datasets_close(struct opened *o);

/* The next batch, which has to come. */
foci_batch datasets_next(foci_data *d);

/* A checksum of all that a batch holds. */
uint64_t datasets_sum(const foci_batch *b);

#endif
