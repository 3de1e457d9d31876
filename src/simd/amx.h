/* amx.h -- the tile vocabulary: eight tile registers of 16 rows of 64 bytes, and one product.
 *
 *     tile_config(c)            configure the tiles of this thread, and zero them
 *     tile_config_store(c)      the present configuration; zeros where there is none
 *     tile_release()            release the tiles
 *     tile_zero(t)
 *     tile_load(t, p, stride)   rows `stride` bytes apart
 *     tile_store(t, p, stride)
 *     tile_dp(c, a, b)          c[i][j] += sum over pairs t of a[i][t] b[t][j]
 *     tile_barrier()            ordinary stores above it come before tile loads below
 *
 * Tile numbers are literals.  An element of a and b is a pair of bf16, an element of c a
 * float.  The barrier is for the compiler: gcc's tile load has no memory operand.
 *
 * With FOCI_EMULATE_TILES the same vocabulary is implemented by AVX-512 (amx_emulated.h), so
 * that tests run on CPUs without tiles.
 */
#ifndef FOCI_SIMD_AMX_H
#define FOCI_SIMD_AMX_H

#include <stdint.h>

/* As LDTILECFG reads it. */
struct tile_config {
    _Alignas(64) uint8_t palette; /* 1 */
    uint8_t  start_row;
    uint8_t  reserved[14];
    uint16_t row_bytes[16]; /* of tiles 0 to 7, then zeros */
    uint8_t  rows[16];
};

_Static_assert(sizeof(struct tile_config) == 64, "the hardware's layout");

#define tile_barrier() __asm__ volatile("" ::: "memory")

#ifdef FOCI_EMULATE_TILES

#include "simd/amx_emulated.h"

#else

#include <immintrin.h>

#define tile_config(c)           _tile_loadconfig(c)
#define tile_config_store(c)     _tile_storeconfig(c)
#define tile_release()           _tile_release()
#define tile_zero(t)             _tile_zero(t)
#define tile_load(t, p, stride)  _tile_loadd(t, p, stride)
#define tile_store(t, p, stride) _tile_stored(t, p, stride)
#define tile_dp(c, a, b)         _tile_dpbf16ps(c, a, b)

#endif
#endif
