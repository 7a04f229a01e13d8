/* The n-th buffer of the library is refused, or the n-th read of a model's file fails, for every n. The call returns a
 * status with its text, the next run is right, and every buffer is given back.
 *
 *     faults MODEL.onnx FILE
 *
 * FILE holds the weights: the model itself or its external data, as an absolute path without links. */
#include "anabranch.h"
#include "faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS "{\"gpu\": false, \"threads\": 1, \"cpu_devices\": \"machine\"}"
#define REQUIRE(condition)                                                                                    \
    do {                                                                                                      \
        if (!(condition)) fail(__LINE__, #condition);                                                         \
    } while (0)

static const char *const kinds[] = {"buffer", "read"};
static enum faults_kind kind;
static long at;
static const char *model, *file;

/* Every input is this large at most. */
static float elements[1 << 16];

static void fail(int line, const char *condition) {
    fprintf(stderr, "line %d, %s %ld: %s: %s\n", line, kinds[kind], at, condition, anabranch_last_error());
    exit(1);
}

static void says_why(anabranch_status status) {
    const char *text = anabranch_last_error();
    if (kind == FAULTS_BUFFER) {
        REQUIRE(status == ANABRANCH_STATUS_MEMORY || status == ANABRANCH_STATUS_MODEL);
        REQUIRE(strstr(text, "memory"));
    } else {
        REQUIRE(status == ANABRANCH_STATUS_MODEL);
        REQUIRE(strstr(text, strrchr(file, '/') + 1));
    }
}

/* Runs a model of one input, whose open dimensions are 2. */
static anabranch_status run(anabranch_session *session, anabranch_result **result) {
    anabranch_value x;
    REQUIRE(anabranch_input(session, 0, &x) == ANABRANCH_STATUS_OK);
    int64_t dims[8];
    REQUIRE(x.rank >= 0 && x.rank <= 8);
    size_t count = 1;
    for (int32_t axis = 0; axis < x.rank; axis++) count *= (size_t)(dims[axis] = x.dims[axis] < 0 ? 2 : x.dims[axis]);
    REQUIRE(count <= sizeof elements / sizeof *elements);
    anabranch_tensor input = {x.name, x.element_type, dims, (size_t)x.rank, elements, count * sizeof *elements};
    return anabranch_run(session, &input, 1, NULL, 0, result);
}

/* Compares the first output with the expected one, and frees the result. */
static void right(anabranch_result *expected, anabranch_result *result) {
    anabranch_tensor one, other;
    REQUIRE(anabranch_result_output(expected, 0, &one) == ANABRANCH_STATUS_OK);
    REQUIRE(anabranch_result_output(result, 0, &other) == ANABRANCH_STATUS_OK);
    REQUIRE(one.bytes == other.bytes && one.bytes > 0);
    const float *a = one.data, *b = other.data;
    for (size_t element = 0; element < one.bytes / sizeof *a; element++) {
        float off = a[element] - b[element];
        REQUIRE(off <= 1e-5f && off >= -1e-5f);
    }
    REQUIRE(anabranch_result_free(result) == ANABRANCH_STATUS_OK);
}

static void right_run(anabranch_session *session, anabranch_result *expected) {
    anabranch_result *result;
    REQUIRE(run(session, &result) == ANABRANCH_STATUS_OK);
    right(expected, result);
}

/* Opens the model and runs it, one of which meets the fault. Returns whether it was met. */
static int meets(int opening, anabranch_result *expected, long *failed) {
    anabranch_session *session = NULL;
    anabranch_result *result;
    if (opening) faults_arm(kind, at);
    anabranch_status status = anabranch_open(model, OPTIONS, &session);
    if (!opening) {
        REQUIRE(status == ANABRANCH_STATUS_OK);
        faults_arm(kind, at);
        status = run(session, &result);
    }
    int met = faults_met();
    if (status != ANABRANCH_STATUS_OK) {
        REQUIRE(met);
        says_why(status);
        ++*failed;
    } else if (!opening) {
        right(expected, result);
    }
    if (session) {
        right_run(session, expected);
        REQUIRE(anabranch_session_free(session) == ANABRANCH_STATUS_OK);
    }
    return met;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    model = arguments[1], file = arguments[2];
    faults_watch("libanabranch_c", file);
    for (size_t element = 0; element < sizeof elements / sizeof *elements; element++)
        elements[element] = (float)(element % 17) / 17;
    anabranch_session *session;
    anabranch_result *expected;
    REQUIRE(anabranch_open(model, OPTIONS, &session) == ANABRANCH_STATUS_OK);
    REQUIRE(run(session, &expected) == ANABRANCH_STATUS_OK);
    REQUIRE(anabranch_session_free(session) == ANABRANCH_STATUS_OK);
    long live = faults_live();
    for (kind = FAULTS_BUFFER; kind <= FAULTS_READ; kind++) {
        long failed = 0;
        for (int opening = 0; opening < 2; opening++)
            for (at = 0; meets(opening, expected, &failed); at++) REQUIRE(faults_live() == live);
        REQUIRE(failed > 0);
        printf("%s: %ld failures\n", kinds[kind], failed);
    }
    anabranch_result_free(expected);
    puts("as it should be");
    return 0;
}
