/* folder.h -- the files of a model and of its training. */
#ifndef FOCI_FOLDER_H
#define FOCI_FOLDER_H

#include <jansson.h>

#include "file/format.h"
#include "train/model.h"

/* Arrays to be written to a file, with memory for their names. */
struct bundle {
    foci_ctx   *ctx;
    foci_array *arrays;
    char (*names)[160];
    int         n, cap;
    json_t     *metadata;
    foci_status status; /* of the first call that failed */
};

void bundle_begin(struct bundle *b, foci_ctx *ctx, int cap);
void bundle_end(struct bundle *b);
void bundle_text(struct bundle *b, const char *key, const char *format, ...)
    PRINTF_LIKE(3, 4);
/* Packed rows of one axis. */
void bundle_add(struct bundle *b, foci_eltype type, const void *data, int64_t count,
                const char *format, ...) PRINTF_LIKE(5, 6);
/* One tensor of the model from `floats`, laid out as its parameters: "PREFIX.NAME". */
void bundle_tensor(struct bundle *b, const struct model_tensor *t, const float *floats,
                   const char *prefix);
/* Write, with a checksum over everything in the metadata. */
foci_status bundle_write(struct bundle *b, const char *path);

/* Open such a file and verify its checksum. */
foci_status bundle_open(foci_ctx *ctx, const char *path, foci_file **file);
const char *bundle_read_text(const foci_file *file, const char *key);
/* Read a whole number, or a real one printed in hexadecimal; false: it is missing. */
bool bundle_read_int(const foci_file *file, const char *key, int64_t *value);
bool bundle_read_real(const foci_file *file, const char *key, double *value);
/* An array of that name, type and count; NULL, with the message, where there is none. */
const foci_array *bundle_find(foci_ctx *ctx, const foci_file *file, foci_eltype type,
                              int64_t count, const char *name);
foci_status       bundle_read_tensor(foci_ctx *ctx, const foci_file *file,
                                     const struct model_tensor *t, const char *prefix,
                                     float *floats);

/* "FOLDER/NAME" into path; FOCI_ERR_ARG when it is too long. */
enum { FOLDER_PATH = 4096 };
foci_status folder_path(foci_ctx *ctx, const char *folder, const char *name,
                        char path[FOLDER_PATH]);
foci_status folder_make(foci_ctx *ctx, const char *folder);
/* Remove temporary files left by a process that was killed. */
void folder_clean(const char *folder);
/* All of a file, and a zero behind it; freed by ctx_free() of bytes + 1. */
foci_status folder_read(foci_ctx *ctx, const char *path, char **text, size_t *bytes);

/* Write model.safetensors from these parameters; and read it. */
foci_status model_write_params(foci_model *m, const char *folder, const float *params,
                               int64_t step);
foci_status model_read_params(foci_model *m, const char *folder, float *params,
                              int64_t *step);
/* config.json and tokenizer.json. */
foci_status model_write_config(foci_model *m, const foci_tokenizer *tokenizer,
                               const char *folder);

/* A checksum of bytes: changing any one bit changes it. */
uint64_t checksum_bytes(uint64_t sum, const void *data, size_t bytes);

#endif
