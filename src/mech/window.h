/* window.h -- keys within a distance, all or every so many: local and global. */
#ifndef FOCI_WINDOW_H
#define FOCI_WINDOW_H

#include "mech/mech.h"

/* |i - j| <= width dilation, and dilation divides i - j. */
struct window {
    int64_t width, dilation;
};

static inline int64_t window_reach(struct window w) { return w.width * w.dilation; }

static inline uint64_t window_mask(struct window w, int64_t i, int64_t j0)
{
    const int64_t    reach = window_reach(w), step = w.dilation;
    const foci_range near = { i - reach, i + reach + 1 };
    uint64_t         seen = 0;

    if (step == 1) return foci_bits_in(near, j0);
    /* The first key from j0 on that has the query's remainder. */
    int64_t t = (i - j0) % step;
    if (t < 0) t += step;
    for (; t < FOCI_TILE; t += step)
        seen |= UINT64_C(1) << t;
    return seen & foci_bits_in(near, j0);
}

/* Far apart, the keys of 64 neighbours are runs of 64 at every step. */
static inline void window_tiles(struct window w, int64_t len, foci_range rows,
                                foci_tile_list *out)
{
    const int64_t    reach = window_reach(w), step = w.dilation;
    const foci_range hull = { rows.begin - reach, rows.end + reach };
    const foci_range core = { rows.end - 1 - reach, rows.begin + reach + 1 };

    if (step <= FOCI_TILE) {
        foci_tiles_cover(out, hull, step == 1 ? core : (foci_range){ 0, 0 });
        return;
    }
    const int64_t back = rows.end / step, on = (len - rows.begin) / step;
    for (int64_t t = w.width < back ? -w.width : -back; t <= w.width && t <= on; t++)
        foci_tiles_cover(out, (foci_range){ rows.begin + t * step, rows.end + t * step },
                         (foci_range){ 0, 0 });
}

#endif
