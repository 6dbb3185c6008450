/* Makes writes and syncs of chosen files fail. Loaded before libc (LD_PRELOAD) into the child process of disk_faults.rs.
 *
 * FAULT_PATH  pattern of the paths that are meant (fnmatch)
 * FAULT_CALL  "write" or "sync"
 * FAULT_ERRNO the error; 0 with FAULT_CALL=write: only half of the bytes are written, and nothing fails
 * FAULT_SHORT 1: before the error, one call writes half of its bytes
 * FAULT_AFTER how many calls go well before
 * FAULT_COUNT how many calls fail
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long calls = 0;

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

/* 0: go on; 1: write half; otherwise fail with the error that is returned, negated. */
static int verdict(int fd, const char *call) {
    const char *pattern = getenv("FAULT_PATH");
    const char *wanted = getenv("FAULT_CALL");
    char link[64], path[4096];
    if (!pattern || !wanted || strcmp(call, wanted) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len <= 0) return 0;
    path[len] = 0;
    if (fnmatch(pattern, path, 0) != 0) return 0;
    long at = __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST) - number("FAULT_AFTER");
    if (at < 0 || at >= number("FAULT_COUNT")) return 0;
    if (at == 0) dprintf(2, "fault: %s %s\n", call, path);
    int error = (int)number("FAULT_ERRNO");
    if (strcmp(call, "write") == 0 && (error == 0 || (at == 0 && number("FAULT_SHORT")))) return 1;
    return -error;
}

#define REAL(type, name) ((type)dlsym(RTLD_NEXT, name))

static ssize_t write_at(const char *name, int fd, const void *bytes, size_t count, off_t at) {
    int what = verdict(fd, "write");
    if (what < 0) { errno = -what; return -1; }
    if (what == 1 && count > 1) count /= 2;
    return REAL(ssize_t (*)(int, const void *, size_t, off_t), name)(fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { return write_at("pwrite", fd, bytes, count, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at) { return write_at("pwrite64", fd, bytes, count, at); }

ssize_t write(int fd, const void *bytes, size_t count) {
    int what = verdict(fd, "write");
    if (what < 0) { errno = -what; return -1; }
    if (what == 1 && count > 1) count /= 2;
    return REAL(ssize_t (*)(int, const void *, size_t), "write")(fd, bytes, count);
}

static int sync_file(const char *name, int fd) {
    int what = verdict(fd, "sync");
    if (what < 0) { errno = -what; return -1; }
    return REAL(int (*)(int), name)(fd);
}

int fsync(int fd) { return sync_file("fsync", fd); }
int fdatasync(int fd) { return sync_file("fdatasync", fd); }
