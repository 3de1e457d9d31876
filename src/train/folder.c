/* folder.c -- a model as a folder: config.json, tokenizer.json, model.safetensors.
 *
 * Each file is whole at all times: it is written under another name, synced and renamed
 * (src/file/write.c).  config.json and tokenizer.json never change once they are there. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/folder.h"

foci_status folder_path(foci_ctx *ctx, const char *folder, const char *name,
                        char path[FOLDER_PATH])
{
    const int n = snprintf(path, FOLDER_PATH, "%s/%s", folder, name);

    if (n < FOLDER_PATH) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG, "the name of the folder is longer than %d bytes",
                    FOLDER_PATH - 64);
}

/* The folder and those above it. */
foci_status folder_make(foci_ctx *ctx, const char *folder)
{
    char path[FOLDER_PATH];

    TRY(folder_path(ctx, folder, "", path));
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        if (mkdir(path, 0777) && errno != EEXIST)
            return file_fail(ctx, path, "cannot be made: %s", strerror(errno));
        *p = '/';
    }
    return FOCI_OK;
}

/* Files that a killed process was writing: ".foci-PID-N.tmp", of src/file/write.c. */
void folder_clean(const char *folder)
{
    char           path[FOLDER_PATH];
    DIR           *dir = opendir(folder);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        const char  *name = entry->d_name;
        const size_t len = strlen(name);
        if (strncmp(name, ".foci-", 6) != 0 || strcmp(name + len - 4, ".tmp") != 0)
            continue;
        if (!folder_path(NULL, folder, name, path)) (void)unlink(path);
    }
    if (dir) closedir(dir);
}

foci_status folder_read(foci_ctx *ctx, const char *path, char **text, size_t *bytes)
{
    enum { MOST = 64 << 20 };
    struct stat st;
    FILE       *f = fopen(path, "rb");

    if (!f) return file_fail(ctx, path, "cannot be opened: %s", strerror(errno));
    if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode) || st.st_size > MOST) {
        fclose(f);
        return file_fail(ctx, path, "is no regular file of 64 MiB at most");
    }
    *bytes = (size_t)st.st_size;
    *text = ctx_alloc(ctx, *bytes + 1, 1);
    const size_t got = *text ? fread(*text, 1, *bytes, f) : 0;
    fclose(f);
    if (!*text) return FOCI_ERR_MEMORY;
    if (got == *bytes) return FOCI_OK;
    ctx_free(ctx, *text, *bytes + 1, 1);
    return file_fail(ctx, path, "cannot be read");
}

/*
 * Writing
 */

foci_status model_write_params(foci_model *m, const char *folder, const float *params,
                               int64_t step)
{
    char          path[FOLDER_PATH];
    struct bundle b;

    TRY(folder_path(m->ctx, folder, "model.safetensors", path));
    bundle_begin(&b, m->ctx, m->n_tensors);
    bundle_text(&b, "format", "foci");
    bundle_text(&b, "foci.step", "%lld", (long long)step);
    for (int i = 0; i < m->n_tensors; i++)
        if (m->tensors[i].offset >= 0) bundle_tensor(&b, &m->tensors[i], params, "");
    const foci_status status = bundle_write(&b, path);
    bundle_end(&b);
    return status;
}

foci_status model_write_config(foci_model *m, const foci_tokenizer *tokenizer,
                               const char *folder)
{
    char  path[FOLDER_PATH];
    char *text;

    TRY(folder_make(m->ctx, folder));
    TRY(folder_path(m->ctx, folder, "config.json", path));
    TRY(foci_config_print(m->ctx, &m->config, &text));
    const foci_status status = foci_file_write(m->ctx, path, text, strlen(text));
    free(text);
    TRY(status);
    if (!tokenizer) return FOCI_OK;
    TRY(folder_path(m->ctx, folder, "tokenizer.json", path));
    return foci_tokenizer_save(tokenizer, path);
}

foci_status foci_model_save(foci_model *model, const foci_tokenizer *tokenizer,
                            const char *folder)
{
    if (!model)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_model_save: the model is NULL");
    if (!folder) return ctx_fail(model->ctx, FOCI_ERR_ARG, "a model needs a folder");
    TRY(model_write_config(model, tokenizer, folder));
    return model_write_params(model, folder, model->params, 0);
}

/*
 * Reading
 */

foci_status model_read_params(foci_model *m, const char *folder, float *params,
                              int64_t *step)
{
    char       path[FOLDER_PATH];
    foci_file *file;

    TRY(folder_path(m->ctx, folder, "model.safetensors", path));
    TRY(bundle_open(m->ctx, path, &file));
    foci_status status = FOCI_OK;
    int         stored = 0;
    for (int i = 0; i < m->n_tensors && !status; i++) {
        if (m->tensors[i].offset < 0) continue;
        status = bundle_read_tensor(m->ctx, file, &m->tensors[i], "", params);
        stored++;
    }
    if (!status && stored != file->n)
        status =
            file_fail(m->ctx, path, "has %d tensors and the model of config.json %d",
                      file->n, stored);
    if (step && !bundle_read_int(file, "foci.step", step)) *step = 0;
    foci_file_free(file);
    return status;
}

static foci_status check_tokenizer(foci_ctx *ctx, const char *folder,
                                   const foci_model_config *c,
                                   const foci_tokenizer    *tokenizer)
{
    const int64_t tokens = foci_tokenizer_size(tokenizer);

    if (c->tokenizer && foci_tokenizer_fingerprint(tokenizer) != c->tokenizer)
        return file_fail(ctx, folder,
                         "tokenizer.json is that of another model: texts become other "
                         "ids by it");
    if (tokens > c->vocab)
        return file_fail(ctx, folder,
                         "tokenizer.json has %lld tokens and the model %lld",
                         (long long)tokens, (long long)c->vocab);
    return FOCI_OK;
}

static foci_status read_config(foci_ctx *ctx, const char *folder, foci_model_config *c)
{
    char   path[FOLDER_PATH], reason[256];
    char  *text = NULL;
    size_t bytes = 0;

    TRY(folder_path(ctx, folder, "config.json", path));
    TRY(folder_read(ctx, path, &text, &bytes));
    const foci_status status = foci_config_parse(ctx, text, c);
    ctx_free(ctx, text, bytes + 1, 1);
    if (!status) return FOCI_OK;
    snprintf(reason, sizeof reason, "%s", foci_errmsg(ctx));
    return status == FOCI_ERR_MEMORY ? status : file_fail(ctx, path, "%s", reason);
}

static foci_status read_tokenizer(foci_ctx *ctx, const char *folder,
                                  const foci_model_config *c, foci_tokenizer **tokenizer)
{
    char path[FOLDER_PATH];

    TRY(folder_path(ctx, folder, "tokenizer.json", path));
    if (!c->tokenizer && access(path, F_OK)) return FOCI_OK;
    TRY(foci_tokenizer_load(ctx, path, tokenizer));
    const foci_status status = check_tokenizer(ctx, folder, c, *tokenizer);
    if (status) {
        foci_tokenizer_free(*tokenizer);
        *tokenizer = NULL;
    }
    return status;
}

foci_status foci_model_load(foci_ctx *ctx, const char *folder, foci_model **model,
                            foci_tokenizer **tokenizer)
{
    foci_model_config c;

    if (model) *model = NULL;
    if (tokenizer) *tokenizer = NULL;
    if (!ctx || !model)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_model_load: %s is NULL",
                        ctx ? "model" : "the context");
    if (!folder) return ctx_fail(ctx, FOCI_ERR_ARG, "a model is read from a folder");
    TRY(read_config(ctx, folder, &c));
    foci_status status = foci_model_create(ctx, &c, model);
    if (!status) status = model_read_params(*model, folder, (*model)->params, NULL);
    if (!status && tokenizer) status = read_tokenizer(ctx, folder, &c, tokenizer);
    foci_config_free(ctx, &c);
    if (!status) return FOCI_OK;
    foci_model_free(*model);
    *model = NULL;
    return status;
}
