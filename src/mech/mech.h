/* mech.h -- the descriptors, each in the file of its name. */
#ifndef FOCI_MECH_H
#define FOCI_MECH_H

#include "foci/mechanism.h"

#define MECH(name)     extern const foci_mech_def mech_##name;
#define MODIFIER(name) extern const foci_mod_def mod_##name;
#include "mech/mechanisms.def"
#undef MECH
#undef MODIFIER

enum {
#define MECH(name)
#define MODIFIER(name) MOD_##name,
#include "mech/mechanisms.def"
#undef MECH
#undef MODIFIER
    N_MODS
};

#define N_ELEMENTS(array) (sizeof(array) / sizeof *(array))

/* A required argument has no preset. */
#define REQUIRED ((double)NAN)

#endif
