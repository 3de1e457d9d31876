/* loader.h -- declarations that the readers of tokenizer.json share. */
#ifndef FOCI_LOADER_H
#define FOCI_LOADER_H

#include <jansson.h>

#include "text/text.h"

struct loader {
    foci_ctx              *ctx;
    struct foci_tokenizer *t;
    const char            *name; /* of the file */
    const json_t          *root, *model, *vocab;
    bool                   byte_level;
    int64_t                limit;      /* ids are below */
    int64_t                next_added; /* id of an added token with a new text */
    struct text_buffer     text;       /* scratch */
    struct dict            names;      /* of added tokens */
};

/* Refuse a step of the file that is `value` where only `accepted` is supported. */
foci_status loader_unsupported(const struct loader *l, const char *what,
                               const char *value, const char *accepted);
foci_status loader_malformed(const struct loader *l, const char *what);

/* A boolean of a JSON object; `preset` if it is missing. */
bool loader_flag(const json_t *object, const char *name, bool preset);

/* Fill tokens, added tokens and merges of a tokenizer whose kind is known
 * (load_tokens.c). */
foci_status loader_tokens(struct loader *l);

#endif
