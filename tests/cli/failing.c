/* failing.c -- main() of a command whose allocation number $FOCI_TEST_FAIL fails.
 *
 * The number of allocations goes to the file $FOCI_TEST_COUNT.  Measuring the machine
 * takes seconds and is tested elsewhere; here it only succeeds.
 */
#include <stdio.h>
#include <stdlib.h>

#include "foci/foci.h"
#include "support/failing.h"

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

foci_status __wrap_foci_ctx_measure(foci_ctx *ctx, foci_machine *machine);

foci_status __wrap_foci_ctx_measure(foci_ctx *ctx, foci_machine *machine)
{
    (void)ctx;
    machine->f32_flops = machine->bf16_flops = 1e9;
    machine->copy_bytes = machine->read_bytes = 1e9;
    return FOCI_OK;
}

static void report(void)
{
    const char   *path = getenv("FOCI_TEST_COUNT");
    const int64_t count = failing_count();

    failing_at(0, false); /* what the system does at the end may allocate */
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%lld\n", (long long)count);
    fclose(file);
}

int __wrap_main(int argc, char **argv)
{
    const char *n = getenv("FOCI_TEST_FAIL");

    atexit(report);
    failing_at(n ? strtoll(n, NULL, 10) : 0, getenv("FOCI_TEST_EVER") != NULL);
    return __real_main(argc, argv);
}
