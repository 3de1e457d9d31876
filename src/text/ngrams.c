/* ngrams.c -- n-grams that two sequences share.
 *
 * The places of a sequence are sorted by the symbols that follow.  This puts its n-grams
 * in order for every n at once, and n-grams of two sequences are matched by one walk along
 * both.  O(n log n), whatever repeats.
 */
#include <stdlib.h>

#include "text/ngrams.h"
#include "text/utf8.h"

foci_status sequence_add(struct sequence *s, int32_t symbol)
{
    TRY(grow(s->ctx, &s->at, &s->cap, s->n + 1, sizeof *s->at));
    s->at[s->n++] = symbol;
    return FOCI_OK;
}

foci_status sequence_close(struct sequence *s)
{
    TRY(grow(s->ctx, &s->at, &s->cap, s->n + NGRAM_MOST, sizeof *s->at));
    for (int i = 0; i < NGRAM_MOST; i++)
        s->at[s->n + i] = NGRAM_END;
    return FOCI_OK;
}

void sequence_free(struct sequence *s)
{
    if (s->at) ctx_free(s->ctx, s->at, (size_t)s->cap, sizeof *s->at);
    *s = (struct sequence){ .ctx = s->ctx };
}

/* Order of the first n symbols; where a sequence ends is before all symbols. */
static int compare(const int32_t *a, const int32_t *b, int n)
{
    for (int i = 0; i < n; i++) {
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
        if (a[i] == NGRAM_END) break;
    }
    return 0;
}

static int by_symbols(const void *x, const void *y)
{
    return compare(*(const int32_t *const *)x, *(const int32_t *const *)y, NGRAM_MOST);
}

static const int32_t **sorted_places(const struct sequence *s)
{
    const int32_t **places = ctx_alloc(s->ctx, (size_t)s->n, sizeof *places);

    if (!places) return NULL;
    for (int64_t i = 0; i < s->n; i++)
        places[i] = s->at + i;
    if (s->n) qsort(places, (size_t)s->n, sizeof *places, by_symbols);
    return places;
}

static int64_t count_shared(const int32_t *const *a, int64_t n_a,
                            const int32_t *const *b, int64_t n_b, int n)
{
    int64_t shared = 0;

    for (int64_t i = 0, j = 0; i < n_a && j < n_b;) {
        const int order = compare(a[i], b[j], n);
        if (order == 0 && a[i][n - 1] != NGRAM_END) shared++;
        i += order <= 0;
        j += order >= 0;
    }
    return shared;
}

foci_status ngrams_match(const struct sequence *a, const struct sequence *b, int order,
                         int64_t *match)
{
    const int32_t **from = sorted_places(a), **in = from ? sorted_places(b) : NULL;

    for (int n = 1; in && n <= order; n++)
        match[n - 1] += count_shared(from, a->n, in, b->n, n);
    const foci_status status = in ? FOCI_OK : FOCI_ERR_MEMORY;
    ctx_free(a->ctx, from, (size_t)a->n, sizeof *from);
    ctx_free(b->ctx, in, (size_t)b->n, sizeof *in);
    return status;
}

bool is_separator(uint32_t c)
{
    return (c >= 0x1c && c <= 0x1f) || char_class(c) == CHAR_SPACE;
}
