/* text.h -- declarations that the files of tokenizers share. */
#ifndef FOCI_TEXT_INSIDE_H
#define FOCI_TEXT_INSIDE_H

#include "core/core.h"
#include "foci/text.h"

/*
 * Memory (store.c)
 */

/* Grow a block of *cap elements of `size` bytes to at least `need`, as realloc would; new
 * elements are not initialised.  Threads of a parallel region may call
 * it: the allocator and the message of a context are used by one at a time. */
foci_status grow(foci_ctx *ctx, void *block, int64_t *cap, int64_t need, size_t size);

/* A text that is being written. */
struct text_buffer {
    foci_ctx *ctx;
    char     *at;
    int64_t   used, cap;
};

foci_status buffer_add(struct text_buffer *b, const char *text, int64_t bytes);
foci_status buffer_text(struct text_buffer *b, const char *text); /* up to its zero */
void        buffer_free(struct text_buffer *b);

/* Texts by their bytes, each with a number: an open hash table over entries in the order
 * they came. */
struct dict_entry {
    const char *text; /* in a chunk */
    int64_t     bytes;
    uint64_t    hash;
    int64_t     value; /* 0 when it is new */
};

struct dict_slot {
    uint32_t tag;   /* the high half of the hash */
    int32_t  entry; /* index + 1; 0: free */
};

struct dict {
    foci_ctx          *ctx;
    struct dict_entry *entries; /* [n] */
    int64_t            n, cap;
    struct dict_slot  *slots; /* [n_slots], a power of two */
    int64_t            n_slots;
    struct dict_chunk *chunk; /* where texts are copied to; the last of a list */
};

uint64_t           text_hash(const char *text, int64_t bytes);
struct dict_entry *dict_find(const struct dict *d, const char *text, int64_t bytes,
                             uint64_t hash);
/* The entry of a text, made if there is none; NULL: no memory, and the message says so.
 * Entries move when others are added. */
struct dict_entry *dict_add(struct dict *d, const char *text, int64_t bytes,
                            uint64_t hash);
/* A copy of bytes that lives as long as the dictionary; NULL: no memory. */
const char *dict_copy(struct dict *d, const char *text, int64_t bytes);
void        dict_free(struct dict *d);

/* Numbers by pairs of ids. */
struct pair_slot {
    uint64_t key; /* pair_key(); 0: free */
    int64_t  value;
};

struct pair_map {
    foci_ctx         *ctx;
    struct pair_slot *slots; /* [n_slots], a power of two */
    int64_t           n, n_slots;
};

/* Never 0, and in the order of (left, right). */
static inline uint64_t pair_key(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static inline uint64_t pair_hash(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15u;
    return key ^ key >> 32;
}

/* The slot of a pair; NULL: it has none. */
static inline struct pair_slot *pair_find(const struct pair_map *m, uint64_t key)
{
    const uint64_t mask = (uint64_t)m->n_slots - 1;
    if (!m->n_slots) return NULL;
    for (uint64_t i = pair_hash(key) & mask;; i = (i + 1) & mask) {
        if (m->slots[i].key == key) return &m->slots[i];
        if (!m->slots[i].key) return NULL;
    }
}

/* The same, made with value 0 if there is none; NULL: no memory.  Slots move when others
 * are added. */
struct pair_slot *pair_add(struct pair_map *m, uint64_t key);
void              pair_free(struct pair_map *m);

/*
 * Tokens added to a vocabulary, which are looked for in raw text (added.c)
 */

struct added {
    const char *text; /* zero-terminated */
    int64_t     bytes;
    int32_t     id;
    bool        special;        /* decoding leaves it out */
    bool        late;           /* looked for after those that are not */
    bool        lstrip, rstrip; /* it takes the white space beside it */
};

/* A tree of the bytes of such tokens.  Children of a node are a list. */
struct added_node {
    int32_t       child, sibling; /* -1: none */
    int32_t       added;          /* that ends here; -1: none */
    unsigned char byte;
};

struct added_tree {
    struct added_node *nodes; /* [n], the root first */
    int64_t            n, cap;
    bool               starts[256]; /* bytes that tokens begin with */
};

/* Longest text of an added token: matches are tried at every byte. */
enum { ADDED_LONGEST = 256 };

/*
 * Tokenizers
 */

enum text_kind { TEXT_BYTES, TEXT_CHARS, TEXT_WORDS, TEXT_BPE };

/* Flags that determine word indices: the token begins with white space, has other characters,
 * has white space after these at its end; or is a word by itself. */
enum {
    TOKEN_SPACE = 1,
    TOKEN_SOLID = 2,
    TOKEN_CLOSES = 4,
    TOKEN_ALONE = 8,
    TOKEN_SPECIAL = 16,
    TOKEN_ASCII = 32
};

struct token {
    const char   *text; /* NULL: no such id */
    int32_t       bytes;
    unsigned char flags;
};

struct foci_tokenizer {
    foci_ctx      *ctx;
    enum text_kind kind;
    char          *json; /* its file */
    int64_t        json_bytes, json_cap;

    struct token *tokens; /* [n_tokens] by id */
    int64_t       n_tokens, longest;
    struct dict   vocab;   /* of the model: value is the id + 1 */
    int32_t       unknown; /* -1: what is unknown is left out */
    int32_t       special[FOCI_SPECIAL_COUNT];
    uint64_t      fingerprint;

    struct added     *added; /* [n_added] of [cap_added] */
    int64_t           n_added, cap_added;
    struct added_tree early, late;

    /* Byte pair encoding. */
    int32_t         byte_id[256]; /* -1: none */
    struct pair_map merges;       /* rank << 32 | id of the token it makes */
    bool            split;        /* into words, by the rule of GPT-2 */
    bool            prefix;       /* put a blank before what begins without one */
    bool            whole;        /* a word that is a token is not merged */
    bool            fuse;         /* runs of unknown bytes are one token */
};

/* "PATH: reason" into ctx. */
foci_status text_fail(foci_ctx *ctx, foci_status status, const char *name,
                      const char *format, ...) PRINTF_LIKE(4, 5);

/* Add a token, number `index` of the list, to a tree that is empty or was made by this
 * function. */
foci_status added_insert(foci_ctx *ctx, struct added_tree *tree,
                         const struct added *added, int64_t index);

/* The first match in text[at, bytes), the longest of those that start there: its index in
 * the list of added tokens, and where it starts; -1: none. */
int64_t added_find(const struct added_tree *tree, const char *text, int64_t bytes,
                   int64_t at, int64_t *start);

/* The characters that stand for bytes in files of byte-level models, after GPT-2: each
 * printable one of Latin-1 for itself, U+0100 and following for the others. */
uint32_t byte_to_char(unsigned char byte);
int      char_to_byte(uint32_t c); /* -1: stands for none */

/* Bytes of the next word at p < end, by the pattern of GPT-2 (words.c). */
int64_t word_next(const char *p, const char *end);

/* NULL: there is no such id. */
static inline const struct token *token_of(const struct foci_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_tokens && t->tokens[id].text ? &t->tokens[id] : NULL;
}

/*
 * Merging (merge.c)
 */

/* Memory for long words: 0 at the start. */
struct merge_scratch {
    int32_t  *next, *before; /* one for each token */
    uint64_t *heap;          /* [cap_heap] */
    int64_t   cap_next, cap_before, cap_heap;
};

/* Merge ids[n] in place by the merges of a tokenizer, the one of the lowest rank first and
 * of equal ones the leftmost; *n becomes what is left. */
foci_status merge_ids(const struct foci_tokenizer *t, struct merge_scratch *s,
                      int32_t *ids, int64_t *n);
void        merge_free(foci_ctx *ctx, struct merge_scratch *s);

/* Names of special tokens, [FOCI_SPECIAL_COUNT], as training gives them. */
extern const char *const special_names[FOCI_SPECIAL_COUNT];

/* Make a tokenizer from the text of its file, of which it takes ownership in any case. */
foci_status tokenizer_take(foci_ctx *ctx, const char *name, struct text_buffer *json,
                           foci_tokenizer **tokenizer);

/* Fill a tokenizer from its file (load.c), then derive tables by id, special tokens and
 * fingerprint (tokenizer.c). */
foci_status tokenizer_read(struct foci_tokenizer *t, const char *name);
foci_status tokenizer_finish(struct foci_tokenizer *t, const char *name);

#endif
