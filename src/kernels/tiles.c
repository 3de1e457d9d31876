/* tiles.c -- whether this process may use AMX tiles.
 *
 * Linux grants the tile registers on request, for the whole process and the children that it
 * forks; repeating the request is harmless, so there is no state to guard.  The price: from
 * then on every alternate signal stack must be large enough for the tiles.  Contexts
 * that do not use tiles therefore make no request.
 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1 /* syscall() */
#endif

#include <errno.h>
#include <stddef.h>

#include "kernels/kernels.h"

const char *tiles_refused(int error)
{
    switch (error) {
    case 0: return NULL;
    case ENOSPC:
        return "tiles refused: a thread's alternate signal stack is too small for them";
    case EINVAL: return "tiles refused: the kernel is older than Linux 5.16";
    case EOPNOTSUPP: return "tiles refused: the kernel has them switched off";
    case ENOSYS:
    case EACCES:
    case EPERM: return "tiles refused: a sandbox forbids to ask for them (arch_prctl)";
    default: return "tiles refused: the system gives no reason that is known";
    }
}

#if defined(__x86_64__) && defined(__linux__)

#include <sys/syscall.h>
#include <unistd.h>

enum { XCOMP_GET_PERM = 0x1022, XCOMP_REQ_PERM = 0x1023, TILE_DATA = 18 };

/* 0, or an errno. */
static int request_tiles(void)
{
    const int     before = errno;
    unsigned long mask = 0;
    int           error = 0;

    if (syscall(SYS_arch_prctl, XCOMP_REQ_PERM, TILE_DATA) != 0 ||
        syscall(SYS_arch_prctl, XCOMP_GET_PERM, &mask) != 0)
        error = errno;
    else if (!(mask >> TILE_DATA & 1))
        error = EOPNOTSUPP;
    errno = before;
    return error;
}

#else

static int request_tiles(void) { return ENOSYS; }

#endif

const char *tiles_why_not(bool in_cpu, bool saved)
{
    if (!in_cpu) return "the CPU lacks AMX-TILE or AMX-BF16";
    if (!saved) return "the system does not save tiles";
    return tiles_refused(request_tiles());
}
