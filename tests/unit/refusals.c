/* refusals.c -- whatever public function refuses its arguments says why, in a sentence of its
 * own, and so does every struct whose size was never given out.  Functions and structs are
 * those of refusals.def; the headers say whether one is missing there. */
#include "test.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "foci/analyse.h"
#include "foci/data.h"
#include "foci/file.h"
#include "foci/layer.h"
#include "foci/ops.h"
#include "foci/product.h"
#include "foci/stats.h"
#include "foci/text.h"
#include "foci/train.h"

/* What the calls are given. */
static struct {
    foci_ctx       *ctx;
    foci_plan      *plan;
    foci_pool      *pool;
    foci_layer     *layer;
    foci_data      *data;
    foci_tokenizer *tokenizer;
    foci_file      *file;
    foci_model     *writer, *translator;
    foci_heads     *heads;
    /* Places that stay empty. */
    foci_ctx       *other;
    foci_plan      *made;
    foci_layer     *layered;
    foci_data      *opened;
    foci_tokenizer *trained;
    foci_model     *modelled;
    foci_trainer   *trainer;
    foci_reading   *reading;
    foci_heads     *looked;
    int32_t         word;
    int64_t         bytes;
    double          number;
    char            text[1];
} x;

static const foci_problem  small = { FOCI_SIZED(foci_problem), .len_q = 4, .dim_qk = 4,
                                     .flags = FOCI_FLAG_CAUSAL };
static const foci_string   nothing = { NULL, 0 };
static const foci_io       no_io = { FOCI_SIZED(foci_io) };
static const foci_layer_io no_layer_io = { FOCI_SIZED(foci_layer_io) };
static const foci_loss_io no_rows = { FOCI_SIZED(foci_loss_io), .width = 1, .vocab = 1 };
static const foci_product_io  no_product = { FOCI_SIZED(foci_product_io) };
static const foci_bleu_counts no_counts = { .length = 0 };
static const foci_sentences no_sentences = { FOCI_SIZED(foci_sentences), .n_counts = 2,
                                             .score = foci_score_ratio };
static const int32_t        id = 0;

static int take(void *user, int32_t token)
{
    (void)user;
    (void)token;
    return 0;
}

#define CALL(name, arguments)                                                          \
    static foci_status call_##name(void) { return name arguments; }
#include "refusals.def"
#undef CALL
#define STRUCT(type, name, arguments)                                                  \
    static foci_status give_##type(void *s) { return name arguments; }
#include "refusals.def"
#undef STRUCT

static const struct {
    const char *name;
    foci_status (*run)(void);
} calls[] = {
#define CALL(name, arguments) { #name, call_##name },
#include "refusals.def"
#undef CALL
};

static const struct {
    const char *type;
    foci_status (*give)(void *s);
} structs[] = {
#define STRUCT(type, name, arguments) { #type, give_##type },
#include "refusals.def"
#undef STRUCT
};

enum {
    N_CALLS = sizeof calls / sizeof *calls,
    N_STRUCTS = sizeof structs / sizeof *structs
};

/* Leaves a message that no other call leaves. */
static void fail_before(void)
{
    foci_plan *plan;

    assert_int_not_equal(foci_plan_create(x.ctx, "older", &small, &plan), FOCI_OK);
    assert_non_null(strstr(foci_errmsg(NULL), "older"));
}

static void every_refusal_has_a_message(void **state)
{
    (void)state;
    for (int i = 0; i < N_CALLS; i++) {
        fail_before();
        const foci_status status = calls[i].run();
        const char       *message = foci_errmsg(NULL);
        if (status == FOCI_OK) fail_msg("%s takes NULL", calls[i].name);
        if (!*message || strstr(message, "older"))
            fail_msg("%s leaves \"%s\"", calls[i].name, message);
    }
}

static void every_size_is_checked(void **state)
{
    static size_t wrong[256]; /* larger than any struct, but for its size all zeros */
    char          says[80];

    (void)state;
    for (int i = 0; i < N_STRUCTS; i++) {
        wrong[0] = 1;
        const foci_status status = structs[i].give(wrong);
        snprintf(says, sizeof says, "%s.size is 1: start the struct with FOCI_SIZED(%s)",
                 structs[i].type, structs[i].type);
        if (status != FOCI_ERR_ARG || !strstr(foci_errmsg(NULL), says))
            fail_msg("%s: status %d, \"%s\"", structs[i].type, (int)status,
                     foci_errmsg(NULL));
    }
}

/*
 * The headers
 */

static bool is(const char *name, const char *at, size_t len)
{
    return strlen(name) == len && !memcmp(name, at, len);
}

/* A function that returns a status. */
static bool has_call(const char *at, size_t len)
{
    for (int i = 0; i < N_CALLS; i++)
        if (is(calls[i].name, at, len)) return true;
    return false;
}

/* A struct; those that do not start with their size need no line, nor does what no single
 * call takes: blocks of a config, what a callback is told, and what the library describes. */
static bool has_struct(const char *at, size_t len)
{
    const char *field = at + len;

    field += strspn(field, " {\n");
    if (strncmp(field, "size_t ", 7) != 0) return true;
    field += 7;
    field += strspn(field, " ");
    if (strncmp(field, "size;", 5) != 0) return true;
    for (int i = 0; i < N_STRUCTS; i++)
        if (is(structs[i].type, at, len)) return true;
    return is("foci_block_config", at, len) || is("foci_progress", at, len) ||
           is("foci_observation", at, len) || is("foci_head_row", at, len) ||
           is("foci_mod_def", at, len) || is("foci_attention_weights", at, len) ||
           is("foci_reading", at, len);
}

static char *read_header(const char *name)
{
    enum { MOST = 1 << 20 };
    char  path[300];
    char *text = test_alloc(MOST, 1);

    snprintf(path, sizeof path, "include/foci/%s", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, MOST - 1, f)] = 0;
    fclose(f);
    return text;
}

/* Count what begins so, each of which has to be listed. */
static int count(const char *header, const char *text, const char *start,
                 bool (*listed)(const char *at, size_t len))
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, start)); n++) {
        at += strlen(start);
        while (isspace((unsigned char)*at))
            at++;
        const size_t len = strcspn(at, "( \n");
        if (!listed(at, len))
            fail_msg("%s: %.*s is not in refusals.def", header, (int)len, at);
    }
    return n;
}

static void everything_is_listed(void **state)
{
    DIR           *dir = opendir("include/foci");
    struct dirent *entry;
    int            functions = 0, types = 0;

    (void)state;
    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        if (!strstr(entry->d_name, ".h")) continue;
        char *text = read_header(entry->d_name);
        functions += count(entry->d_name, text, "FOCI_API foci_status", has_call);
        types += count(entry->d_name, text, "typedef struct", has_struct);
        free(text);
    }
    closedir(dir);
    assert_int_equal(functions, N_CALLS);
    assert_true(types > N_STRUCTS);
}

/*
 * What there is
 */

static foci_model *make_model(foci_model_kind task)
{
    const foci_model_config c = {
        FOCI_SIZED(foci_model_config),
        .task = task,
        .vocab = 8,
        .context = 8,
        .layers = 1,
        .width = 4,
        .heads = 1,
        .specials = { 0, 1, 2, 3, 4 },
    };
    foci_model *m = NULL;

    if (foci_model_create(x.ctx, &c, &m)) fail_msg("%s", foci_errmsg(x.ctx));
    return m;
}

static void make_file(void)
{
    const int64_t shape[] = { 1 };
    const float   data[] = { 1 };
    char          path[] = "/tmp/foci-refusals-XXXXXX";
    const int     fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(foci_npy_write(x.ctx, path, 1, shape, data), FOCI_OK);
    assert_int_equal(foci_file_open(x.ctx, path, &x.file), FOCI_OK);
    unlink(path);
}

static int setup(void **state)
{
    const foci_layer_problem l = { FOCI_SIZED(foci_layer_problem), .len = 4,
                                   .width = 4 };
    const foci_data_options o = { FOCI_SIZED(foci_data_options), .kind = FOCI_DATA_TASK,
                                  .task = "copy", .batch = 1 };

    (void)state;
    x.ctx = test_ctx(NULL, 1);
    x.plan = test_plan(x.ctx, "softmax sink", &small);
    assert_int_equal(foci_pool_create(x.plan, 1, &x.pool), FOCI_OK);
    assert_int_equal(foci_layer_create(x.ctx, NULL, &l, &x.layer), FOCI_OK);
    assert_int_equal(foci_data_open(x.ctx, &o, &x.data), FOCI_OK);
    assert_int_equal(foci_tokenizer_train(x.ctx, "bytes", NULL, NULL, 0, &x.tokenizer),
                     FOCI_OK);
    const foci_heads_options one = { FOCI_SIZED(foci_heads_options), .heads = 1 };
    assert_int_equal(foci_heads_create(x.ctx, &one, &x.heads), FOCI_OK);
    x.writer = make_model(FOCI_MODEL_LM);
    x.translator = make_model(FOCI_MODEL_TRANSLATE);
    make_file();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    foci_file_free(x.file);
    foci_heads_free(x.heads);
    foci_model_free(x.translator);
    foci_model_free(x.writer);
    foci_tokenizer_free(x.tokenizer);
    foci_data_free(x.data);
    foci_layer_free(x.layer);
    foci_pool_free(x.pool);
    foci_plan_free(x.plan);
    foci_ctx_free(x.ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_refusal_has_a_message),
        cmocka_unit_test(every_size_is_checked),
        cmocka_unit_test(everything_is_listed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
