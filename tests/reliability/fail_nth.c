/* Preloaded into a process (LD_PRELOAD), lets its n-th file operation below a folder fail: opening for writing, write, fsync,
   rename, mkdir, unlink, rmdir, truncate. Python's and Arrow's operations both come by here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ONCE = 0, FROM_THERE_ON = 1 };
static char folder[PATH_MAX];
static long count, target;
static int code, lasting;

/* Operations below `where` are counted from now on; number `number` fails with `error`; with `on` FROM_THERE_ON, as on a full
   disk, also all that come later but those that make room. */
void fault_arm(const char *where, long number, int error, int on) {
    strncpy(folder, where, sizeof folder - 1);
    count = 0; target = number; code = error; lasting = on;
}

long fault_count(void) { return count; }

static int below(const char *path) {
    if (!folder[0] || !path) return 0;
    if (path[0] != '/') return 1; /* the process works in the folder */
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

static int of_file(int file) {
    char link[64], path[PATH_MAX];
    if (!folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return path[0] == '/' && below(path);
}

static int fails(int concerned, int makes_room) {
    if (!concerned) return 0;
    ++count;
    if (count == target || (lasting == FROM_THERE_ON && count > target && !makes_room)) { errno = code; return 1; }
    return 0;
}

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, #name)
#define WRITES(flags) (((flags) & O_ACCMODE) != O_RDONLY || ((flags) & (O_CREAT | O_TRUNC)))
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        return fails(WRITES(flags) && below(path), 0) ? -1 : real(path, flags, mode); }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...); \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        return fails(WRITES(flags) && below(path), 0) ? -1 : real(at, path, flags, mode); }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

FILE *fopen64(const char *path, const char *mode) {
    REAL(FILE *, fopen64, const char *, const char *);
    return fails(mode[0] != 'r' && below(path), 0) ? NULL : real(path, mode);
}
ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    return fails(of_file(file), 0) ? -1 : real(file, data, size);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t place) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    return fails(of_file(file), 0) ? -1 : real(file, data, size, place);
}
ssize_t writev(int file, const struct iovec *data, int pieces) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    return fails(of_file(file), 0) ? -1 : real(file, data, pieces);
}
int fsync(int file) {
    REAL(int, fsync, int);
    return fails(of_file(file), 0) ? -1 : real(file);
}
int ftruncate64(int file, off64_t size) {
    REAL(int, ftruncate64, int, off64_t);
    return fails(of_file(file), 0) ? -1 : real(file, size);
}
int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    return fails(below(to), 0) ? -1 : real(from, to);
}
int renameat(int at, const char *from, int there, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    return fails(below(to), 0) ? -1 : real(at, from, there, to);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    return fails(below(path), 0) ? -1 : real(path, mode);
}
int unlink(const char *path) {
    REAL(int, unlink, const char *);
    return fails(below(path), 1) ? -1 : real(path);
}
int unlinkat(int at, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    return fails(below(path), 1) ? -1 : real(at, path, flags);
}
int rmdir(const char *path) {
    REAL(int, rmdir, const char *);
    return fails(below(path), 1) ? -1 : real(path);
}
