/* sees.c -- which columns a query sees, and how often each counts.
 *
 * The last query stands at the last key.  A mechanism speaks of places from 0 on; a
 * query before the first key sees nothing by its masks.
 */
#include <string.h>

#include "ref/ref.h"

static int64_t place_of(const struct ref_head *h, int64_t i)
{
    return i + h->nk - h->nq;
}

/* Bit t of what a mask says of place and keys, or slots, j0 + t. */
static uint64_t mask_of(const struct ref_head *h, int level, int64_t place, int64_t j0)
{
    const foci_mech *m = &h->mech;

    if (place < 0) return 0;
    return level < 0 ? m->def->mask(m, place, j0)
                     : m->def->slot_mask(m, level, place, j0);
}

/* By the problem alone. */
static bool allowed(const struct ref_head *h, int64_t i, int64_t j)
{
    if (h->causal && j > place_of(h, i)) return false;
    return !h->p->mask || h->p->mask[i * h->ld + j];
}

static void clear(const struct ref_head *h, struct ref_row *r)
{
    memset(r->times, 0, (size_t)h->cols * sizeof *r->times);
    memset(r->held, 0, (size_t)h->cols);
    r->visible = 0;
}

static void count(const struct ref_head *h, struct ref_row *r)
{
    for (int64_t j = 0; j < h->cols; j++)
        r->visible += r->times[j] > 0;
}

static void see_keys(const struct ref_head *h, int64_t i, struct ref_row *r)
{
    const foci_mech_def *def = h->mech.def;
    const int64_t        place = place_of(h, i);
    uint64_t             seen = def->order ? 0 : ~UINT64_C(0), stop = 0;

    for (int64_t j = 0; j < h->nk; j++) {
        const int64_t t = j % FOCI_TILE;
        if (t == 0 && def->mask) seen = mask_of(h, -1, place, j);
        if (t == 0 && def->stop && place >= 0) stop = def->stop(&h->mech, place, j);
        if (!allowed(h, i, j)) continue;
        const uint32_t agree = ref_labels_agree(h, i, j);
        if (agree || seen >> t & 1)
            r->times[j] = agree && h->order.weigh_repeats ? agree : 1;
        r->held[j] = stop >> t & 1;
    }
}

static void see_slots(const struct ref_head *h, int64_t i, struct ref_row *r)
{
    const int64_t place = place_of(h, i);
    uint64_t      seen = 0;

    for (int l = 0; l < h->n_levels; l++)
        for (int64_t c = h->first[l]; c < h->first[l + 1]; c++) {
            const int64_t s = c - h->first[l], t = s % FOCI_TILE;
            if (t == 0)
                seen = h->levels[l].all ? ~UINT64_C(0) : mask_of(h, l, place, s);
            if (h->causal && ref_slot_keys(h, c).end > place + 1) continue;
            r->times[c] = seen >> t & 1;
        }
}

void ref_see(const struct ref_head *h, int64_t i, struct ref_row *r)
{
    const int64_t self = place_of(h, i);

    clear(h, r);
    see_keys(h, i, r);
    if (!h->two_pass) see_slots(h, i, r);
    count(h, r);
    if (h->order.shared_qk && r->visible > 1 && r->times[self]) {
        r->times[self] = 0;
        r->visible--;
    }
}

void ref_see_topk(const struct ref_head *h, int64_t i, int64_t t, struct ref_row *r)
{
    clear(h, r);
    for (int64_t j = 0; j < h->nk; j++)
        r->times[j] = allowed(h, i, j) && h->topk_k[t * h->nk + j];
    count(h, r);
}

/* Slots of runs before the query's own, or all. */
void ref_see_slots(const struct ref_head *h, int64_t i, struct ref_row *r)
{
    const int64_t own = place_of(h, i) / h->levels[0].run_len;

    clear(h, r);
    for (int64_t c = h->first[0]; c < h->first[1]; c++)
        r->times[c] = !h->causal || c - h->first[0] < own;
    count(h, r);
}
