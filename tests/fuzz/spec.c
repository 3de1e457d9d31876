/* spec.c -- any text may be given as a spec and a problem; it is refused or planned.
 *
 * Input: a spec, a newline, a problem.  What is planned must print, and what it prints
 * must parse to the same text again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "foci/foci.h"

enum { CAP = 4096, LONGEST = 100000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Lengths that would only make planning slow are not what is looked for. */
static int too_large(const foci_problem *p)
{
    return p->len_q > LONGEST || p->len_k > LONGEST || p->heads > 64 || p->batch > 64;
}

static void replan(foci_ctx *ctx, const foci_plan *plan, const foci_problem *p)
{
    char       once[CAP], twice[CAP];
    foci_plan *again;
    if (foci_plan_spec(plan, once, sizeof once) >= CAP) return;
    if (foci_plan_create(ctx, once, p, &again) != FOCI_OK) abort();
    foci_plan_spec(again, twice, sizeof twice);
    if (strcmp(once, twice) != 0) abort();
    foci_plan_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[CAP];
    if (size >= sizeof text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    char *problem = strchr(text, '\n');
    if (!problem) return 0;
    *problem++ = '\0';

    foci_ctx    *ctx;
    foci_plan   *plan;
    foci_problem p = { FOCI_SIZED(foci_problem) };
    if (foci_ctx_create(NULL, &ctx) != FOCI_OK) abort();
    if (foci_problem_parse(ctx, problem, &p) == FOCI_OK && !too_large(&p) &&
        foci_plan_create(ctx, text, &p, &plan) == FOCI_OK) {
        replan(ctx, plan, &p);
        foci_plan_free(plan);
    }
    foci_ctx_free(ctx);
    return 0;
}
