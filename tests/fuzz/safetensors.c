/* safetensors.c -- any bytes may be in a .safetensors file; it is refused with a reason,
 * or its arrays can be read.
 *
 * Once as they are, and once with the length of the header put right, up to the last
 * brace, so that headers are read whose length has changed.
 */
#include "fuzz/arrays.h"

enum { LENGTH = 8 };

static void put_length(unsigned char *map, size_t size)
{
    size_t end = size;
    while (end > LENGTH && map[end - 1] != '}')
        end--;
    for (int i = 0; i < LENGTH; i++)
        map[i] = (unsigned char)((uint64_t)(end - LENGTH) >> (8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size <= LENGTH || size > LARGEST) return 0;
    unsigned char *map = malloc(size);
    MUST(map);
    memcpy(map, data, size);
    map[LENGTH] = '{';
    fuzz_read(safetensors_read, map, size);
    put_length(map, size);
    fuzz_read(safetensors_read, map, size);
    free(map);
    return 0;
}
