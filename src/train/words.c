/* words.c -- which word each token belongs to, for models that read it. */
#include "train/model.h"

int foci_model_reads_words(const foci_model *model)
{
    for (int k = 0; k < model->n_stacks; k++)
        for (int64_t b = 0; b < model->stacks[k].n; b++)
            if (model->stacks[k].blocks[b].self.words) return 1;
    return 0;
}

foci_status words_check(const foci_model *m, const foci_tokenizer *tokenizer)
{
    if (tokenizer || !m->config.tokenizer || !foci_model_reads_words(m)) return FOCI_OK;
    return ctx_fail(
        m->ctx, FOCI_ERR_ARG,
        "options.tokenizer is NULL, and the model reads the words of tokens");
}

/* Without a tokenizer each token is a word of its own, as in data. */
foci_status words_find(const foci_model *m, const foci_tokenizer *tokenizer,
                       const int32_t *ids, int64_t n, foci_word_state *state,
                       int32_t *words)
{
    if (!foci_model_reads_words(m)) return FOCI_OK;
    if (tokenizer) return foci_token_words(tokenizer, ids, n, state, words);
    for (int64_t i = 0; i < n; i++)
        words[i] = (int32_t)state->word++;
    return FOCI_OK;
}
