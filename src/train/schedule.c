/* schedule.c -- how the learning rate rises and falls.
 *
 * It rises in a line over the warm-up.  Then, with p the share of what follows that is done,
 *
 *     cosine   rate (f + (1 - f) (1 + cos(pi p)) / 2), f the final share
 *     root     rate sqrt(warmup / step)
 */
#include <math.h>

#include "train/trainer.h"

double schedule_done(const foci_trainer *t)
{
    const foci_train_options *o = &t->o;

    if (o->steps) return (double)t->at.step / (double)o->steps;
    if (o->tokens) return fmin((double)t->at.tokens / (double)o->tokens, 1);
    if (o->time_limit > 0) return fmin((train_clock() - t->started) / o->time_limit, 1);
    return -1;
}

/* Of the part behind the warm-up; without an end in sight, none of it. */
static double share(const foci_trainer *t)
{
    const double steps = (double)t->o.steps, warm = (double)t->o.warmup;

    if (t->o.steps && steps > warm) return ((double)t->at.step - warm) / (steps - warm);
    return fmax(schedule_done(t), 0);
}

double schedule_rate(const foci_trainer *t)
{
    const foci_train_options *o = &t->o;
    const double step = (double)t->at.step + 1, pi = 3.14159265358979323846;

    if (t->at.step < o->warmup) return o->rate * step / (double)o->warmup;
    switch (o->schedule) {
    case FOCI_SCHEDULE_ROOT: return o->rate * sqrt(fmax((double)o->warmup, 1) / step);
    case FOCI_SCHEDULE_CONSTANT: return o->rate;
    case FOCI_SCHEDULE_COSINE: break;
    }
    const double low = o->final_rate;
    return o->rate * (low + (1 - low) * (1 + cos(pi * share(t))) / 2);
}
