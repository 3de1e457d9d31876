/* refusals.c -- whatever public function refuses its arguments says why, in a sentence of its
 * own.  The functions are those of refusals.def; the headers say whether one is missing there. */
#include "test.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>

#include "foci/analyse.h"
#include "foci/data.h"
#include "foci/file.h"
#include "foci/layer.h"
#include "foci/ops.h"
#include "foci/product.h"
#include "foci/text.h"
#include "foci/train.h"

static const foci_string nothing = { NULL, 0 };

#define CALL(name, arguments)                                                          \
    static foci_status call_##name(void) { return name arguments; }
#include "refusals.def"
#undef CALL

static const struct call {
    const char *name;
    foci_status (*run)(void);
} calls[] = {
#define CALL(name, arguments) { #name, call_##name },
#include "refusals.def"
#undef CALL
};

enum { N_CALLS = sizeof calls / sizeof *calls };

/* Leaves a message that no other call leaves. */
static void fail_before(foci_ctx *ctx)
{
    foci_problem p = { FOCI_SIZED(foci_problem), .len_q = 1, .dim_qk = 1 };
    foci_plan   *plan;

    assert_int_not_equal(foci_plan_create(ctx, "older", &p, &plan), FOCI_OK);
    assert_non_null(strstr(foci_errmsg(NULL), "older"));
}

static void every_refusal_has_a_message(void **state)
{
    for (int i = 0; i < N_CALLS; i++) {
        fail_before(*state);
        const foci_status status = calls[i].run();
        const char       *message = foci_errmsg(NULL);
        if (status == FOCI_OK) fail_msg("%s takes NULL", calls[i].name);
        if (!*message || strstr(message, "older"))
            fail_msg("%s leaves \"%s\"", calls[i].name, message);
    }
}

static bool is_listed(const char *name, size_t len)
{
    for (int i = 0; i < N_CALLS; i++)
        if (strlen(calls[i].name) == len && !memcmp(calls[i].name, name, len))
            return true;
    return false;
}

static char *read_header(const char *name)
{
    char  path[300];
    char *text = test_alloc(1 << 20, 1);

    snprintf(path, sizeof path, "include/foci/%s", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, (1 << 20) - 1, f)] = 0;
    fclose(f);
    return text;
}

/* Functions of a header that return a status; each has to be in the list. */
static int count_functions(const char *header)
{
    static const char start[] = "FOCI_API foci_status";
    char             *text = read_header(header);
    int               n = 0;

    for (const char *at = text; (at = strstr(at, start)); n++) {
        at += strlen(start);
        while (isspace((unsigned char)*at))
            at++;
        const size_t len = strcspn(at, "( \n");
        if (!is_listed(at, len))
            fail_msg("%s: %.*s is not in refusals.def", header, (int)len, at);
    }
    free(text);
    return n;
}

static void every_function_is_listed(void **state)
{
    DIR           *dir = opendir("include/foci");
    struct dirent *entry;
    int            n = 0;

    (void)state;
    assert_non_null(dir);
    while ((entry = readdir(dir)))
        if (strstr(entry->d_name, ".h")) n += count_functions(entry->d_name);
    closedir(dir);
    assert_int_equal(n, N_CALLS);
}

static int setup(void **state)
{
    *state = test_ctx(NULL, 1);
    return 0;
}

static int teardown(void **state)
{
    foci_ctx_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_refusal_has_a_message),
        cmocka_unit_test(every_function_is_listed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
