/* foreign.c -- tiles of a thread as a library beside this one uses them.
 *
 * Instructions are spelled out: a file that is compiled for CPUs with tiles could not
 * run on others.
 */
#include <stddef.h>
#include <string.h>

#include "emulated/tiles.h"
#include "simd/amx.h"

enum { TILE = 2, ROWS = 5, BYTES = 24, ROW = 64 };

static const struct tile_config shapes = {
    .palette = 1,
    .row_bytes = { [TILE] = BYTES },
    .rows = { [TILE] = ROWS },
};

static void set_config(const struct tile_config *c)
{
    if (tiles_emulated())
        tile_config(c);
    else
        __asm__ volatile("ldtilecfg %0" : : "m"(*c) : "memory");
}

static void get_config(struct tile_config *c)
{
    if (tiles_emulated())
        tile_config_store(c);
    else
        __asm__ volatile("sttilecfg %0" : "=m"(*c) : : "memory");
}

static void load(const unsigned char *p)
{
    if (tiles_emulated())
        tile_load(TILE, p, ROW);
    else
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm2"
                         :
                         : "r"(p), "r"((int64_t)ROW)
                         : "memory");
}

static void store(unsigned char *p)
{
    if (tiles_emulated())
        tile_store(TILE, p, ROW);
    else
        __asm__ volatile("tilestored %%tmm2, (%0,%1,1)"
                         :
                         : "r"(p), "r"((int64_t)ROW)
                         : "memory");
}

void foreign_release(void)
{
    if (tiles_emulated())
        tile_release();
    else
        __asm__ volatile("tilerelease" : : : "memory");
}

void foreign_set(unsigned char value)
{
    _Alignas(64) unsigned char x[ROWS * ROW];

    memset(x, value, sizeof x);
    set_config(&shapes);
    load(x);
}

bool foreign_is(unsigned char value)
{
    _Alignas(64) unsigned char x[ROWS * ROW] = { 0 };
    struct tile_config         c;

    get_config(&c);
    if (memcmp(&c, &shapes, sizeof c) != 0) return false;
    store(x);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < BYTES; j++)
            if (x[i * ROW + j] != value) return false;
    return true;
}

bool foreign_is_free(void)
{
    struct tile_config c;

    get_config(&c);
    return c.palette == 0;
}
