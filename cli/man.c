/* man.c -- foci --man: manual pages in the language of man(7), made from the tables
 * that parse. */
#include <ctype.h>
#include <string.h>

#include "cli/cli.h"

/* Prose.  A line must not begin as a request does. */
static void prose(FILE *out, const char *text)
{
    bool first = true;

    for (; *text; text++) {
        if (first && strchr(".'", *text)) fputs("\\&", out);
        if (*text == '\\')
            fputs("\\e", out);
        else
            putc(*text, out);
        first = *text == '\n';
    }
}

/* What is typed: dashes and quotes that can be copied. */
static void typed(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '\\': fputs("\\e", out); break;
        case '-': fputs("\\-", out); break;
        case '\'': fputs("\\(aq", out); break;
        default: putc(*text, out);
        }
}

static void head(FILE *out, const char *verb, const char *summary)
{
    fputs(".TH FOCI", out);
    if (*verb) fputs("\\-", out);
    for (const char *c = verb; *c; c++)
        putc(toupper((unsigned char)*c), out);
    fprintf(out, " 1 \"\" \"foci %s\" \"User Commands\"\n.SH NAME\nfoci%s%s \\- ",
            foci_version(), *verb ? "\\-" : "", verb);
    prose(out, summary);
    fputs("\n.SH SYNOPSIS\n", out);
}

static void option(FILE *out, const struct option *o)
{
    fputs(".TP\n\\fB\\-\\-", out);
    typed(out, o->name);
    fputs("\\fR", out);
    if (o->arg) fprintf(out, " \\fI%s\\fR", o->arg);
    if (o->many) fputs(" ...", out);
    putc('\n', out);
    prose(out, o->help);
    if (o->kind == KIND_WHOLE || o->kind == KIND_REAL)
        fprintf(out, "; a %snumber from %.16g to %s%.16g",
                o->kind == KIND_WHOLE ? "whole " : "", o->min,
                o->below ? "less than " : "", o->max);
    fputs(o->many ? "; may be repeated\n" : "\n", out);
}

/* Lines as they are typed, one below the other. */
static void example(FILE *out, const char *text)
{
    typed(out, text);
    putc('\n', out);
}

static void exit_status(FILE *out)
{
    fputs(".SH EXIT STATUS\n"
          "0 when all went well, 1 when something failed, 2 when the command line\n"
          "cannot be meant.  Results go to standard output, all else to standard\n"
          "error.\n",
          out);
}

void man_verb(FILE *out, const struct verb *verb)
{
    head(out, verb->name, verb->summary);
    fprintf(out, "\\fBfoci %s\\fR%s%s [\\fIOPTION\\fR...]\n", verb->name,
            *verb->usage ? " " : "", verb->usage);
    if (verb->notes) {
        fputs(".SH DESCRIPTION\n", out);
        prose(out, verb->notes);
        putc('\n', out);
        if (verb->also) {
            fputs(".PP\n", out);
            prose(out, verb->also());
            putc('\n', out);
        }
    }
    fputs(".SH OPTIONS\n", out);
    const struct option *own;
    for (int i = 0; (own = verb_option(verb, i)); i++)
        option(out, own);
    for (const struct option *o = common_options; o->name; o++)
        option(out, o);
    fputs(".SH EXAMPLES\n.nf\n", out);
    for (int i = 0; verb->examples && verb->examples[i]; i++)
        example(out, verb->examples[i]);
    fputs(".fi\n", out);
    exit_status(out);
    fputs(".SH SEE ALSO\n.BR foci (1)\n", out);
}

void man_all(FILE *out)
{
    head(out, "", "efficient attention");
    fputs("\\fBfoci\\fR \\fIVERB\\fR [\\fIARGUMENT\\fR...] [\\fIOPTION\\fR...]\n.br\n"
          "\\fBfoci help\\fR \\fIVERB\\fR\n.br\n"
          "\\fBfoci \\-\\-version\\fR\n.br\n"
          "\\fBfoci \\-\\-man\\fR [\\fIVERB\\fR]\n.br\n"
          "\\fBfoci \\-\\-completion bash\\fR|\\fBzsh\\fR\n"
          ".SH DESCRIPTION\n"
          "Attention on tensors from files, how it is computed, and how fast.  Each\n"
          "verb has a page of its own.\n.SH VERBS\n",
          out);
    for (int i = 0; verbs[i]; i++) {
        fprintf(out, ".TP\n.BR foci\\-%s (1)\n", verbs[i]->name);
        prose(out, verbs[i]->summary);
        putc('\n', out);
    }
    fputs(".SH SPECS AND PROBLEMS\n", out);
    prose(out, about_texts);
    fputs("\nThe file docs/specs.md of the documentation has the rest of both.\n"
          ".SH EXAMPLES\n.nf\n",
          out);
    for (int i = 0; verbs[i]; i++)
        if (verbs[i]->examples) example(out, verbs[i]->examples[0]);
    fputs(".fi\n.SH ENVIRONMENT\n"
          ".TP\n.B FOCI_THREADS\nThreads to use where no option says otherwise.\n"
          ".TP\n.B FOCI_CPU\nThe highest CPU level to use, as \\fBfoci info\\fR names\n"
          "them.\n",
          out);
    exit_status(out);
    fputs(".SH SEE ALSO\n.BR foci (3)\n", out);
}
