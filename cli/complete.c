/* complete.c -- foci --completion: scripts by which bash and zsh complete command
 * lines, made from the tables that parse.
 *
 * Verbs, options, words that options take, and file names are completed; so are the
 * names of mechanisms where a spec begins.  The rest of a spec is not completed.
 */
#include <string.h>

#include "cli/cli.h"
#include "foci/mechanism.h"

static bool is_file(const struct option *o)
{
    return o->arg && (strcmp(o->arg, "FILE") == 0 || strcmp(o->arg, "PREFIX") == 0);
}

/* "NAME=FILE" */
static bool is_named_file(const struct option *o)
{
    return o->arg && strcmp(o->arg, "NAME=FILE") == 0;
}

static bool is_spec(const struct option *o)
{
    return o->arg && strcmp(o->arg, "SPEC") == 0;
}

/* Print "a|b|c" with blanks between. */
static void put_words(FILE *out, const char *words)
{
    for (; *words; words++)
        putc(*words == '|' ? ' ' : *words, out);
}

static void put_verbs(FILE *out)
{
    for (int i = 0; verbs[i]; i++)
        fprintf(out, "%s%s", i ? " " : "", verbs[i]->name);
}

/* Is this the first word of a usage, "SPEC PROBLEM" or "[CASE...]"? */
static bool begins(const char *usage, const char *word)
{
    return strncmp(usage + (*usage == '['), word, strlen(word)) == 0;
}

/* Is the first word one of those it lists, "train|show FILE"? */
static bool is_choice(const char *usage)
{
    return *usage >= 'a' && *usage <= 'z' && usage[strcspn(usage, "| ")] == '|';
}

/* Is it known what the first word of a usage may be? */
static bool has_names(const char *usage)
{
    return begins(usage, "SPEC") || begins(usage, "NAME") || begins(usage, "CASE") ||
           is_choice(usage);
}

static void put_names(FILE *out, const foci_ctx *ctx, const char *usage)
{
    const char *end = begins(usage, "CASE") ? "/" : "", *gap = "";

    if (!has_names(usage)) return;
    if (is_choice(usage)) {
        for (; *usage && *usage != ' '; usage++)
            fputc(*usage == '|' ? ' ' : *usage, out);
        return;
    }
    for (int i = 0; foci_mechanism(ctx, i); i++, gap = " ")
        fprintf(out, "%s%s%s", gap, foci_mechanism(ctx, i)->name, end);
    if (!begins(usage, "NAME")) return;
    for (int i = 0; foci_modifier(ctx, i); i++)
        fprintf(out, " %s", foci_modifier(ctx, i)->name);
}

/*
 * bash
 */

static void bash_values(FILE *out, const foci_ctx *ctx, const struct verb *verb)
{
    const struct option *o;

    for (int i = 0; (o = verb_option(verb, i)); i++) {
        if (o->kind == KIND_FLAG) continue;
        fprintf(out, "    '%s --%s') ", verb->name, o->name);
        if (o->kind == KIND_WORD) {
            fputs("words='", out);
            put_words(out, o->words);
            fputs("' ;;\n", out);
        } else if (is_spec(o)) {
            fputs("words='", out);
            put_names(out, ctx, o->arg);
            fputs("' ;;\n", out);
        } else {
            fputs(is_file(o) ? "compopt -o default; return ;;\n" : "return ;;\n", out);
        }
        if (is_named_file(o))
            fprintf(out, "    '%s --%s=') compopt -o default; return ;;\n", verb->name,
                    o->name);
    }
}

static void bash_rest(FILE *out, const foci_ctx *ctx, const struct verb *verb)
{
    const struct option *own;

    fprintf(out, "        %s)\n            words='", verb->name);
    for (int i = 0; (own = verb_option(verb, i)); i++)
        fprintf(out, "--%s ", own->name);
    for (const struct option *o = common_options; o->name; o++)
        fprintf(out, "--%s%s", o->name, o[1].name ? " " : "'\n            names='");
    put_names(out, ctx, verb->usage);
    fprintf(out, "'%s ;;\n",
            begins(verb->usage, "CASE") ? "\n            first=$COMP_CWORD" : "");
}

static void bash_script(FILE *out, const foci_ctx *ctx)
{
    fprintf(out, "# bash completion for foci %s, by foci --completion bash\n",
            foci_version());
    /* Names of files are left to readline, which knows of quotes: -o default.  A word
     * with an equals sign comes in three: of --option=value the option is what stands
     * before the value, of --option name=file the option with an equals sign. */
    fputs("_foci()\n{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local words= names= first=2 equals=0\n"
          "    COMPREPLY=()\n"
          "    if [[ $cur == '=' ]]; then\n"
          "        equals=$COMP_CWORD cur=\n"
          "    elif [[ $prev == '=' ]]; then\n"
          "        equals=$((COMP_CWORD - 1))\n"
          "    fi\n"
          "    if [[ $equals -gt 1 ]]; then\n"
          "        prev=${COMP_WORDS[equals - 1]}\n"
          "        [[ $prev == -* ]] || prev=${COMP_WORDS[equals - 2]}=\n"
          "    fi\n"
          "    case \"${COMP_WORDS[1]} $prev\" in\n",
          out);
    for (int i = 0; verbs[i]; i++)
        bash_values(out, ctx, verbs[i]);
    fputs("    'help help' | '--man --man') words='", out);
    put_verbs(out);
    fputs("' ;;\n    '--completion --completion') words='bash zsh' ;;\n    *)\n"
          "        [[ $COMP_CWORD -gt 1 ]] || words='",
          out);
    put_verbs(out);
    fputs(" help --help --version --man --completion'\n"
          "        [[ $COMP_CWORD -eq 1 ]] || case ${COMP_WORDS[1]} in\n",
          out);
    for (int i = 0; verbs[i]; i++)
        bash_rest(out, ctx, verbs[i]);
    fputs(
        "        esac\n"
        "        [[ $cur == -* || -z $names || (-z $cur && $COMP_CWORD -ne $first) ]] "
        "||\n            words=$names\n"
        "    esac\n"
        "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
        "    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != */ ]] || "
        "compopt -o nospace\n"
        "}\n"
        "complete -F _foci foci\n",
        out);
}

/*
 * zsh
 */

/* Text inside '...' and [...] of _arguments, or before a colon of _describe. */
static void zsh_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("[]:\\", *text)) putc('\\', out);
        fputs(*text == '\'' ? "'\\''" : (char[]){ *text, 0 }, out);
    }
}

static void zsh_option(FILE *out, const foci_ctx *ctx, const struct option *o)
{
    fprintf(out, "            '%s--%s%s[", o->many ? "*" : "", o->name,
            o->arg ? "=" : "");
    zsh_text(out, o->help);
    putc(']', out);
    if (o->arg) {
        fprintf(out, ":%s:", o->arg);
        if (o->kind == KIND_WORD) {
            putc('(', out);
            put_words(out, o->words);
            putc(')', out);
        } else if (is_spec(o)) {
            putc('(', out);
            put_names(out, ctx, o->arg);
            putc(')', out);
        } else if (is_named_file(o)) {
            fputs("{compset -P \"*=\" && _files}", out);
        } else {
            fputs(is_file(o) ? "_files" : " ", out);
        }
    }
    fputs("' \\\n", out);
}

static const char *next_word(const char *usage)
{
    usage += strcspn(usage, " ");
    return usage + (*usage == ' ');
}

/* The words of a usage, each with what it may be: '1:SPEC:(softmax l2norm)'.  Options
 * that must be given stand before them, with their values. */
static void zsh_usage(FILE *out, const foci_ctx *ctx, const char *usage)
{
    while (strncmp(usage, "--", 2) == 0)
        usage = next_word(next_word(usage));
    for (int n = 1; *usage; n++, usage = next_word(usage)) {
        const bool optional = *usage == '[';
        const int  len = (int)strcspn(usage + optional, ".] ");
        const bool any = usage[optional + len] == '.';
        char       place[16] = "*";

        if (!any) snprintf(place, sizeof place, "%d%s", n, optional ? ":" : "");
        fprintf(out, "            '%s:%.*s:", place, len, usage + optional);
        fputs(!has_names(usage) ? " " : any ? "compadd -S \"\" -- " : "(", out);
        put_names(out, ctx, usage);
        fputs(has_names(usage) && !any ? ")' \\\n" : "' \\\n", out);
    }
}

static void zsh_script(FILE *out, const foci_ctx *ctx)
{
    fprintf(out,
            "#compdef foci\n# zsh completion for foci %s, by foci --completion zsh\n",
            foci_version());
    fputs("_foci()\n{\n    local -a verbs=(\n", out);
    for (int i = 0; verbs[i]; i++) {
        fprintf(out, "        '%s:", verbs[i]->name);
        zsh_text(out, verbs[i]->summary);
        fputs("'\n", out);
    }
    fputs("    )\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _describe verb verbs\n"
          "        compadd -- help --help --version --man --completion\n"
          "        return\n    fi\n"
          "    local verb=$words[2]\n"
          "    shift words\n    (( CURRENT-- ))\n"
          "    case $verb in\n"
          "    help | --man) _arguments '1:verb:{_describe verb verbs}' ;;\n"
          "    --completion) _arguments '1:shell:(bash zsh)' ;;\n",
          out);
    for (int i = 0; verbs[i]; i++) {
        fprintf(out, "    %s)\n        _arguments \\\n", verbs[i]->name);
        const struct option *own;
        for (int k = 0; (own = verb_option(verbs[i], k)); k++)
            zsh_option(out, ctx, own);
        for (const struct option *o = common_options; o->name; o++)
            zsh_option(out, ctx, o);
        zsh_usage(out, ctx, verbs[i]->usage);
        fputs("            && return ;;\n", out);
    }
    fputs("    esac\n}\n\n_foci \"$@\"\n", out);
}

static int complete(FILE *out, void (*script)(FILE *, const foci_ctx *))
{
    foci_ctx *ctx = open_ctx(NULL, 0);
    if (!ctx) return EXIT_FAILED;
    script(out, ctx);
    foci_ctx_free(ctx);
    return EXIT_OK;
}

int complete_bash(FILE *out) { return complete(out, bash_script); }

int complete_zsh(FILE *out) { return complete(out, zsh_script); }
