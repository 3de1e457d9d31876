/* train_file.c -- the model of --config FILE: a config.json, of which any part may be left
 * out. */
#include <stdlib.h>

#include "cli/train.h"

/* The config that the options give without a file, which has all that a file may leave out.
 * What the data say is filled in when they are open. */
static json_t *whole_config(const struct args *a, foci_ctx *ctx, foci_model_kind task,
                            const json_t *file)
{
    enum { MOST_WIDTH = 1 << 24 };
    const json_int_t  width = json_integer_value(json_object_get(file, "width"));
    foci_model_config c = { FOCI_SIZED(foci_model_config) };
    char             *text = NULL;

    config_read(a, task, &c);
    if (width > 0 && width <= MOST_WIDTH && !opt_text(a, "dim") &&
        !opt_text(a, "ffn") && !opt_text(a, "mlp"))
        c.ffn = 4 * width;
    c.vocab = 1;
    c.classes = task == FOCI_MODEL_CLASSIFY;
    if (foci_config_print(ctx, &c, &text)) return NULL;
    json_t *root = json_loads(text, 0, NULL);
    free(text);
    return root;
}

static void take(json_t *root, const json_t *whole, const char *name)
{
    json_t *value = json_object_get(whole, name);
    if (value) json_object_set(root, name, value);
}

/* An option about blocks takes the place of what the file says of all of them, and of each. */
static void override_blocks(const struct args *a, json_t *root, const json_t *whole)
{
    static const struct {
        const char *option, *model, *list, *block;
    } all[] = {
        { "layer", "kind", "encoder", "kind" },
        { "layer", "kind", "decoder", "kind" },
        { "attention", "encoder_attention", "encoder", "attention" },
        { "attention", "decoder_attention", "decoder", "attention" },
        { "encoder-attention", "encoder_attention", "encoder", "attention" },
        { "decoder-attention", "decoder_attention", "decoder", "attention" },
        { "cross-attention", "cross_attention", "decoder", "cross" },
        { "layers", "layers", NULL, NULL },
        { "decoder-layers", "decoder_layers", NULL, NULL },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t  k;
        json_t *block;
        if (!opt_text(a, all[i].option)) continue;
        json_object_del(root, all[i].model);
        take(root, whole, all[i].model);
        if (!all[i].list) continue;
        json_array_foreach(json_object_get(root, all[i].list), k, block)
            json_object_del(block, all[i].block);
    }
    if (opt_text(a, "attention")) take(root, whole, "attention");
}

int config_read_file(const struct args *a, foci_ctx *ctx, foci_model_kind task,
                     foci_model_config *c)
{
    const char *path = opt_text(a, "config");
    json_t     *root = json_object_read(a, path);

    if (!root) return EXIT_FAILED;
    json_t *whole = whole_config(a, ctx, task, root);
    if (!whole) {
        json_decref(root);
        return library_error(a, ctx, FOCI_ERR_MEMORY, path);
    }
    take(root, whole, "task");
    take(root, whole, "vocab");
    take(root, whole, "classes");
    override_blocks(a, root, whole);
    json_object_update_missing(root, whole);
    char             *text = json_dumps(root, 0);
    const foci_status status = text ? foci_config_parse(ctx, text, c) : FOCI_ERR_MEMORY;
    free(text);
    json_decref(whole);
    json_decref(root);
    return status ? library_error(a, ctx, status, path) : config_read(a, task, c);
}
