/* save.c -- write a tokenizer.json, as load.c reads it.
 *
 * Each token and merge has a line of its own, so that the file can be read by people and
 * compared by tools.
 */
#include <stdio.h>
#include <string.h>

#include "text/train.h"
#include "text/utf8.h"

/* One character of a JSON text. */
static foci_status put_char(struct text_buffer *b, uint32_t c)
{
    char text[8];
    int  n;

    if (c < 0x20) {
        n = snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    } else if (c == '"' || c == '\\') {
        text[0] = '\\';
        text[1] = (char)c;
        n = 2;
    } else {
        n = utf8_put(c, text);
    }
    return buffer_add(b, text, n);
}

/* A token without quotes; of byte-level models in the characters that stand for bytes. */
static foci_status put_token(struct text_buffer *b, bool byte_level,
                             const struct dict_entry *e)
{
    const char *end = e->text + e->bytes;
    uint32_t    c;

    for (const char *p = e->text; p < end;) {
        if (byte_level)
            c = byte_to_char((unsigned char)*p++);
        else
            p += utf8_next(p, end, &c);
        TRY(put_char(b, c));
    }
    return FOCI_OK;
}

static foci_status put_number(struct text_buffer *b, const char *format, int64_t n)
{
    char      text[64];
    const int len = snprintf(text, sizeof text, format, (long long)n);
    return buffer_add(b, text, len);
}

static foci_status put_added(struct text_buffer *b, const struct dict *tokens, int n)
{
    TRY(buffer_text(b, "  \"added_tokens\": ["));
    for (int i = 0; i < n; i++) {
        TRY(put_number(b, i ? ",\n    {\"id\": %lld" : "\n    {\"id\": %lld", i));
        TRY(buffer_text(b, ", \"content\": \""));
        TRY(put_token(b, false, &tokens->entries[i]));
        TRY(buffer_text(b, "\", \"single_word\": false, \"lstrip\": false, "
                           "\"rstrip\": false, \"normalized\": false, "
                           "\"special\": true}"));
    }
    return buffer_text(b, "\n  ],\n");
}

/* What stands around the model, of each kind. */
static foci_status put_steps(struct text_buffer *b, enum text_kind kind)
{
    static const char bytes[] =
        "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": true, \"use_regex\": %s},\n"
        "  \"post_processor\": null,\n"
        "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
        "\"trim_offsets\": true, \"use_regex\": true},\n";
    char text[sizeof bytes + 8];

    TRY(buffer_text(b, "  \"normalizer\": null,\n"));
    switch (kind) {
    case TEXT_BYTES:
    case TEXT_BPE:
        snprintf(text, sizeof text, bytes, kind == TEXT_BPE ? "true" : "false");
        return buffer_text(b, text);
    case TEXT_CHARS:
        return buffer_text(b, "  \"pre_tokenizer\": null,\n"
                              "  \"post_processor\": null,\n"
                              "  \"decoder\": {\"type\": \"Fuse\"},\n");
    case TEXT_WORDS: break;
    }
    return buffer_text(b, "  \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"},\n"
                          "  \"post_processor\": null,\n"
                          "  \"decoder\": null,\n");
}

static foci_status put_vocab(struct text_buffer *b, bool byte_level,
                             const struct dict *tokens, int n_special)
{
    TRY(buffer_text(b, "    \"vocab\": {"));
    for (int64_t i = 0; i < tokens->n; i++) {
        TRY(buffer_text(b, i ? ",\n      \"" : "\n      \""));
        TRY(put_token(b, byte_level && i >= n_special, &tokens->entries[i]));
        TRY(put_number(b, "\": %lld", i));
    }
    return buffer_text(b, "\n    }");
}

/* Of a pair that was merged twice the last time counts, as in `tokenizers`. */
static foci_status put_merges(struct text_buffer *b, const struct dict *tokens,
                              const struct merge_list *merges, struct pair_map *last)
{
    const char *before = "\n      \"";

    for (int64_t i = 0; i < merges->n; i++) {
        struct pair_slot *slot = pair_add(last, merges->pairs[i]);
        if (!slot) return FOCI_ERR_MEMORY;
        slot->value = i;
    }
    TRY(buffer_text(b, ",\n    \"merges\": ["));
    for (int64_t i = 0; i < merges->n; i++) {
        const uint64_t key = merges->pairs[i];
        if (pair_find(last, key)->value != i) continue;
        TRY(buffer_text(b, before));
        TRY(put_token(b, true, &tokens->entries[(key - 1) >> 32]));
        TRY(buffer_text(b, " "));
        TRY(put_token(b, true, &tokens->entries[(key - 1) & UINT32_MAX]));
        TRY(buffer_text(b, "\""));
        before = ",\n      \"";
    }
    return buffer_text(b, "\n    ]");
}

foci_status json_write(struct text_buffer *out, enum text_kind kind,
                       const struct dict *tokens, int n_special,
                       const struct merge_list *merges)
{
    const bool      byte_level = kind == TEXT_BYTES || kind == TEXT_BPE;
    struct pair_map last = { .ctx = out->ctx };

    TRY(buffer_text(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                         "  \"padding\": null,\n"));
    TRY(put_added(out, tokens, n_special));
    TRY(put_steps(out, kind));
    if (kind == TEXT_WORDS)
        TRY(buffer_text(out, "  \"model\": {\n    \"type\": \"WordLevel\",\n"));
    else
        TRY(buffer_text(out, "  \"model\": {\n    \"type\": \"BPE\",\n"
                             "    \"dropout\": null,\n"
                             "    \"continuing_subword_prefix\": null,\n"
                             "    \"end_of_word_suffix\": null,\n"
                             "    \"fuse_unk\": false,\n"
                             "    \"byte_fallback\": false,\n"
                             "    \"ignore_merges\": false,\n"));
    TRY(buffer_text(out, byte_level ? "    \"unk_token\": null,\n"
                                    : "    \"unk_token\": \"<unk>\",\n"));
    TRY(put_vocab(out, byte_level, tokens, n_special));
    foci_status status = FOCI_OK;
    if (kind != TEXT_WORDS) status = put_merges(out, tokens, merges, &last);
    pair_free(&last);
    TRY(status);
    return buffer_text(out, "\n  }\n}\n");
}
