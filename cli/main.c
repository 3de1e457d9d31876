/* main.c -- foci VERB: find the verb, parse its options, run it, and check that its output
 * was written. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define VERB(name) extern const struct verb verb_##name;
#include "cli/verbs.def"
#undef VERB

const struct verb *const verbs[] = {
#define VERB(name) &verb_##name,
#include "cli/verbs.def"
#undef VERB
    NULL,
};

/* A standard stream that is closed would be replaced by the next file opened, and
 * text for people would end up in it.  Its place is taken by something that fails. */
static void occupy_streams(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

static const struct verb *find_verb(const char *name)
{
    for (int i = 0; verbs[i]; i++)
        if (strcmp(verbs[i]->name, name) == 0) return verbs[i];

    char         hint[64];
    struct guess n = { .word = name };
    for (int i = 0; verbs[i]; i++)
        guess_offer(&n, verbs[i]->name);
    guess_offer(&n, "help");
    usage_error(NULL, "no verb '%s'%s; see foci --help", name,
                guess_hint(&n, hint, sizeof hint));
    return NULL;
}

static int run_verb(const struct verb *verb, int argc, char **argv)
{
    struct args a;
    int         code = args_parse(verb, argc, argv, &a);

    if (code == EXIT_OK && a.help)
        help_verb(stdout, verb);
    else if (code == EXIT_OK)
        code = verb->run(&a);
    args_free(&a);
    return code;
}

static int help(int argc, char **argv)
{
    if (argc > 1)
        return usage_error(NULL, "help takes one verb; seen '%s' too", argv[1]);
    if (argc == 0) {
        help_all(stdout);
        return EXIT_OK;
    }
    const struct verb *verb = find_verb(argv[0]);
    if (!verb) return EXIT_USAGE;
    help_verb(stdout, verb);
    return EXIT_OK;
}

/* foci --man [VERB] */
static int man(int argc, char **argv)
{
    if (argc > 1)
        return usage_error(NULL, "--man takes one verb; seen '%s' too", argv[1]);
    const struct verb *verb = argc ? find_verb(argv[0]) : NULL;
    if (argc && !verb) return EXIT_USAGE;
    if (verb)
        man_verb(stdout, verb);
    else
        man_all(stdout);
    return EXIT_OK;
}

/* foci --completion SHELL */
static int completion(int argc, char **argv)
{
    if (argc == 1 && strcmp(argv[0], "bash") == 0) return complete_bash(stdout);
    if (argc == 1 && strcmp(argv[0], "zsh") == 0) return complete_zsh(stdout);
    return usage_error(NULL, "--completion takes bash or zsh%s%s%s",
                       argc ? "; seen '" : "", argc ? argv[argc - 1] : "",
                       argc ? "'" : "");
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        help_all(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0) {
        printf("foci %s\n", foci_version());
        return EXIT_OK;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return help(0, NULL);
    if (strcmp(word, "help") == 0) return help(argc - 2, argv + 2);
    if (strcmp(word, "--man") == 0) return man(argc - 2, argv + 2);
    if (strcmp(word, "--completion") == 0) return completion(argc - 2, argv + 2);
    if (word[0] == '-')
        return usage_error(NULL,
                           "no option '%s' before a verb; there are --help, --version, "
                           "--man and --completion",
                           word);
    const struct verb *verb = find_verb(word);
    return verb ? run_verb(verb, argc - 2, argv + 2) : EXIT_USAGE;
}

int main(int argc, char **argv)
{
    occupy_streams();
    /* A closed pipe and a file too large are errors of the write, and reported. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    catch_signals();
    json_never_fails();

    const int code = dispatch(argc, argv);

    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        const int failed = failure(NULL, "the output could not be written: %s",
                                   errno ? strerror(errno) : "an earlier write failed");
        return code ? code : failed;
    }
    return code;
}
