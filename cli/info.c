/* info.c -- foci info: the machine and the CPU level in use, its peak rates (--measure) and
 * its kernels (--kernels). */
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/cli.h"

void cpu_model(char *out, size_t cap)
{
    char  line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");

    *out = '\0';
    if (!f) return;
    while (!*out && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10) != 0) continue;
        colon += strspn(colon, ": \t");
        snprintf(out, cap, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    fclose(f);
}

static double memory_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages < 0 || page < 0 ? 0 : (double)pages * (double)page;
}

static const char none[] = "has none";

/* Levels above `level`, up to NULL, and why a kernel was not taken from them. */
static const char *higher(const foci_ctx *ctx, const char *level, int *i,
                          const char **why)
{
    const char *name, *state;

    for (bool above = *i > 0; (name = foci_cpu_level(ctx, (*i)++, &state));) {
        const bool in_use =
            strcmp(state, "available") == 0 || strcmp(state, "chosen") == 0;
        *why = in_use ? none : state;
        if (above) return name;
        above = strcmp(name, level) == 0;
    }
    return NULL;
}

static json_t *json_higher(const foci_ctx *ctx, const char *level)
{
    json_t     *o = json_object();
    const char *name, *why;

    for (int i = 0; (name = higher(ctx, level, &i, &why));)
        json_object_set_new(o, name, json_string(why));
    return o;
}

static json_t *json_levels(const foci_ctx *ctx)
{
    json_t     *levels = json_array();
    const char *name, *state;

    for (int i = 0; (name = foci_cpu_level(ctx, i, &state)); i++)
        json_array_append_new(levels,
                              json_pack("{s:s, s:s}", "name", name, "state", state));
    return levels;
}

static json_t *json_kernels(const foci_ctx *ctx)
{
    json_t     *kernels = json_array();
    const char *name, *level;

    for (int i = 0; (name = foci_kernel(ctx, i, &level)); i++)
        json_array_append_new(kernels,
                              json_pack("{s:s, s:s, s:o}", "name", name, "level", level,
                                        "higher", json_higher(ctx, level)));
    return kernels;
}

static json_t *json_measured(const foci_machine *m)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "f32_flops", m->f32_flops, "bf16_flops",
                     m->bf16_flops, "copy_bytes", m->copy_bytes, "read_bytes",
                     m->read_bytes);
}

static const char *chosen_level(const foci_ctx *ctx)
{
    const char *name, *state;

    for (int i = 0; (name = foci_cpu_level(ctx, i, &state)); i++)
        if (strcmp(state, "chosen") == 0) break;
    return name ? name : "";
}

static json_t *json_machine(const foci_ctx *ctx, const char *system, const char *model)
{
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:I, s:i, s:s, s:o}", "version", foci_version(), "system",
        system, "cpu", model, "memory_bytes", (json_int_t)memory_bytes(), "threads",
        foci_ctx_threads(ctx), "level", chosen_level(ctx), "levels", json_levels(ctx));
    foci_device d = { FOCI_SIZED(foci_device) };

    if (!foci_ctx_get_device(ctx, &d) && d.name)
        json_object_set_new(o, "device",
                            json_pack("{s:s, s:s, s:i, s:i, s:I}", "name", d.name,
                                      "model", d.model, "processors", d.processors,
                                      "capability", d.capability, "memory_bytes",
                                      (json_int_t)d.memory_bytes));
    return o;
}

static void print_machine(const foci_ctx *ctx, const char *system, const char *model)
{
    char                 text[16];
    struct output_table *t = table_create("ll");

    table_pair(t, "version", "%s", foci_version());
    table_pair(t, "system", "%s", system);
    if (*model) table_pair(t, "cpu", "%s", model);
    table_pair(t, "memory", "%sB", thousands(memory_bytes(), text));
    table_pair(t, "threads", "%d", foci_ctx_threads(ctx));
    table_pair(t, "level", "%s", chosen_level(ctx));
    foci_device d = { FOCI_SIZED(foci_device) };
    if (!foci_ctx_get_device(ctx, &d) && d.name)
        table_pair(t, "device", "%s, %s, %d processors, %sB", d.name, d.model,
                   d.processors, thousands((double)d.memory_bytes, text));
    table_print(t, stdout);
    table_free(t);
}

static void print_levels(const foci_ctx *ctx)
{
    const char          *name, *state;
    struct output_table *t = table_headed("ll");

    table_pair(t, "CPU level", "state");
    for (int i = 0; (name = foci_cpu_level(ctx, i, &state)); i++)
        table_pair(t, name, "%s", state);
    putchar('\n');
    table_print(t, stdout);
    table_free(t);
}

/* Levels that are not in use have their reason in the table before. */
static void print_kernels(const foci_ctx *ctx)
{
    const char          *name, *level, *above, *why;
    struct output_table *t = table_headed("lll");

    table_pair(t, "kernel", "taken from");
    table_cell(t, "higher levels");
    for (int i = 0; (name = foci_kernel(ctx, i, &level)); i++) {
        char text[128] = "";
        for (int l = 0; (above = higher(ctx, level, &l, &why));) {
            const size_t len = strlen(text);
            snprintf(text + len, sizeof text - len, "%s%s %s", len ? ", " : "", above,
                     why == none ? none : "not in use");
        }
        table_pair(t, name, "%s", level);
        table_cell(t, "%s", text);
    }
    putchar('\n');
    table_print(t, stdout);
    table_free(t);
}

static void print_measured(const foci_machine *m)
{
    char                 text[16];
    struct output_table *t = table_headed("lr");

    table_pair(t, "measured", "per second");
    table_pair(t, "f32 products", "%sflop", thousands(m->f32_flops, text));
    table_pair(t, "bf16 products", "%sflop", thousands(m->bf16_flops, text));
    table_pair(t, "memory read", "%sB", thousands(m->read_bytes, text));
    table_pair(t, "memory copied", "%sB", thousands(m->copy_bytes, text));
    putchar('\n');
    table_print(t, stdout);
    table_free(t);
}

static int show_json(const struct args *a, const foci_ctx *ctx, json_t *o,
                     const foci_machine *m)
{
    if (opt_flag(a, "kernels")) json_object_set_new(o, "kernels", json_kernels(ctx));
    if (m) json_object_set_new(o, "measured", json_measured(m));
    return print_json(a, o);
}

static int show(const struct args *a, foci_ctx *ctx)
{
    struct utsname name;
    char           system[192] = "", model[128];
    foci_machine   machine = { FOCI_SIZED(foci_machine) };
    const bool     measure = opt_flag(a, "measure");

    if (uname(&name) >= 0)
        snprintf(system, sizeof system, "%s %s", name.sysname, name.machine);
    cpu_model(model, sizeof model);
    if (measure) {
        const foci_status status = foci_ctx_measure(ctx, &machine);
        if (status) return library_error(a, ctx, status, "measuring");
    }
    if (a->json)
        return show_json(a, ctx, json_machine(ctx, system, model),
                         measure ? &machine : NULL);
    print_machine(ctx, system, model);
    print_levels(ctx);
    if (opt_flag(a, "kernels")) print_kernels(ctx);
    if (measure) print_measured(&machine);
    return EXIT_OK;
}

static int run(const struct args *a)
{
    foci_ctx *ctx = open_device_ctx(a, (int)opt_int(a, "threads", 0));
    if (!ctx) return EXIT_FAILED;
    const int code = show(a, ctx);
    foci_ctx_free(ctx);
    return code;
}

static const struct option options[] = {
    { .name = "kernels", .help = "list the kernels and the levels they are taken from" },
    { .name = "measure", .help = "measure products and memory, in about a second" },
    OPTION_THREADS,
    OPTION_DEVICE,
    { 0 },
};

static const char *const examples[] = {
    "foci info",
    "foci info --measure",
    "FOCI_CPU=avx2 foci info --kernels",
    NULL,
};

const struct verb verb_info = {
    .name = "info",
    .run = run,
    .summary = "the machine, its CPU levels and why one is chosen",
    .usage = "",
    .options = options,
    .examples = examples,
};
