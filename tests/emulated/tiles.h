/* tiles.h -- level amx on any CPU with AVX512-BF16: its tiles in software (tiles.c).
 *
 * Programs that are linked with it have the level amx everywhere: on the CPU's own tiles
 * where it has some and the system gives them, otherwise emulated.
 */
#ifndef FOCI_EMULATED_TILES_H
#define FOCI_EMULATED_TILES_H

#include "kernels/kernels.h"

/* How tiles are emulated; tests set and read it, while no other thread makes a context. */
struct tile_emulation {
    bool        always;   /* even where the CPU has tiles */
    int         refusal;  /* errno with which they are refused; 0: they are not */
    _Atomic int requests; /* how often they were asked for */
};
extern struct tile_emulation tile_emulation;

/* Whether contexts that are made now have emulated tiles. */
bool tiles_emulated(void);

/* The tiles of this thread, emulated or not, as another library uses them (foreign.c):
 * configured with one tile that holds `value` everywhere, found to be still so, found to
 * be given back, and given back. */
void foreign_set(unsigned char value);
bool foreign_is(unsigned char value);
bool foreign_is_free(void);
void foreign_release(void);

#endif
