/* npy.c -- any bytes may be in a .npy file; it is refused with a reason, or its array
 * can be read.  The bytes by which the format is known are put in place. */
#include "fuzz/arrays.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MAGIC = 6 };

    if (size < MAGIC || size > LARGEST) return 0;
    unsigned char *map = malloc(size);
    MUST(map);
    memcpy(map, data, size);
    memcpy(map, "\x93NUMPY", MAGIC);
    fuzz_read(npy_read, map, size);
    free(map);
    return 0;
}
