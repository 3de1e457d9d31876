/* model.c -- any bytes may be a config.json, or a checkpoint of a model: they are refused with
 * a reason, or make a model that is written and read back.
 *
 * Input: 'c' and a config; or another letter and the model.safetensors of a small model.
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
    static const char *const names[] = { "config.json", "model.safetensors" };
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

static void checkpoint(foci_ctx *ctx, const uint8_t *data, size_t size)
{
    foci_model *m = NULL;

    if (!*folder) {
        snprintf(folder, sizeof folder, "/tmp/foci-fuzz-XXXXXX");
        MUST(mkdtemp(folder));
        atexit(remove_folder);
        write_file("config.json", small, strlen(small));
    }
    write_file("model.safetensors", data, size);
    if (foci_model_load(ctx, folder, &m, NULL)) {
        MUST(!m);
        fuzz_message(ctx);
    }
    foci_model_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size || size > LARGEST) return 0;
    if (*data == 'c')
        config(fuzz_ctx(), data + 1, size - 1);
    else
        checkpoint(fuzz_ctx(), data + 1, size - 1);
    return 0;
}
