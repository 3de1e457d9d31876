/* map_scale.c -- from weights to shades.
 *
 * A cell is the mean of its weights, and its shade follows from the mean, so that a picture of
 * many pairs is that of fewer, larger ones.  The weights of a long row are small and would be
 * lost on a straight scale: the preset is that of square roots.
 */
#include <math.h>
#include <stdlib.h>

#include "cli/map.h"
#include "cli/picture.h"

enum {
    DECADES = 4, /* of the logarithmic scale */
    SEEN = 20    /* the shade of a pair that is merely seen */
};

/* What the weights of each row are divided by. */
static double *row_tops(const struct map_panel *p, const struct map_shading *s)
{
    const int64_t len_q = p->of->len_q, len_k = p->of->len_k;
    double       *tops = need((size_t)len_q, sizeof *tops);

    for (int64_t i = 0; i < len_q; i++) {
        tops[i] = s->scale == MAP_ROW && !s->support ? 0 : 1;
        for (int64_t j = 0; j < len_k && s->scale == MAP_ROW; j++)
            tops[i] = fmax(tops[i], fabs((double)p->weights[i * len_k + j]));
        if (tops[i] == 0) tops[i] = 1; /* of a row of zeros */
    }
    return tops;
}

double *map_cells(const struct map_panel *p, const struct map_shading *s, int down,
                  int across, int rows, int columns)
{
    const int64_t len_q = p->of->len_q, len_k = p->of->len_k;
    double       *cells = need((size_t)rows * (size_t)columns, sizeof *cells);
    double       *tops = row_tops(p, s);

    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++) {
            const int64_t i0 = (int64_t)y * down, j0 = (int64_t)x * across;
            double        sum = 0;
            int           n = 0;
            for (int64_t i = i0; i < i0 + down && i < len_q; i++)
                for (int64_t j = j0; j < j0 + across && j < len_k; j++, n++) {
                    const double w = (double)p->weights[i * len_k + j];
                    sum += s->support ? (fabs(w) > 0) : w / tops[i];
                }
            cells[(size_t)y * (size_t)columns + (size_t)x] = sum / n;
        }
    free(tops);
    return cells;
}

/* Where a weight stands on the bar, from 0 to 1; what is too small for it at 0. */
static double share_of(const struct map_shading *s, double weight)
{
    const double at = weight / s->top;

    switch (s->scale) {
    case MAP_SQRT: return sqrt(at);
    case MAP_LOG: return fmax(0, 1 + log10(at) / DECADES);
    case MAP_LINEAR:
    case MAP_ROW: break;
    }
    return at;
}

double map_at_share(const struct map_shading *s, double share)
{
    switch (s->scale) {
    case MAP_SQRT: return s->top * share * share;
    case MAP_LOG: return s->top * pow(10, DECADES * (share - 1));
    case MAP_LINEAR:
    case MAP_ROW: break;
    }
    return s->top * share;
}

uint8_t map_shade(const struct map_shading *s, double cell)
{
    const double size = fabs(cell);

    if (!(size > 0)) return 0;
    if (s->support) return (uint8_t)ceil(SEEN * size);
    const long shade = 1 + lround((SHADES - 2) * fmin(share_of(s, size), 1));
    return (uint8_t)(cell < 0 ? SHADES - 1 + shade : shade);
}

const char *map_scale_name(const struct map_shading *s)
{
    switch (s->scale) {
    case MAP_LINEAR: return ", linear scale";
    case MAP_SQRT: return ", square root scale";
    case MAP_LOG: return ", logarithmic scale";
    case MAP_ROW: return " as a share of the row's largest";
    }
    return "";
}
