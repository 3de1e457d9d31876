/* cpus.c -- the processors this process may run on, and the size of their second-level cache. */
#if defined(__linux__)
#define _GNU_SOURCE
#include <sched.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include "core/core.h"

/* The affinity mask first: a container or taskset may leave us fewer than the
 * machine has. */
int cpu_count(void)
{
    long n = 0;
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
#endif
#if defined(_SC_NPROCESSORS_ONLN)
    if (n < 1) n = sysconf(_SC_NPROCESSORS_ONLN);
#endif
    if (n < 1) return 1;
    return n < MAX_THREADS ? (int)n : MAX_THREADS;
}

int64_t cpu_l2_bytes(void)
{
#if defined(_SC_LEVEL2_CACHE_SIZE)
    return max64(0, sysconf(_SC_LEVEL2_CACHE_SIZE));
#else
    return 0;
#endif
}
