/* Makes the n-th buffer or the n-th read of one library fail, and counts the buffers that it has not released.
 *
 * A test preloads this file as a library (LD_PRELOAD) or compiles it into its program. It replaces the functions of
 * glibc that Rust's standard library and memmap2 call. Calls from other libraries of the process are not affected. */
#define _GNU_SOURCE
#include "faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Only buffers of tensors are aligned to cache lines. */
enum { ALIGNMENT = 64, MOST_BUFFERS = 1 << 14 };

extern void __libc_free(void *memory);

static char watched[PATH_MAX], faulty[PATH_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum faults_kind kind;
/* Calls that succeed before one fails; if negative, all succeed. */
static long left = -1;
static void *buffers[MOST_BUFFERS];
static long live;

void faults_watch(const char *library, const char *file) {
    snprintf(watched, sizeof watched, "%s", library);
    snprintf(faulty, sizeof faulty, "%s", file);
}

void faults_arm(enum faults_kind of, long n) {
    pthread_mutex_lock(&lock);
    kind = of, left = n;
    pthread_mutex_unlock(&lock);
}

int faults_met(void) {
    pthread_mutex_lock(&lock);
    int met = left < 0;
    left = -1;
    pthread_mutex_unlock(&lock);
    return met;
}

long faults_live(void) { return __atomic_load_n(&live, __ATOMIC_SEQ_CST); }

/* Whether this is the call that fails. */
static int fails(enum faults_kind of) {
    pthread_mutex_lock(&lock);
    int it_does = kind == of && left >= 0 && left-- == 0;
    pthread_mutex_unlock(&lock);
    return it_does;
}

/* Whether an address is within the watched library. */
static int ours(void *address) {
    Dl_info info;
    return *watched && dladdr(address, &info) && info.dli_fname && strstr(info.dli_fname, watched);
}

/* Replaces `from` by `to`; a null pointer is an empty slot. Returns whether `from` was found. */
static int replaced(void *from, void *to) {
    uintptr_t at = (uintptr_t)(from ? from : to) / ALIGNMENT;
    for (int step = 0; step < MOST_BUFFERS; step++) {
        void *expected = from;
        void **place = &buffers[(at + step) % MOST_BUFFERS];
        if (__atomic_load_n(place, __ATOMIC_SEQ_CST) != from) continue;
        if (__atomic_compare_exchange_n(place, &expected, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return 1;
    }
    return 0;
}

static void begun(void *buffer) {
    if (replaced(NULL, buffer)) __atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
}

static void ended(void *buffer) {
    if (buffer && (uintptr_t)buffer % ALIGNMENT == 0 && faults_live() && replaced(buffer, NULL))
        __atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST);
}

int posix_memalign(void **pointer, size_t alignment, size_t size) {
    int counts = alignment == ALIGNMENT && ours(__builtin_return_address(0));
    if (counts && fails(FAULTS_BUFFER)) return ENOMEM;
    void *memory = memalign(alignment, size);
    if (!memory) return ENOMEM;
    if (counts) begun(memory);
    *pointer = memory;
    return 0;
}

void free(void *memory) {
    ended(memory);
    __libc_free(memory);
}

/* Whether a descriptor belongs to the file whose reads fail, and this read fails. */
static int read_fails(int descriptor, void *caller) {
    char link[64], name[PATH_MAX];
    if (!*faulty || !ours(caller)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0) return 0;
    name[length] = 0;
    return !strcmp(name, faulty) && fails(FAULTS_READ);
}

ssize_t read(int descriptor, void *bytes, size_t count) {
    if (read_fails(descriptor, __builtin_return_address(0))) return errno = EIO, -1;
    return syscall(SYS_read, descriptor, bytes, count);
}

ssize_t pread64(int descriptor, void *bytes, size_t count, off64_t offset) {
    if (read_fails(descriptor, __builtin_return_address(0))) return errno = EIO, -1;
    return syscall(SYS_pread64, descriptor, bytes, count, offset);
}

void *mmap64(void *wanted, size_t length, int protection, int flags, int descriptor, off64_t offset) {
    void *caller = __builtin_return_address(0);
    int counts = flags & MAP_ANONYMOUS && ours(caller);
    if (counts && fails(FAULTS_BUFFER)) return errno = ENOMEM, MAP_FAILED;
    if (!(flags & MAP_ANONYMOUS) && read_fails(descriptor, caller)) return errno = EIO, MAP_FAILED;
    void *memory = (void *)syscall(SYS_mmap, wanted, length, protection, flags, descriptor, offset);
    if (counts && memory != MAP_FAILED) begun(memory);
    return memory;
}

int munmap(void *memory, size_t length) {
    ended(memory);
    return (int)syscall(SYS_munmap, memory, length);
}
