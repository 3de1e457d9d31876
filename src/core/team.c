/* team.c -- how many threads may compute in this process.
 *
 * A child that was forked has one thread, the copy of the one that forked.  libgomp does
 * not know that and waits for ever for the others of the team that the parent had.  What
 * it remembers cannot be reset, so such a child computes with the one thread it has; the
 * bits are the same.  A child of a process that had no other threads has lost none.
 */
#include <pthread.h>
#include <stdatomic.h>

#if defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define ALONE (__libc_single_threaded)
#endif
#endif
#ifndef ALONE
#define ALONE false
#endif

#include "core/core.h"

static atomic_bool had_others; /* when this process forked last */
static atomic_bool lost;       /* threads of a team, to a fork */

static void before_fork(void) { atomic_store(&had_others, !ALONE); }

static void in_child(void)
{
    if (atomic_load(&had_others)) atomic_store(&lost, true);
}

/* Who cannot be told of forks has no team that could be lost. */
static void watch_forks(void)
{
    if (pthread_atfork(before_fork, NULL, in_child) != 0) atomic_store(&lost, true);
}

void team_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
}

int team_size(int threads) { return atomic_load(&lost) ? 1 : threads; }
