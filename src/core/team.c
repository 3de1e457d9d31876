/* team.c -- how many threads may compute in this process.
 *
 * A forked child has one thread, a copy of the one that forked.  libgomp does not know this
 * and waits for ever for the rest of the parent's team, and its state cannot be reset.  Such a
 * child therefore computes with its one thread, with the same bits.  A child of a process
 * that had no other threads has lost none and may start a team.
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
