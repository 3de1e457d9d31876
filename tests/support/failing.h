/* failing.h -- allocations that fail when told to.
 *
 * A program that is linked with --wrap of the functions in failing.c (tests'
 * CMakeLists.txt) has every allocation of its own and of the static library counted,
 * and jansson's after failing_json(). */
#ifndef FOCI_FAILING_H
#define FOCI_FAILING_H

#include <stdbool.h>
#include <stdint.h>

/* Allocation number n from now on fails, and with `ever` all after it; 0: none. */
void failing_at(int64_t n, bool ever);

/* Allocations since; and blocks that are allocated and not freed. */
int64_t failing_count(void);
int64_t failing_live(void);

void failing_json(void);

#endif
