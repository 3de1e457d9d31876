/* log.c -- a line of JSON for each step, and the same numbers for TensorBoard. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "train/trainer.h"

foci_status log_open(foci_trainer *t)
{
    if (!t->o.log || t->log) return FOCI_OK;
    t->log = fopen(t->o.log, t->at.step ? "a" : "w");
    return t->log ? FOCI_OK
                  : file_fail(t->model->ctx, t->o.log, "cannot be opened: %s",
                              strerror(errno));
}

/* JSON has no infinities. */
static void put_number(FILE *f, const char *name, double x)
{
    if (isfinite(x))
        fprintf(f, ",\"%s\":%.9g", name, x);
    else
        fprintf(f, ",\"%s\":null", name);
}

static foci_status write_line(foci_trainer *t)
{
    const foci_progress *p = &t->now;

    fprintf(t->log, "{\"step\":%lld,\"tokens\":%lld", (long long)p->step,
            (long long)p->tokens);
    put_number(t->log, "loss", p->loss);
    put_number(t->log, "rate", p->rate);
    put_number(t->log, "gradient", p->gradient);
    put_number(t->log, "seconds", p->seconds);
    put_number(t->log, "tokens_per_second", p->tokens_per_second);
    if (p->validated) {
        put_number(t->log, "valid_loss", p->valid_loss);
        put_number(t->log, "valid_accuracy", p->valid_accuracy);
        fprintf(t->log, ",\"best\":%s", p->best ? "true" : "false");
    }
    fprintf(t->log, "}\n");
    if (fflush(t->log) == 0 && !ferror(t->log)) return FOCI_OK;
    return file_fail(t->model->ctx, t->o.log, "cannot be written: %s", strerror(errno));
}

static foci_status write_events(foci_trainer *t)
{
    const foci_progress *p = &t->now;

    TRY(events_add(t->events, p->step, "train/loss", p->loss));
    TRY(events_add(t->events, p->step, "train/rate", p->rate));
    TRY(events_add(t->events, p->step, "train/gradient", p->gradient));
    TRY(events_add(t->events, p->step, "train/tokens_per_second", p->tokens_per_second));
    if (!p->validated) return FOCI_OK;
    TRY(events_add(t->events, p->step, "valid/loss", p->valid_loss));
    TRY(events_add(t->events, p->step, "valid/accuracy", p->valid_accuracy));
    return events_flush(t->events);
}

foci_status log_write(foci_trainer *t)
{
    if (t->log) TRY(write_line(t));
    return t->events ? write_events(t) : FOCI_OK;
}

void log_close(foci_trainer *t)
{
    if (t->log) fclose(t->log);
    t->log = NULL;
}
