/* blocks.c -- the sequence of blocks of the source, and of passes. */
#include "data/data.h"

/* What was read to its end is what every pass has. */
static foci_status end_counts(foci_data *d)
{
    const bool same = d->known.tokens == d->seen.tokens &&
                      d->known.dropped == d->seen.dropped &&
                      d->known.cut == d->seen.cut;

    if (!d->block.last) return FOCI_OK;
    if (d->counted && !same)
        return lines_fail(
            &d->lines[0], NULL,
            "has %lld tokens where it had %lld in the pass before: it was "
            "changed while it is in use",
            (long long)d->seen.tokens, (long long)d->known.tokens);
    d->known = d->seen;
    d->counted = true;
    return FOCI_OK;
}

/* Rows that the batches of the block have in all. */
static int64_t count_rows(const foci_data *d)
{
    if (is_segments(d)) return d->plan.n_batches * d->o.batch;
    return d->plan.order.n;
}

foci_status blocks_fill(foci_data *d)
{
    d->earlier = d->seen;
    d->block.taken = 0;
    TRY(d->supply->fill(d));
    d->content = content_sum(d);
    TRY(plan_make(d));
    d->seen.examples += count_rows(d);
    d->seen.batches += d->plan.n_batches;
    d->next = 0;
    d->begun = true;
    d->whole = d->block.last && d->block.index == 0;
    return end_counts(d);
}

foci_status blocks_begin(foci_data *d, int64_t pass)
{
    d->pass = pass;
    d->index = d->next = 0;
    d->over = false;
    if (d->whole) {
        TRY(plan_make(d));
        d->known.batches = d->plan.n_batches;
        d->known.examples = count_rows(d);
        return FOCI_OK;
    }
    if (d->begun) TRY(d->supply->rewind(d));
    d->begun = true;
    d->block = (struct data_block){ .before = d->bos };
    d->seen = (struct data_totals){ 0 };
    return blocks_fill(d);
}

foci_status blocks_next(foci_data *d)
{
    d->block.begin += d->block.taken;
    d->block.before = d->block.after;
    d->block.index++;
    return blocks_fill(d);
}
