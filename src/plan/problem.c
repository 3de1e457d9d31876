/* problem.c -- shapes as text, "b2h8k2n4096m4096d64v64c" (docs/specs.md). */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

enum { BATCH, HEADS, KV_HEADS, LEN_Q, LEN_K, DIM_QK, DIM_V, N_LETTERS };

static const char letters[] = "bhknmdvc";

/* A letter that has no preset. */
enum { NO_PRESET = -1 };

/* In the order of the text.  A letter left out takes the value of `like`, or the
 * preset; with neither it must be there. */
static const struct field {
    const char *name;
    size_t      offset;
    int64_t     min, max;
    int64_t     preset;
    int         like; /* -1: none */
} fields[N_LETTERS] = {
    [BATCH] = { "batch", offsetof(foci_problem, batch), 1, INT32_MAX, 1, -1 },
    [HEADS] = { "heads", offsetof(foci_problem, heads), 1, 65536, 1, -1 },
    [KV_HEADS] = { "key heads", offsetof(foci_problem, kv_heads), 1, 65536, 0, -1 },
    [LEN_Q] = { "query length", offsetof(foci_problem, len_q), 1, MAX_LEN, NO_PRESET,
                -1 },
    [LEN_K] = { "key length", offsetof(foci_problem, len_k), 1, MAX_LEN, NO_PRESET,
                LEN_Q },
    [DIM_QK] = { "key width", offsetof(foci_problem, dim_qk), 1, 65536, NO_PRESET, -1 },
    [DIM_V] = { "value width", offsetof(foci_problem, dim_v), 1, 65536, NO_PRESET,
                DIM_QK },
};

/* Digits at *s, moving past them; -1 when there are none or too many. */
static int64_t read_digits(const char **s)
{
    int64_t n = **s >= '0' && **s <= '9' ? 0 : -1;
    for (; **s >= '0' && **s <= '9'; (*s)++)
        if (n < INT64_MAX / 20) n = 10 * n + (**s - '0');
    return n;
}

static foci_status read_field(foci_ctx *ctx, const char *text, const char **s, int i,
                              int64_t *value)
{
    const struct field *f = &fields[i];
    const char         *start = *s;

    if (*start != letters[i]) {
        if (f->like < 0 && f->preset == NO_PRESET)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "problem \"%.60s\", column %d: %c, the %s, is wanted here",
                            text, (int)(start - text) + 1, letters[i], f->name);
        *value = f->like >= 0 ? value[f->like - i] : f->preset;
        return FOCI_OK;
    }
    (*s)++;
    *value = read_digits(s);
    if (*s == start + 1)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "problem \"%.60s\", column %d: a number from %lld to %lld is "
                        "wanted here, for %c, the %s",
                        text, (int)(*s - text) + 1, (long long)f->min,
                        (long long)f->max, letters[i], f->name);
    if (*value < f->min || *value > f->max)
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "problem \"%.60s\", column %d: %.*s: %c, the %s, goes from %lld to %lld",
            text, (int)(start - text) + 1, (int)min64(*s - start, 40), start,
            letters[i], f->name, (long long)f->min, (long long)f->max);
    return FOCI_OK;
}

foci_status foci_problem_parse(foci_ctx *ctx, const char *text, foci_problem *problem)
{
    if (!text || !problem)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "foci_problem_parse: no text, or no place for the problem");

    const char *s = text;
    int64_t     value[N_LETTERS];
    for (int i = 0; i < N_LETTERS; i++)
        TRY(read_field(ctx, text, &s, i, &value[i]));
    const bool causal = *s == 'c';
    s += causal;
    if (*s)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "problem \"%.60s\", column %d: unexpected \"%.20s\"; the "
                        "letters are %s, in this order",
                        text, (int)(s - text) + 1, s, letters);

    for (int i = 0; i < N_LETTERS; i++)
        memcpy((char *)problem + fields[i].offset, &value[i], sizeof value[i]);
    problem->flags = (problem->flags & ~(uint32_t)FOCI_FLAG_CAUSAL) |
                     (causal ? FOCI_FLAG_CAUSAL : 0);
    return FOCI_OK;
}

/* Canonical: letters that the others imply are left out. */
int foci_problem_print(const foci_problem *problem, char *text, size_t cap)
{
    char    full[N_LETTERS * 24] = "";
    int     len = 0;
    int64_t value[N_LETTERS];

    for (int i = 0; i < N_LETTERS; i++) {
        const struct field *f = &fields[i];
        memcpy(&value[i], (const char *)problem + f->offset, sizeof value[i]);
        const int64_t implied = f->like >= 0 ? value[f->like] : f->preset;
        if (!value[i] && implied > 0) value[i] = implied; /* 0 is the default */
        if (value[i] != implied)
            len += snprintf(full + len, sizeof full - (size_t)len, "%c%lld", letters[i],
                            (long long)value[i]);
    }
    return snprintf(text, cap, "%s%s", full,
                    problem->flags & FOCI_FLAG_CAUSAL ? "c" : "");
}
