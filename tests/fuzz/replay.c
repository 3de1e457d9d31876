/* replay.c -- give a fuzz target the files of a corpus, where there is no libFuzzer.
 *
 *     replay FOLDER...
 */
#include <dirent.h>

#include "fuzz/fuzz.h"

enum { MOST = 1 << 20 };

static void feed(const char *path)
{
    FILE *file = fopen(path, "rb");
    MUST(file);
    unsigned char *all = malloc(MOST);
    MUST(all);
    const size_t n = fread(all, 1, MOST, file);
    MUST(n < MOST && !ferror(file));
    fclose(file);

    unsigned char *data = malloc(n + !n); /* no byte more, for the sanitizers */
    MUST(data);
    memcpy(data, all, n);
    free(all);
    LLVMFuzzerTestOneInput(data, n);
    free(data);
}

int main(int argc, char **argv)
{
    int n = 0;

    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        MUST(folder);
        for (const struct dirent *e; (e = readdir(folder));) {
            char path[1024];
            if (*e->d_name == '.') continue;
            const int len = snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            MUST(len > 0 && (size_t)len < sizeof path);
            feed(path);
            n++;
        }
        closedir(folder);
    }
    printf("%d inputs\n", n);
    return n == 0;
}
