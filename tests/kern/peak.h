/* peak.h -- checkers of the kernels that say what the machine can do. */
#ifndef FOCI_TESTS_KERN_PEAK_H
#define FOCI_TESTS_KERN_PEAK_H

#include "kern/run.h"

enum { PEAK_SIZE = 256 };

/* Levels have registers of their own, so that what c becomes cannot be compared; but the
 * FLOP they claim to have done must be found in it, as half as many ones. */
static void claim(const struct run *r, const float *c, double flops, int64_t rounds)
{
    double grown = 0;

    for (int i = 0; i < PEAK_SIZE; i++)
        grown += (double)c[i] - i % 7;
    if (flops <= 0 || 2 * grown != flops)
        fail_msg("%s: %s says %.0f FLOP in %d rounds and does %.0f", r->level,
                 kernel_names[r->id], flops, (int)rounds, 2 * grown);
}

static void start(float *c)
{
    for (int i = 0; i < PEAK_SIZE; i++)
        c[i] = (float)(i % 7);
}

static void check_peak_f32(struct run *r)
{
    const int64_t rounds = r->bench ? 1000 : 37;
    float *const  c = floats(r, PEAK_SIZE, NORMAL);
    float *const a = floats(r, PEAK_SIZE, NORMAL), *const b =
                                                       floats(r, PEAK_SIZE, NORMAL);

    snprintf(r->label, sizeof r->label, "%d rounds", (int)rounds);
    r->is_flops = true;
    for (int i = 0; i < PEAK_SIZE && !r->bench; i++)
        a[i] = b[i] = 1.0f;
    start(c);
    r->work = r->now->peak_f32(c, a, b, rounds);
    while (next(r)) {
        if (!r->bench) start(c);
        const double flops = r->k->peak_f32(c, a, b, rounds);
        if (!r->bench) claim(r, c, flops, rounds);
    }
}

static void check_peak_bf16(struct run *r)
{
    struct thread_state before;
    const int64_t       rounds = r->bench ? 1000 : 37;
    float *const        c = floats(r, PEAK_SIZE, NORMAL);
    uint32_t *const     a = take(r, PEAK_SIZE * sizeof *a, false, BYTES);
    uint32_t *const     b = take(r, PEAK_SIZE * sizeof *b, false, BYTES);

    snprintf(r->label, sizeof r->label, "%d rounds", (int)rounds);
    r->is_flops = true;
    for (int i = 0; i < PEAK_SIZE; i++) {
        const uint32_t mantissas = r->bench ? 0x007f007f : 0;
        a[i] = 0x3f803f80 | ((uint32_t)bits(r) & mantissas);
        b[i] = 0x3f803f80 | ((uint32_t)bits(r) & mantissas);
    }
    start(c);
    if (r->now->begin) r->now->begin(&before);
    r->work = r->now->peak_bf16(c, a, b, rounds);
    while (next(r)) {
        if (!r->bench) start(c);
        const double flops = r->k->peak_bf16(c, a, b, rounds);
        if (!r->bench) claim(r, c, flops, rounds);
    }
    if (r->now->end) r->now->end(&before);
}

static void try_read_streams(struct run *r, int64_t bytes, int streams, int ahead)
{
    snprintf(r->label, sizeof r->label, "%d kB, %d streams, %d ahead",
             (int)(bytes / 1024), streams, ahead);
    r->work = (double)bytes;
    r->is_flops = false;
    uint64_t *const in = take(r, (size_t)bytes, false, BYTES);
    uint64_t *const sum = take(r, sizeof *sum, true, BYTES);

    for (int64_t i = 0; i < bytes / 8; i++)
        in[i] = bits(r);
    while (next(r))
        *sum = r->k->read_streams(in, bytes, streams, ahead);
}

static void check_read_streams(struct run *r)
{
    for (int streams = 1; streams <= 8; streams *= 2)
        for (int ahead = 0; ahead <= 1024; ahead += 1024) {
            try_read_streams(r, (int64_t)(r->bench ? 256 : 3) * 256 * streams, streams,
                             ahead);
            if (!r->bench) try_read_streams(r, 0, streams, ahead);
        }
}

#endif
