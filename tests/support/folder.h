/* folder.h -- folders that tests write to. */
#ifndef FOCI_FOLDER_H
#define FOCI_FOLDER_H

#include <dirent.h>

#include "test.h"

/* Names in it; temporary ones begin with a dot. */
static inline int folder_entries(const char *path)
{
    DIR *d = opendir(path);
    int  n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

#endif
