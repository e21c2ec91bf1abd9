/* flock() fails with the error $CALSTUDY_FLOCK_ERROR for every file below $CALSTUDY_NO_FLOCK, as on a share whose server
   gives no locks; elsewhere it is as ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int flock(int file, int operation) {
    static int (*real)(int, int);
    if (!real) real = dlsym(RTLD_NEXT, "flock");
    const char *folder = getenv("CALSTUDY_NO_FLOCK"), *error = getenv("CALSTUDY_FLOCK_ERROR");
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (folder && error && length > 0) {
        path[length] = 0;
        size_t depth = strlen(folder);
        if (!strncmp(path, folder, depth) && path[depth] == '/') {
            errno = atoi(error);
            return -1;
        }
    }
    return real(file, operation);
}
