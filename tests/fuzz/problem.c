/* problem.c -- any text may be given as a problem; it is refused with a reason, or says
 * the same after printing. */
#include "fuzz/fuzz.h"

enum { CAP = 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    foci_ctx    *ctx = fuzz_ctx();
    foci_problem p = { FOCI_SIZED(foci_problem), .memory = 7, .flags = FOCI_FLAG_TRAIN };
    foci_problem       again = p;
    const foci_problem before = p;
    char               text[CAP], once[CAP], twice[CAP];

    if (size >= sizeof text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (foci_problem_parse(ctx, text, &p) != FOCI_OK) {
        fuzz_message(ctx);
        MUST(memcmp(&p, &before, sizeof p) == 0);
        return 0;
    }
    const int n = foci_problem_print(&p, once, sizeof once);
    MUST(n > 0 && strlen(once) == (size_t)n && (size_t)n <= strlen(text));
    MUST(foci_problem_parse(NULL, once, &again) == FOCI_OK);
    MUST(memcmp(&p, &again, sizeof p) == 0);
    MUST(foci_problem_print(&again, twice, sizeof twice) == n);
    MUST(strcmp(once, twice) == 0);

    /* What a plan makes of these sizes it says, or refuses. */
    foci_plan *plan;
    if (foci_plan_create(ctx, "softmax", &p, &plan) == FOCI_OK) {
        foci_problem_print(&p, twice, sizeof twice);
        MUST(foci_plan_work_bytes(plan) % 64 == 0);
    } else {
        fuzz_message(ctx);
    }
    foci_plan_free(plan);
    return 0;
}
