/* Buffers and reads of one library that fail when a test demands it. */
#ifndef FAULTS_H
#define FAULTS_H

enum faults_kind {
    /* Memory of a tensor: aligned to a cache line, or separate pages. Fails with ENOMEM. */
    FAULTS_BUFFER,
    /* A read or a mapping of the file. Fails with EIO. */
    FAULTS_READ,
};

/* Watches the calls of the library whose path contains `library`, and its reads of `file`, an absolute path without
 * links. */
void faults_watch(const char *library, const char *file);

/* Lets `n` calls of the kind succeed, and the next one fail. Later calls succeed. */
void faults_arm(enum faults_kind of, long n);

/* Lets all calls succeed again. Returns whether a call has failed. */
int faults_met(void);

/* Returns the number of buffers that the library has taken and not released. */
long faults_live(void);

#endif
