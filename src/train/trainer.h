/* trainer.h -- the state of training, shared by the files of src/train. */
#ifndef FOCI_TRAINER_H
#define FOCI_TRAINER_H

#include <stdio.h>

#include "train/folder.h"
#include "train/model.h"
#include "train/ops.h"

/* The position of training, which a checkpoint stores beside parameters and moments. */
struct standing {
    int64_t step, tokens;
    double  best; /* validation loss; infinite before the first */
    int64_t best_step;
    int64_t waited;   /* validations since the best */
    int64_t averaged; /* validations whose parameters went into the ring */
};

struct foci_trainer {
    foci_model           *model;
    foci_data            *train, *valid; /* valid NULL: none */
    const foci_tokenizer *tokenizer;
    foci_train_options    o; /* with what was left 0 filled in */
    foci_carry           *carry;
    float                *grads, *m, *v; /* [floats] */
    float                *best;          /* [floats] of the best validation */
    float                *ring;          /* [average][floats] */
    void                 *work;          /* of squares */
    size_t                work_bytes;
    struct standing       at;
    double         started, spent; /* seconds: a clock, and of runs before this */
    int64_t        first_tokens;   /* of this run */
    foci_progress  now;
    uint64_t       checksum; /* of the state when the run ended; 0: it has not */
    FILE          *log;
    struct events *events;
};

/* schedule.c: the learning rate of the step that begins. */
double schedule_rate(const foci_trainer *t);
/* Share of the training that is done, 0 to 1; negative: not known. */
double schedule_done(const foci_trainer *t);

/* checkpoint.c: state.safetensors. */
foci_status checkpoint_save(foci_trainer *t);
foci_status checkpoint_load(foci_trainer *t);
/* A checksum of what it would hold. */
uint64_t checkpoint_sum(const foci_trainer *t);

/* log.c */
foci_status log_open(foci_trainer *t);
foci_status log_write(foci_trainer *t);
void        log_close(foci_trainer *t);

/* events.c: files that TensorBoard shows. */
struct events;
foci_status events_open(foci_ctx *ctx, const char *folder, struct events **events);
/* Add a scalar `value` of this name at a step. */
foci_status events_add(struct events *e, int64_t step, const char *name, double value);
foci_status events_flush(struct events *e);
void        events_close(struct events *e);

/* Seconds on a clock that only runs forward. */
double train_clock(void);

#endif
