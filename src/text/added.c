/* added.c -- find added tokens in raw text.
 *
 * The tokens are a tree of bytes.  At each byte that one of them begins with the tree is
 * walked as far as the text goes along; the deepest node where a token ends is the match.
 */
#include "text/text.h"

/* The child of a node for a byte; -1: none. */
static int32_t child_of(const struct added_tree *tree, int32_t node, unsigned char byte)
{
    int32_t c = tree->nodes[node].child;
    while (c >= 0 && tree->nodes[c].byte != byte)
        c = tree->nodes[c].sibling;
    return c;
}

static foci_status new_node(foci_ctx *ctx, struct added_tree *tree, unsigned char byte,
                            int32_t sibling)
{
    TRY(grow(ctx, &tree->nodes, &tree->cap, tree->n + 1, sizeof *tree->nodes));
    tree->nodes[tree->n++] = (struct added_node){
        .child = -1, .sibling = sibling, .added = -1, .byte = byte
    };
    return FOCI_OK;
}

foci_status added_insert(foci_ctx *ctx, struct added_tree *tree,
                         const struct added *added, int64_t index)
{
    int32_t node = 0;

    if (!tree->n) TRY(new_node(ctx, tree, 0, -1));
    for (int64_t i = 0; i < added->bytes; i++) {
        const unsigned char byte = (unsigned char)added->text[i];
        int32_t             next = child_of(tree, node, byte);
        if (next < 0) {
            TRY(new_node(ctx, tree, byte, tree->nodes[node].child));
            next = (int32_t)(tree->n - 1);
            tree->nodes[node].child = next;
        }
        node = next;
    }
    tree->nodes[node].added = (int32_t)index;
    tree->starts[(unsigned char)added->text[0]] = true;
    return FOCI_OK;
}

/* The longest token that the text begins with; -1: none. */
static int64_t match_at(const struct added_tree *tree, const char *p, const char *end)
{
    int64_t found = -1;
    int32_t node = 0;

    while (p < end && (node = child_of(tree, node, (unsigned char)*p)) >= 0) {
        if (tree->nodes[node].added >= 0) found = tree->nodes[node].added;
        p++;
    }
    return found;
}

int64_t added_find(const struct added_tree *tree, const char *text, int64_t bytes,
                   int64_t at, int64_t *start)
{
    for (; at < bytes; at++) {
        if (!tree->starts[(unsigned char)text[at]]) continue;
        const int64_t found = match_at(tree, text + at, text + bytes);
        if (found < 0) continue;
        *start = at;
        return found;
    }
    return -1;
}
