/* tiles.c -- tiles in software for whole programs: who links this file and wraps the
 * two functions below has level amx everywhere.
 *
 * kernels/amx.c is compiled once more with FOCI_EMULATE_TILES, and its table has the name
 * kernels_amx_emulated().
 */
#include <stdatomic.h>

#include "emulated/tiles.h"
#include "simd/amx.h"

struct tile_emulation          tile_emulation;
_Thread_local struct tile_unit tile_unit;

const char *__real_tiles_why_not(bool in_cpu, bool saved);
void        __real_kernels_amx(struct kernels *k);
const char *__wrap_tiles_why_not(bool in_cpu, bool saved);
void        __wrap_kernels_amx(struct kernels *k);
void        kernels_amx_emulated(struct kernels *k);

static _Atomic bool in_hardware; /* as a context found it */

bool tiles_emulated(void) { return tile_emulation.always || !in_hardware; }

const char *__wrap_tiles_why_not(bool in_cpu, bool saved)
{
    in_hardware = in_cpu && saved;
    if (!tiles_emulated()) return __real_tiles_why_not(in_cpu, saved);
    tile_emulation.requests++;
    return tiles_refused(tile_emulation.refusal);
}

void __wrap_kernels_amx(struct kernels *k)
{
    if (tiles_emulated())
        kernels_amx_emulated(k);
    else
        __real_kernels_amx(k);
}
