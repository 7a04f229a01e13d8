/* Buffers and reads of one library that fail where a test says. */
#ifndef FAULTS_H
#define FAULTS_H

enum faults_kind {
    /* Memory of a tensor: aligned to a cache line, or pages of its own. Fails with ENOMEM. */
    FAULTS_BUFFER,
    /* A read or a mapping of the file. Fails with EIO. */
    FAULTS_READ,
};

/* Watches the calls of the library whose path contains `library`, and its reads of `file`, an absolute path without
 * links. */
void faults_watch(const char *library, const char *file);

/* Lets `n` calls of the kind go well, and the next one fail. Those after it go well. */
void faults_arm(enum faults_kind of, long n);

/* Lets all calls go well again. Returns whether one has failed. */
int faults_met(void);

/* Returns the number of buffers that the library has taken and not given back. */
long faults_live(void);

#endif
