/* trainer.c -- the training loop. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "train/pass.h"
#include "train/trainer.h"

double train_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/*
 * Making one
 */

static void preset(double *x, double value)
{
    if (*x == 0) *x = value;
    if (*x < 0) *x = 0;
}

static foci_status take_options(foci_trainer *t, const foci_train_options *given)
{
    foci_ctx           *ctx = t->model->ctx;
    foci_train_options *o = &t->o;

    TRY(sized_in(ctx, "foci_train_options", o, given, sizeof *o));
    if (o->steps < 0 || o->tokens < 0 || o->time_limit < 0 || o->accumulate < 0 ||
        o->valid_every < 0 || o->valid_batches < 0 || o->save_every < 0 ||
        o->patience < 0 || o->average < 0 || o->warmup < -1)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "steps, tokens and the like of training are not negative");
    if (!(o->smoothing >= 0 && o->smoothing < 1))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "smoothing is %g: it may be 0 or more, below 1", o->smoothing);
    if (!o->steps && !o->tokens && o->time_limit <= 0 && !(o->patience && t->valid))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        o->patience
                            ? "training has no end: patience counts validations, "
                              "and there are no data to validate by"
                            : "training has no end: give steps, tokens, a time "
                              "limit or patience");
    preset(&o->rate, 1e-3);
    preset(&o->final_rate, 0.1);
    preset(&o->beta1, 0.9);
    preset(&o->beta2, 0.95);
    preset(&o->epsilon, 1e-8);
    preset(&o->decay, 0.1);
    preset(&o->clip, 1);
    if (!o->accumulate) o->accumulate = 1;
    if (!o->warmup) o->warmup = o->steps ? min64(100, o->steps / 20) : 100;
    if (o->warmup < 0) o->warmup = 0;
    if (!o->valid_every) o->valid_every = o->steps ? max64(o->steps / 20, 1) : 500;
    if (!o->save_every) o->save_every = o->valid_every;
    return FOCI_OK;
}

static foci_status take_memory(foci_trainer *t)
{
    foci_model    *m = t->model;
    const size_t   n = (size_t)m->floats;
    float        **arrays[] = { &t->grads, &t->m, &t->v };
    foci_data_info info = { FOCI_SIZED(foci_data_info) };

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (!(*arrays[i] = ctx_alloc(m->ctx, n, sizeof(float)))) return FOCI_ERR_MEMORY;
    if (t->valid && !(t->best = ctx_alloc(m->ctx, n, sizeof(float))))
        return FOCI_ERR_MEMORY;
    if (t->o.average &&
        !(t->ring = ctx_alloc(m->ctx, n * (size_t)t->o.average, sizeof(float))))
        return FOCI_ERR_MEMORY;
    t->work_bytes = foci_squares_work_bytes(m->trained);
    t->work = ctx_alloc(m->ctx, t->work_bytes, 1);
    if (!t->work) return FOCI_ERR_MEMORY;
    TRY(foci_data_get_info(t->train, &info));
    return foci_carry_create(m, max64(info.batch, 1), &t->carry);
}

foci_status foci_trainer_create(foci_model *model, foci_data *train, foci_data *valid,
                                const foci_tokenizer     *tokenizer,
                                const foci_train_options *options,
                                foci_trainer            **trainer)
{
    if (!trainer || !model)
        return ctx_fail(model ? model->ctx : NULL, FOCI_ERR_ARG,
                        "foci_trainer_create: %s is NULL",
                        model ? "trainer" : "the model");
    *trainer = NULL;
    if (!train) return ctx_fail(model->ctx, FOCI_ERR_ARG, "training needs data");
    foci_trainer *t = ctx_alloc(model->ctx, 1, sizeof *t);
    if (!t) return FOCI_ERR_MEMORY;
    t->model = model;
    t->train = train;
    t->valid = valid;
    t->tokenizer = tokenizer;
    t->at.best = INFINITY;
    foci_status status = take_options(t, options);
    if (!status) status = take_memory(t);
    if (status) {
        foci_trainer_free(t);
        return status;
    }
    *trainer = t;
    return FOCI_OK;
}

void foci_trainer_free(foci_trainer *t)
{
    if (!t) return;
    foci_ctx    *ctx = t->model->ctx;
    const size_t n = (size_t)t->model->floats;
    float       *arrays[] = { t->grads, t->m, t->v, t->best };

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (arrays[i]) ctx_free(ctx, arrays[i], n, sizeof(float));
    if (t->ring) ctx_free(ctx, t->ring, n * (size_t)t->o.average, sizeof(float));
    if (t->work) ctx_free(ctx, t->work, t->work_bytes, 1);
    foci_carry_free(t->carry);
    log_close(t);
    events_close(t->events);
    ctx_free(ctx, t, 1, sizeof *t);
}

foci_status foci_trainer_resume(foci_trainer *trainer)
{
    if (!trainer)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_trainer_resume: the trainer is NULL");
    return checkpoint_load(trainer);
}

uint64_t foci_trainer_checksum(const foci_trainer *trainer)
{
    return trainer->checksum ? trainer->checksum : checkpoint_sum(trainer);
}

/*
 * A step
 */

/* Gradients of all batches of the step, summed over all that train together: the one place
 * where processes would add theirs, and their numbers of labels. */
static foci_status sum_gradients(foci_trainer *t, int64_t *labels)
{
    (void)t;
    (void)labels;
    return FOCI_OK;
}

static foci_status next_batch(foci_trainer *t, foci_batch *batch)
{
    for (int tries = 0; tries < 2; tries++) { /* a pass may end before each batch */
        *batch = (foci_batch){ FOCI_SIZED(foci_batch) };
        TRY(foci_data_next(t->train, batch));
        if (batch->batch) return FOCI_OK;
    }
    return ctx_fail(t->model->ctx, FOCI_ERR_ARG, "the training data has no batches");
}

/* Gradients and losses of the batches of one step. */
static foci_status gather(foci_trainer *t, double *sum, int64_t *labels)
{
    const int64_t count = t->o.accumulate;

    *sum = 0;
    *labels = 0;
    for (int64_t i = 0; i < count; i++) {
        foci_batch batch;
        TRY(next_batch(t, &batch));
        const foci_loss_options o = {
            FOCI_SIZED(foci_loss_options),
            .smoothing = t->o.smoothing,
            .dropout_seed =
                rng_absorb(t->o.seed, (uint64_t)(t->at.step * count + i) + 1),
            .carry = t->carry && t->carry->batch == batch.batch ? t->carry : NULL,
            .calibrate = i ? 0 : t->at.step + 1,
            .advance = i == count - 1,
        };
        foci_loss loss = { FOCI_SIZED(foci_loss) };
        TRY(foci_model_loss(t->model, &batch, &o, t->grads, &loss));
        *sum += loss.sum;
        *labels += loss.labels;
        t->at.tokens += batch.n_tokens;
    }
    return sum_gradients(t, labels);
}

/* What gradients of sums are multiplied by: their mean, clipped. */
static foci_status find_scale(foci_trainer *t, int64_t labels, double *scale)
{
    foci_model *m = t->model;
    double      squares = 0;

    TRY(m->ops->squares(m->ctx, m->segments, m->n_segments, t->grads, t->work,
                        &squares));
    const double norm = sqrt(squares) / (double)labels;
    if (!isfinite(norm))
        return ctx_fail(m->ctx, FOCI_ERR_ARG,
                        "the gradient of step %" PRId64
                        " is not finite: a lower rate or a longer warm-up may help",
                        t->at.step + 1);
    t->now.gradient = norm;
    *scale = 1 / (double)labels;
    if (t->o.clip > 0 && norm > t->o.clip) *scale *= t->o.clip / norm;
    return FOCI_OK;
}

static foci_status update(foci_trainer *t, double scale)
{
    foci_model         *m = t->model;
    const foci_adamw_io io = {
        FOCI_SIZED(foci_adamw_io),
        .segments = m->segments,
        .n_segments = m->n_segments,
        .params = m->params,
        .grads = t->grads,
        .m = t->m,
        .v = t->v,
        .rate = t->now.rate,
        .beta1 = t->o.beta1,
        .beta2 = t->o.beta2,
        .eps = t->o.epsilon,
        .decay = t->o.decay,
        .scale = scale,
        .step = t->at.step + 1,
        .clear = 1,
    };
    return m->ops->adamw(m->ctx, &io);
}

static foci_status train_step(foci_trainer *t)
{
    double  sum, scale = 0;
    int64_t labels;

    t->now.rate = schedule_rate(t);
    TRY(gather(t, &sum, &labels));
    if (labels) {
        TRY(find_scale(t, labels, &scale));
        TRY(update(t, scale));
        t->now.loss = sum / (double)labels;
    }
    t->at.step++;
    return FOCI_OK;
}

/*
 * Validation
 */

static foci_status validate(foci_trainer *t)
{
    foci_model  *m = t->model;
    const size_t n = (size_t)m->floats;
    foci_scores  s = { FOCI_SIZED(foci_scores) };

    if (t->ring)
        memcpy(t->ring + (size_t)(t->at.averaged++ % t->o.average) * n, m->params,
               n * sizeof *m->params);
    TRY(foci_evaluate(m, t->valid, t->o.valid_batches, &s));
    t->now.validated = 1;
    t->now.valid_loss = s.loss;
    t->now.valid_accuracy = s.accuracy;
    t->now.best = s.loss < t->at.best;
    t->at.waited = t->now.best ? 0 : t->at.waited + 1;
    if (!t->now.best) return FOCI_OK;
    t->at.best = s.loss;
    t->at.best_step = t->at.step;
    memcpy(t->best, m->params, n * sizeof *m->params);
    return t->o.folder ? model_write_params(m, t->o.folder, t->best, t->at.step)
                       : FOCI_OK;
}

/* The mean of the ring takes the place of the best parameters if it is better. */
static foci_status try_average(foci_trainer *t)
{
    foci_model   *m = t->model;
    const int64_t count = min64(t->at.averaged, t->o.average);
    const size_t  n = (size_t)m->floats;
    foci_scores   s = { FOCI_SIZED(foci_scores) };

    if (count < 2) return FOCI_OK;
    for (int64_t k = 0; k < count; k++)
        TRY(foci_average(m->ctx, m->floats, m->params, t->ring + (size_t)k * n,
                         1 / (double)(k + 1)));
    TRY(foci_evaluate(m, t->valid, t->o.valid_batches, &s));
    if (!(s.loss < t->at.best)) return FOCI_OK;
    t->at.best = s.loss;
    memcpy(t->best, m->params, n * sizeof *m->params);
    return FOCI_OK;
}

/*
 * The loop
 */

static bool finished(const foci_trainer *t)
{
    const foci_train_options *o = &t->o;

    return (o->steps && t->at.step >= o->steps) ||
           (o->tokens && t->at.tokens >= o->tokens) ||
           (o->time_limit > 0 && train_clock() - t->started >= o->time_limit) ||
           (o->patience && t->at.waited >= o->patience);
}

static bool due(const foci_trainer *t, int64_t every)
{
    return t->at.step % every == 0 || finished(t);
}

/* Tell who listens; true: stop. */
static bool report(foci_trainer *t)
{
    foci_progress *p = &t->now;
    const double   done = schedule_done(t), first = (double)t->first_tokens;

    p->step = t->at.step;
    p->steps = t->o.steps;
    p->tokens = t->at.tokens;
    p->seconds = train_clock() - t->started;
    p->tokens_per_second = ((double)t->at.tokens - first) / fmax(p->seconds, 1e-9);
    p->seconds_left = done > 0 ? p->seconds / done * (1 - done) : -1;
    return t->o.progress && t->o.progress(t->o.user, p);
}

static foci_status begin(foci_trainer *t)
{
    t->started = train_clock();
    t->first_tokens = t->at.tokens;
    t->now = (foci_progress){ FOCI_SIZED(foci_progress) };
    if (t->o.folder) folder_clean(t->o.folder);
    if (t->o.folder) TRY(model_write_config(t->model, t->tokenizer, t->o.folder));
    TRY(log_open(t));
    return t->o.events && !t->events
               ? events_open(t->model->ctx, t->o.events, &t->events)
               : FOCI_OK;
}

/* The model gets its best parameters, which the folder has too. */
static foci_status finish(foci_trainer *t)
{
    foci_model *m = t->model;

    t->checksum = checkpoint_sum(t);
    if (t->valid && t->ring) TRY(try_average(t));
    if (t->valid && isfinite(t->at.best))
        memcpy(m->params, t->best, (size_t)m->floats * sizeof *m->params);
    const int64_t step = t->valid ? t->at.best_step : t->at.step;
    return t->o.folder ? model_write_params(m, t->o.folder, m->params, step) : FOCI_OK;
}

foci_status foci_trainer_run(foci_trainer *t)
{
    bool stop = false;

    if (!t)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_trainer_run: the trainer is NULL");
    TRY(begin(t));
    while (!stop && !finished(t)) {
        t->now.validated = t->now.best = 0;
        TRY(train_step(t));
        if (t->valid && due(t, t->o.valid_every)) TRY(validate(t));
        stop = report(t);
        TRY(log_write(t));
        if (t->o.folder && (stop || due(t, t->o.save_every))) TRY(checkpoint_save(t));
    }
    return finish(t);
}
