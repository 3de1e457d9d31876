/* help.c -- what --help prints, made from the tables that parse. */
#include <string.h>

#include "cli/cli.h"

const struct option common_options[] = {
    { .name = "json", .help = "print JSON instead of text" },
    { .name = "quiet", .help = "print results and errors only" },
    { .name = "help", .help = "print this help" },
    { 0 },
};

static void list_option(struct output_table *t, const struct option *o)
{
    table_cell(t, "  --%s%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "",
               o->many ? " ..." : "");
    table_cell(t, "%s", o->help);
}

void help_verb(FILE *out, const struct verb *verb)
{
    fprintf(out, "foci %s: %s\n\nExamples\n", verb->name, verb->summary);
    for (int i = 0; verb->examples && verb->examples[i]; i++)
        fprintf(out, "  %s\n", verb->examples[i]);
    fprintf(out, "\nUsage\n  foci %s%s%s [OPTION...]\n\nOptions\n", verb->name,
            *verb->usage ? " " : "", verb->usage);

    struct output_table *t = table_create("ll");
    const struct option *own;
    for (int i = 0; (own = verb_option(verb, i)); i++)
        list_option(t, own);
    for (const struct option *o = common_options; o->name; o++)
        list_option(t, o);
    table_print(t, out);
    table_free(t);
    if (verb->notes) fprintf(out, "\n%s\n", verb->notes);
    if (verb->also) fprintf(out, "\n%s\n", verb->also());
}

const char about_texts[] =
    "A SPEC says what to compute: a mechanism with arguments in parentheses,\n"
    "modifiers behind it, and plus signs between groups of heads, each with its\n"
    "count and a star before it, as in '4*local(window=128) rope + 4*softmax'.\n"
    "foci list prints what there is, foci list NAME the arguments of one.  A PROBLEM\n"
    "gives the shapes, a letter before each number, as in h8n4096d64c: see foci help\n"
    "plan.";

void help_all(FILE *out)
{
    fprintf(out, "foci: efficient attention\n\nExamples\n");
    for (int i = 0; verbs[i]; i++)
        if (verbs[i]->examples) fprintf(out, "  %s\n", verbs[i]->examples[0]);
    fprintf(out, "\nUsage\n  foci VERB [ARGUMENT...] [OPTION...]\n"
                 "  foci help VERB\n  foci --version\n"
                 "  foci --man [VERB]\n  foci --completion bash|zsh\n\nVerbs\n");

    struct output_table *t = table_create("ll");
    for (int i = 0; verbs[i]; i++) {
        table_cell(t, "  %s", verbs[i]->name);
        table_cell(t, "%s", verbs[i]->summary);
    }
    table_print(t, out);
    table_free(t);
    fprintf(out, "\n%s\n", about_texts);
}
