/* eval_costs_tell.c -- the costs of a model as JSON and as tables. */
#include <math.h>
#include <string.h>

#include "cli/eval_costs.h"

static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *json_attentions(const struct costs *c)
{
    json_t *list = json_array();

    for (size_t i = 0; i < c->n; i++) {
        const struct cost_attention *a = &c->attention[i];
        json_t *o = json_pack("{s:s, s:s, s:o, s:o}", "name", a->name, "attention",
                              a->spec, "concentration", number(heads_concentration(a)),
                              "softmax_error", number(heads_error(a)));
        if (!a->n_concentrations)
            json_object_set_new(o, "no_concentration", json_string(a->no_concentration));
        if (!a->n_errors)
            json_object_set_new(o, "no_softmax_error", json_string(a->no_error));
        json_array_append_new(list, o);
    }
    return list;
}

json_t *costs_json(const struct costs *c)
{
    json_t *o = json_object();

    json_object_set_new(o, "trained_parameters", json_integer(c->trained));
    json_object_set_new(o, "parameters", json_integer(c->parameters));
    json_object_set_new(o, "length", json_integer(c->len));
    if (c->source_len)
        json_object_set_new(o, "source_length", json_integer(c->source_len));
    json_object_set_new(o, "forward_flops_per_token", number(c->forward_flops));
    json_object_set_new(o, "training_flops_per_token", number(c->training_flops));
    json_object_set_new(o, "state_bytes",
                        c->state_bytes < 0 ? json_null() : json_integer(c->state_bytes));
    json_object_set_new(o, "decoding_tokens_per_second", number(c->decoding));
    if (*c->no_state) json_object_set_new(o, "no_decoding", json_string(c->no_state));
    json_object_set_new(o, "forward_tokens_per_second", number(c->forward));
    json_object_set_new(o, "peak_bytes",
                        c->peak_bytes < 0 ? json_null() : json_integer(c->peak_bytes));
    json_object_set_new(o, "concentration",
                        number(heads_overall(c, heads_concentration)));
    json_object_set_new(o, "softmax_error", number(heads_overall(c, heads_error)));
    json_object_set_new(o, "attentions", json_attentions(c));
    return o;
}

static void print_cell(struct output_table *t, double x)
{
    if (isfinite(x))
        table_cell(t, "%.4f", x);
    else
        table_cell(t, "-");
}

static void print_attentions(const struct costs *c)
{
    struct output_table *t = table_headed("lrrl");

    table_pair(t, "heads of", "concentration");
    table_pair(t, "error", "attention");
    for (size_t i = 0; i < c->n; i++) {
        const struct cost_attention *a = &c->attention[i];
        table_cell(t, "%s", a->name);
        print_cell(t, heads_concentration(a));
        print_cell(t, heads_error(a));
        table_cell(t, "%s", a->spec);
    }
    fputc('\n', stdout);
    table_print(t, stdout);
    table_free(t);
}

/* Once for all attentions that have it. */
static void print_reasons(const struct costs *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct cost_attention *a = &c->attention[i], *before = i ? a - 1 : NULL;
        if (!a->n_concentrations &&
            !(before && !strcmp(before->no_concentration, a->no_concentration)))
            printf("%s has no concentration: %s\n", a->name, a->no_concentration);
        if (!a->n_errors && !(before && !strcmp(before->no_error, a->no_error)))
            printf("%s has no error: %s\n", a->name, a->no_error);
    }
}

void costs_print(const struct costs *c)
{
    struct output_table *t = table_create("lr");
    char                 text[16];

    fputc('\n', stdout);
    table_pair(t, "trained parameters", "%lld", (long long)c->trained);
    table_pair(t, "parameters in all", "%lld", (long long)c->parameters);
    table_pair(t, "flops a token, forward", "%s", thousands(c->forward_flops, text));
    table_pair(t, "flops a token, training", "%s", thousands(c->training_flops, text));
    table_pair(t, "tokens of a sequence", "%lld", (long long)c->len);
    if (c->source_len)
        table_pair(t, "tokens of its source", "%lld", (long long)c->source_len);
    if (c->state_bytes < 0)
        table_pair(t, "bytes of its state", "-");
    else
        table_pair(t, "bytes of its state", "%lld", (long long)c->state_bytes);
    table_pair(t, "tokens a second, decoding", "%s",
               isfinite(c->decoding) ? thousands(c->decoding, text) : "-");
    table_pair(t, "tokens a second, forward", "%s", thousands(c->forward, text));
    table_pair(t, "peak memory, bytes", "%s", thousands((double)c->peak_bytes, text));
    table_print(t, stdout);
    table_free(t);
    if (*c->no_state) printf("there is no decoding: %s\n", c->no_state);
    print_attentions(c);
    print_reasons(c);
}
