/* folders.c -- what a folder holds survives a kill at any moment; what is damaged, foreign
 * or truncated is refused with a sentence, and what was there before is still there. */
#define _XOPEN_SOURCE 700

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/training.h"
#include "train/folder.h"

enum { STEPS = 24, KILLS = 10 };

static const char task[] = "copy(symbols=6, least=5, longest=7, test=7, form=row)";

static struct training start(const char *folder)
{
    struct training t = { .task = task, .validates = true };

    t.config = training_small("1*softmax frozen(orthogonal) + 3*softmax");
    t.config.dropout = 0.1;
    t.options = (foci_train_options){ .steps = STEPS,
                                      .rate = 3e-3,
                                      .save_every = 1,
                                      .valid_every = 3,
                                      .average = 2,
                                      .seed = 11,
                                      .folder = folder };
    return t;
}

/* Go on from what is in the folder, to the end; 0 where it cannot. */
static uint64_t go_on(const char *folder)
{
    struct training t = start(folder);
    char            path[FOLDER_PATH];

    training_open(&t, 1);
    snprintf(path, sizeof path, "%s/state.safetensors", folder);
    if (!access(path, F_OK) && foci_trainer_resume(t.trainer))
        fail_msg("%s", foci_errmsg(t.ctx));
    training_run(&t);
    const uint64_t sum = foci_trainer_checksum(t.trainer);
    training_close(&t);
    return sum;
}

/* A process that trains, and is gone after so long. */
static void train_and_kill(const char *folder, long nanoseconds)
{
    const pid_t child = fork();

    if (child < 0) fail_msg("no process");
    if (child == 0) {
        (void)go_on(folder);
        _exit(0);
    }
    nanosleep(&(struct timespec){ nanoseconds / 1000000000, nanoseconds % 1000000000 },
              NULL);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static uint64_t params_sum(foci_ctx *ctx, const char *folder)
{
    foci_model *m = NULL;

    if (foci_model_load(ctx, folder, &m, NULL)) fail_msg("%s", foci_errmsg(ctx));
    const uint64_t sum =
        checksum_bytes(0, m->params, (size_t)m->floats * sizeof(float));
    foci_model_free(m);
    return sum;
}

/* config.json, model.safetensors and state.safetensors, and nothing half-written. */
static int count_files(const char *folder)
{
    DIR *dir = opendir(folder);
    int  n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static void killed(void **state)
{
    foci_ctx  *ctx = test_ctx(NULL, 1);
    char       whole[64], torn[64];
    struct rng r;

    (void)state;
    training_folder(whole);
    const uint64_t sum = go_on(whole);
    rng_seed(&r, (uint64_t)time(NULL), 0);
    training_folder(torn);
    const int kills = getenv("FOCI_TEST_LONG") ? 20 * KILLS : KILLS;
    for (int i = 0; i < kills; i++) {
        train_and_kill(torn, (long)(5e6 + 60e6 * rng_uniform(&r)));
        if (i % KILLS != KILLS - 1) continue;
        assert_int_equal(go_on(torn), sum);
        assert_int_equal(count_files(torn), 3);
        assert_int_equal(params_sum(ctx, torn), params_sum(ctx, whole));
        training_remove(torn);
        training_folder(torn);
    }
    training_remove(torn);
    training_remove(whole);
    foci_ctx_free(ctx);
}

/*
 * Damage
 */

static unsigned char *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("no file %s", path);
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = test_alloc(*bytes + 1, 1);
    assert_int_equal(fread(data, 1, *bytes, f), *bytes);
    fclose(f);
    return data;
}

static void write_file(const char *path, const unsigned char *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    if (!f) fail_msg("no file %s", path);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

/* Whether the model, and the training, are refused; each with a sentence. */
static void expect_refused(foci_ctx *ctx, const char *folder, bool state,
                           const char *what, size_t at)
{
    foci_model *m = NULL;

    if (state) {
        struct training t = start(folder);
        training_open(&t, 1);
        if (!foci_trainer_resume(t.trainer)) fail_msg("%s %zu was taken", what, at);
        assert_true(strlen(foci_errmsg(t.ctx)) > 20);
        training_close(&t);
        return;
    }
    if (!foci_model_load(ctx, folder, &m, NULL)) fail_msg("%s %zu was taken", what, at);
    assert_null(m);
    assert_true(strlen(foci_errmsg(ctx)) > 20);
}

/* Cut at the end of every tensor and within it; every bit of the header and some of the data
 * turned over. */
static void damage(foci_ctx *ctx, const char *folder, const char *name, bool state)
{
    char       path[FOLDER_PATH];
    size_t     bytes, header = 0;
    struct rng r;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    unsigned char *data = read_file(path, &bytes);
    for (int i = 0; i < 8; i++)
        header |= (size_t)data[i] << (8 * i);
    header += 8;
    rng_seed(&r, 5, 0);
    for (int i = 0; i < 24; i++) {
        const size_t cut = i == 0 ? 0 : (size_t)rng_below(&r, (int64_t)bytes);
        write_file(path, data, cut);
        expect_refused(ctx, folder, state, "a file cut at byte", cut);
    }
    const size_t step = state ? 97 : 11;
    for (size_t bit = 0; bit < 8 * header; bit += step) {
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        write_file(path, data, bytes);
        /* Blanks behind the header mean nothing. */
        if (data[bit / 8] != '\t' && data[bit / 8] != '\n')
            expect_refused(ctx, folder, state, "a header with another bit", bit);
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (int i = 0; i < 24; i++) {
        const size_t at = header + (size_t)rng_below(&r, (int64_t)(bytes - header));
        data[at] ^= 4;
        write_file(path, data, bytes);
        expect_refused(ctx, folder, state, "data with another bit at", at);
        data[at] ^= 4;
    }
    write_file(path, data, bytes);
    free(data);
}

static void damaged(void **state)
{
    foci_ctx *ctx = test_ctx(NULL, 1);
    char      folder[64];

    (void)state;
    training_folder(folder);
    struct training t = start(folder);
    t.options.steps = 3;
    training_open(&t, 1);
    training_run(&t);
    training_close(&t);
    const uint64_t sum = params_sum(ctx, folder);
    damage(ctx, folder, "model.safetensors", false);
    damage(ctx, folder, "state.safetensors", true);
    assert_int_equal(params_sum(ctx, folder), sum);
    training_remove(folder);
    foci_ctx_free(ctx);
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[FOLDER_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    write_file(path, (const unsigned char *)text, strlen(text));
}

/* A config that says nothing, too much, or what cannot be. */
static void configs(void **state)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{}",
        "{\"foci\": 2}",
        "{\"foci\": 1, \"task\": \"dance\"}",
        "{\"foci\": 1, \"task\": \"lm\", \"vocab\": 0}",
        "{\"task\": \"lm\", \"vocab\": 9, \"context\": 8, \"layers\": 1, \"width\": 8, "
        "\"heads\": 3}",
        "{\"task\": \"lm\", \"vocab\": 9, \"context\": 8, \"layers\": 1, \"width\": 8, "
        "\"heads\": 2, \"attention\": \"nystrom\"}",
        "{\"task\": \"lm\", \"vocab\": 9, \"context\": 8, \"layers\": 1, \"width\": 8, "
        "\"heads\": 2, \"color\": 1}",
        "{\"task\": \"lm\", \"vocab\": 9, \"context\": 8, \"width\": 8, \"heads\": 2, "
        "\"decoder\": [{\"kind\": \"attention\", \"attention\": 5}]}",
        "{\"task\": \"lm\", \"vocab\": 9223372036854775807, \"context\": 8, "
        "\"layers\": 1, "
        "\"width\": 8, \"heads\": 2}",
    };
    foci_ctx   *ctx = test_ctx(NULL, 1);
    foci_model *m = NULL;
    char        folder[64];

    (void)state;
    training_folder(folder);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(folder, "config.json", bad[i]);
        if (!foci_model_load(ctx, folder, &m, NULL)) fail_msg("taken: %s", bad[i]);
        assert_true(strlen(foci_errmsg(ctx)) > 10);
    }
    training_remove(folder);
    foci_ctx_free(ctx);
}

/* What is printed is read to the same; blocks of their own stay. */
static void round_trip(void **state)
{
    const foci_block_config blocks[] = {
        { FOCI_SIZED(foci_block_config), .attention = "local(window=3) rope" },
        { FOCI_SIZED(foci_block_config), .kind = FOCI_LAYER_CONV },
    };
    foci_ctx         *ctx = test_ctx(NULL, 1);
    foci_model_config c = training_small(NULL), got = { FOCI_SIZED(foci_model_config) },
                      parsed;
    foci_model *m = NULL;
    char       *text, *again;

    (void)state;
    c.vocab = 9;
    c.context = 15;
    c.blocks = blocks;
    c.n_blocks = 2;
    c.dropout = 0.1;
    if (foci_model_create(ctx, &c, &m)) fail_msg("%s", foci_errmsg(ctx));
    assert_int_equal(foci_model_get_config(m, &got), FOCI_OK);
    assert_int_equal(foci_config_print(ctx, &got, &text), FOCI_OK);
    assert_int_equal(foci_config_parse(ctx, text, &parsed), FOCI_OK);
    assert_int_equal(foci_config_print(ctx, &parsed, &again), FOCI_OK);
    assert_string_equal(text, again);
    assert_non_null(strstr(text, "local(window=3) rope"));
    assert_non_null(strstr(text, "\"conv\""));
    foci_config_free(ctx, &parsed);
    free(text), free(again);
    foci_model_free(m);
    foci_ctx_free(ctx);
}

/* What cannot be causal or cross is named, and so is what can. */
static void refused(void **state)
{
    foci_ctx         *ctx = test_ctx(NULL, 1);
    foci_model_config c = training_small("1*nystrom + 3*softmax");
    foci_model       *m = NULL;

    (void)state;
    c.vocab = 9;
    c.context = 15;
    assert_int_equal(foci_model_create(ctx, &c, &m), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(ctx), "nystrom cannot be causal"));
    assert_non_null(strstr(foci_errmsg(ctx), "softmax"));
    c.task = FOCI_MODEL_TRANSLATE;
    c.attention = "softmax";
    c.cross_attention = "local";
    assert_int_equal(foci_model_create(ctx, &c, &m), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(ctx), "local cannot be cross-attention"));
    c.cross_attention = "nystrom";
    assert_int_equal(foci_model_create(ctx, &c, &m), FOCI_ERR_UNSUP);
    assert_non_null(strstr(foci_errmsg(ctx), "nystrom cannot be cross-attention"));
    foci_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed),  cmocka_unit_test(damaged),
        cmocka_unit_test(configs), cmocka_unit_test(round_trip),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
