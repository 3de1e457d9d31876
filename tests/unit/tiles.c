/* tiles.c -- tiles are asked for when they are used, their refusal has a reason, and
 * those of a caller's thread are left as they were found. */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* sigaltstack() */
#endif

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/scenes.h"

#ifdef FOCI_TILES_EMULATED

#include "emulated/tiles.h"

static const char *state_of(const foci_ctx *ctx, enum level level)
{
    const char *state = NULL;

    foci_cpu_level(ctx, (int)level, &state);
    return state;
}

/* The level that a context computes on. */
static const char *chosen(const foci_ctx *ctx)
{
    const char *name, *state;

    for (int i = 0; (name = foci_cpu_level(ctx, i, &state)); i++)
        if (strcmp(state, "chosen") == 0) break;
    assert_non_null(name);
    return name;
}

/* The same bits as in a context of the same level that was asked for. */
static bool as_asked_for(foci_ctx *ctx, int threads)
{
    foci_ctx  *asked = test_ctx(chosen(ctx), threads);
    const bool same = scenes_run(ctx) == scenes_run(asked);

    foci_ctx_free(asked);
    return same;
}

/* Whether this CPU can run the level at all. */
static bool has_level;

static void look(void)
{
    foci_ctx *ctx = test_ctx("avx512bf16", 1);
    has_level = strcmp(state_of(ctx, LEVEL_BF16), "chosen") == 0;
    foci_ctx_free(ctx);
}

/* Programs have alternate signal stacks that are too small for tiles. */
static bool small_stack(void)
{
    static char   memory[8192];
    const stack_t stack = { .ss_sp = memory, .ss_size = sizeof memory };
    return sigaltstack(&stack, NULL) == 0;
}

/* On the CPU's own tiles: a context below them leaves the stack possible; one that wants
 * them is refused them after it, says so, and computes. */
static int with_small_stack(void)
{
    foci_ctx_free(test_ctx("avx512bf16", 1));
    if (!small_stack()) return 1;

    foci_ctx   *ctx = test_ctx(NULL, 1);
    const char *why = state_of(ctx, LEVEL_AMX);
    if (tiles_emulated()) return strcmp(why, "chosen") == 0 ? 0 : 2;
    if (!strstr(why, "signal stack")) return 3;
    return as_asked_for(ctx, 1) ? 0 : 4;
}

static void small_stacks(void **state)
{
    int status = 0;

    (void)state;
    if (!has_level) skip();
    fflush(stdout);
    const pid_t pid = fork(); /* what the system has granted it does not take back */
    if (pid == 0) _exit(with_small_stack());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void asked_when_used(void **state)
{
    (void)state;
    if (!has_level) skip();
    tile_emulation.always = true;
    tile_emulation.requests = 0;
    for (int l = LEVEL_PORTABLE; l < LEVEL_AMX; l++)
        foci_ctx_free(test_ctx(level_names[l], 1));
    setenv("FOCI_CPU", "avx512", 1);
    foci_ctx_free(test_ctx(NULL, 1));
    unsetenv("FOCI_CPU");
    assert_int_equal(tile_emulation.requests, 0);
    foci_ctx_free(test_ctx(NULL, 1));
    foci_ctx_free(test_ctx("amx", 1));
    assert_int_equal(tile_emulation.requests, 2);
    tile_emulation.always = false;
}

static void refused(void **state)
{
    static const struct {
        int         error;
        const char *why;
    } cases[] = {
        { ENOSPC, "signal stack" },      { EINVAL, "older" },
        { EOPNOTSUPP, "off" },           { EPERM, "sandbox" },
        { ENOSYS, "sandbox" },           { EACCES, "sandbox" },
        { ENOMEM, "no reason that is" },
    };
    (void)state;
    if (!has_level) skip();
    tile_emulation.always = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tile_emulation.refusal = cases[i].error;
        foci_ctx *ctx = test_ctx(NULL, 2);
        assert_non_null(strstr(state_of(ctx, LEVEL_AMX), cases[i].why));
        if (i == 0) assert_true(as_asked_for(ctx, 2));
        foci_ctx_free(ctx);
    }
    tile_emulation.refusal = 0;
    tile_emulation.always = false;
}

/* The thread that calls works along. */
static void leave_as_found(int threads)
{
    foci_ctx      *ctx = test_ctx(NULL, threads);
    const uint64_t want = scenes_run(ctx);

    assert_string_equal(state_of(ctx, LEVEL_AMX), "chosen");
    assert_true(foreign_is_free());
    for (unsigned char value = 5; value < 7; value++) {
        foreign_set(value);
        assert_true(scenes_run(ctx) == want);
        assert_true(foreign_is(value));
    }
    foreign_release();
    assert_true(scenes_run(ctx) == want);
    assert_true(foreign_is_free());
    foci_ctx_free(ctx);
}

static void foreign(void **state)
{
    (void)state;
    if (!has_level) skip();
    for (int threads = 1; threads <= 2; threads++) {
        leave_as_found(threads);
        if (tiles_emulated()) continue;
        tile_emulation.always = true;
        leave_as_found(threads);
        tile_emulation.always = false;
    }
}

/* What the emulation computes is what the CPU's own tiles do. */
static void same_bits(void **state)
{
    (void)state;
    foci_ctx *own = test_ctx(NULL, 1);
    if (!has_level || tiles_emulated()) {
        foci_ctx_free(own);
        skip();
    }
    tile_emulation.always = true;
    foci_ctx *emulated = test_ctx(NULL, 1);
    assert_true(scenes_run(emulated) == scenes_run(own));
    tile_emulation.always = false;
    foci_ctx_free(own);
    foci_ctx_free(emulated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_stacks), /* before any tiles are granted */
        cmocka_unit_test(asked_when_used), cmocka_unit_test(refused),
        cmocka_unit_test(foreign),         cmocka_unit_test(same_bits),
    };
    look();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    printf("no tiles on this architecture\n");
    return 0;
}

#endif
