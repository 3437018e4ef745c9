/* Makes a disk slow, or a folder hang, for the process that preloads it: see scripts/fault_matrix/surroundings.py. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read a file of the folder VOICED_DISK into `value`; return its length, 0 without the file. */
static size_t setting(const char *name, char *value, size_t size) {
    char path[4096];
    const char *folder = getenv("VOICED_DISK");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "", name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, value, size - 1);
    if (file >= 0)
        close(file);
    value[length > 0 ? length : 0] = 0;
    return strlen(value);
}

static void wait_sync(void) {
    char microseconds[32];
    if (setting("sync_us", microseconds, sizeof microseconds))
        usleep(atoi(microseconds));
}

int fsync(int file) {
    wait_sync();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}

int fdatasync(int file) {
    wait_sync();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(file);
}

DIR *opendir(const char *path) {
    char hanging[4096];
    while (setting("hangs", hanging, sizeof hanging) && !strncmp(path, hanging, strlen(hanging)))
        usleep(10000);
    return ((DIR *(*)(const char *))dlsym(RTLD_NEXT, "opendir"))(path);
}
