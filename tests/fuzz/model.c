/* model.c -- any bytes may be a config.json, or a checkpoint of a model or of its training:
 * they are refused with a reason, or make a model that is written and read back, or training
 * that goes on.
 *
 * Input: 'c' and a config; 's' and the state.safetensors of a small model; or another letter
 * and its model.safetensors.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "foci/train.h"
#include "fuzz/fuzz.h"

enum { LARGEST = 1 << 16 };

static const char small[] =
    "{\"foci\": 1, \"task\": \"lm\", \"vocab\": 5, \"context\": 4, \"layers\": 1, "
    "\"width\": 4, \"heads\": 1, \"ffn\": 4, \"attention\": \"softmax\"}";

static char folder[64];

static void remove_folder(void)
{
    static const char *const names[] = { "config.json", "model.safetensors",
                                         "state.safetensors" };
    char                     path[128];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void write_file(const char *name, const void *data, size_t bytes)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    MUST(f && fwrite(data, 1, bytes, f) == bytes && !fclose(f));
}

/* What is printed of a config is read to the same. */
static void config(foci_ctx *ctx, const uint8_t *data, size_t size)
{
    foci_model_config c, again;
    char             *text = malloc(size + 1), *one, *two;

    MUST(text);
    memcpy(text, data, size);
    text[size] = 0;
    const foci_status status = foci_config_parse(ctx, text, &c);
    free(text);
    if (status) {
        fuzz_message(ctx);
        return;
    }
    MUST(foci_config_print(ctx, &c, &one) == FOCI_OK);
    MUST(foci_config_parse(ctx, one, &again) == FOCI_OK);
    MUST(foci_config_print(ctx, &again, &two) == FOCI_OK);
    MUST(strcmp(one, two) == 0);
    free(one);
    free(two);
    foci_config_free(ctx, &c);
    foci_config_free(ctx, &again);
}

static void make_folder(void)
{
    if (*folder) return;
    snprintf(folder, sizeof folder, "/tmp/foci-fuzz-XXXXXX");
    MUST(mkdtemp(folder));
    atexit(remove_folder);
    write_file("config.json", small, strlen(small));
}

static void checkpoint(foci_ctx *ctx, const uint8_t *data, size_t size)
{
    foci_model *m = NULL;

    make_folder();
    write_file("model.safetensors", data, size);
    if (foci_model_load(ctx, folder, &m, NULL)) {
        MUST(!m);
        fuzz_message(ctx);
    }
    foci_model_free(m);
}

/* The training that corpus/model/state is of, two steps of which were done. */
static foci_trainer *make_trainer(foci_ctx *ctx, foci_model **model, foci_data **data)
{
    const foci_data_options d = { FOCI_SIZED(foci_data_options), .kind = FOCI_DATA_TASK,
                                  .task =
                                      "copy(symbols=2, longest=1, test=1, form=row)",
                                  .batch = 2, .seed = 1 };
    foci_data_info          info = { FOCI_SIZED(foci_data_info) };
    foci_train_options      o = { FOCI_SIZED(foci_train_options), .steps = 3,
                                  .folder = folder };
    foci_trainer           *trainer;

    MUST(foci_data_open(ctx, &d, data) == FOCI_OK);
    MUST(foci_data_get_info(*data, &info) == FOCI_OK);
    const foci_model_config c = { FOCI_SIZED(foci_model_config),
                                  .vocab = info.vocab,
                                  .context = info.len,
                                  .layers = 1,
                                  .width = 4,
                                  .heads = 1,
                                  .seed = 1 };
    MUST(foci_model_create(ctx, &c, model) == FOCI_OK);
    MUST(foci_trainer_create(*model, *data, NULL, NULL, &o, &trainer) == FOCI_OK);
    return trainer;
}

/* Refused, or the step that was left is done. */
static void state(foci_ctx *ctx, const uint8_t *bytes, size_t size)
{
    foci_model *model;
    foci_data  *data;

    make_folder();
    write_file("state.safetensors", bytes, size);
    foci_trainer *trainer = make_trainer(ctx, &model, &data);
    if (foci_trainer_resume(trainer))
        fuzz_message(ctx);
    else
        MUST(foci_trainer_run(trainer) == FOCI_OK);
    foci_trainer_free(trainer);
    foci_model_free(model);
    foci_data_free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size || size > LARGEST) return 0;
    if (*data == 'c')
        config(fuzz_ctx(), data + 1, size - 1);
    else if (*data == 's')
        state(fuzz_ctx(), data + 1, size - 1);
    else
        checkpoint(fuzz_ctx(), data + 1, size - 1);
    return 0;
}
