/* Calls that no sound program makes: each must end in the status that is said here, with a text, and leave everything usable.
 *
 *     hostile MLP.onnx RESHAPE.onnx RUNS
 *
 * RESHAPE.onnx reshapes `x`, f32[n], to `y`, f32[2×n/2], so that its output is its input's memory. */
#include "anabranch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPTIONS "{\"gpu\": false, \"threads\": 2, \"cpu_devices\": \"machine\"}"
#define ENTRIES 4096

static int wrong = 0;

static void note(int line, const char *what) {
    fprintf(stderr, "line %d: %s: %s\n", line, what, anabranch_last_error());
    wrong = 1;
}

#define IS(call, status) do { if ((call) != ANABRANCH_STATUS_##status) note(__LINE__, #call " is not " #status); } while (0)
#define SAYS(text) do { if (!strstr(anabranch_last_error(), (text))) note(__LINE__, text); } while (0)
#define HOLDS(condition) do { if (!(condition)) note(__LINE__, #condition); } while (0)

static anabranch_session *session, *reshape;
static anabranch_tensor input;   /* of the first model: sound */
static const char *output_name;
static anabranch_result *expected;

static void opening(const char *path) {
    anabranch_session *none = (anabranch_session *)&none;
    IS(anabranch_open(NULL, NULL, &none), ARGUMENT);
    HOLDS(none == NULL);
    IS(anabranch_open(path, NULL, NULL), ARGUMENT);
    IS(anabranch_open("/nowhere/model.onnx", NULL, &none), MODEL);
    SAYS("/nowhere/model.onnx");
    IS(anabranch_open("\xff\xfe", NULL, &none), MODEL);
    IS(anabranch_open("", NULL, &none), MODEL);
    const char *options[] = {"", "[]", "{\"threads\": 0}", "{\"speed\": 11}", "{\"gpu\": null}", "\""};
    for (size_t at = 0; at < 6; at++) {
        IS(anabranch_open(path, options[at], &none), OPTION);
        SAYS("plan_capacity");
    }
    IS(anabranch_open(path, "\xff", &none), ARGUMENT);
    IS(anabranch_open(path, "{\"gpu\": false, \"devices\": \"tpu7\"}", &none), DEVICE);
    SAYS("tpu7");
    HOLDS(none == NULL);
    unsigned char bytes[64];
    for (size_t at = 0; at < sizeof bytes; at++) bytes[at] = (unsigned char)(at * 37 + 1);
    IS(anabranch_open_bytes(NULL, 7, NULL, &none), ARGUMENT);
    IS(anabranch_open_bytes(bytes, (size_t)-1, NULL, &none), ARGUMENT);
    IS(anabranch_open_bytes(bytes, sizeof bytes, OPTIONS, &none), MODEL);
    for (size_t size = 0; size < 8; size++) HOLDS(anabranch_open_bytes(bytes, size, OPTIONS, &none) != ANABRANCH_STATUS_OK);
}

static void asking(void) {
    size_t count;
    anabranch_value value;
    IS(anabranch_input_count(NULL, &count), ARGUMENT);
    IS(anabranch_input_count(session, NULL), ARGUMENT);
    IS(anabranch_input(session, 99, &value), ARGUMENT);
    SAYS("99");
    IS(anabranch_input(session, 0, NULL), ARGUMENT);
    IS(anabranch_output(session, (size_t)-1, &value), ARGUMENT);
    IS(anabranch_output_count((const anabranch_session *)expected, &count), ARGUMENT); /* a handle of another kind */
    IS(anabranch_result_count((const anabranch_result *)session, &count), ARGUMENT);
    anabranch_tensor tensor;
    IS(anabranch_result_output(expected, 99, &tensor), ARGUMENT);
    IS(anabranch_result_output(expected, 0, NULL), ARGUMENT);
    IS(anabranch_result_output(expected, 0, (anabranch_tensor *)((char *)&tensor + 1)), ARGUMENT);
    IS(anabranch_input_count(session, (size_t *)((char *)&count + 1)), ARGUMENT);
    char small[4] = "abc";
    IS(anabranch_report(expected, small, sizeof small, &count), BUFFER_TOO_SMALL);
    HOLDS(count > sizeof small && strcmp(small, "abc") == 0);
    IS(anabranch_report(expected, NULL, 4, &count), ARGUMENT);
    IS(anabranch_report(expected, NULL, 0, NULL), ARGUMENT);
    IS(anabranch_report(expected, NULL, 0, (size_t *)((char *)&count + 1)), ARGUMENT);
    IS(anabranch_report(NULL, small, sizeof small, NULL), ARGUMENT);
    char *text = malloc(count);
    IS(anabranch_report(expected, text, count - 1, NULL), BUFFER_TOO_SMALL);
    IS(anabranch_report(expected, text, count, NULL), OK);
    HOLDS(strlen(text) == count - 1 && strstr(text, "\"measured_ms\""));
    free(text);
}

static anabranch_status run(const anabranch_tensor *inputs, size_t count) {
    anabranch_result *result = (anabranch_result *)&result;
    anabranch_status status = anabranch_run(session, inputs, count, NULL, 0, &result);
    if (status != ANABRANCH_STATUS_OK) HOLDS(result == NULL);
    IS(anabranch_result_free(result), OK);
    return status;
}

static void running(void) {
    anabranch_tensor bad[2] = {input, input};
    IS(anabranch_run(session, &input, 1, NULL, 0, NULL), ARGUMENT);
    IS(run(NULL, 1), ARGUMENT);
    IS(run(&input, (size_t)-1), ARGUMENT);
    IS(run((anabranch_tensor *)((char *)bad + 1), 1), ARGUMENT);
    bad[0].dims = (const int64_t *)((const char *)input.dims + 1); IS(run(bad, 1), ARGUMENT); bad[0] = input;
    IS(run(bad, 2), ARGUMENT);
    IS(run(NULL, 0), INPUT);
    SAYS(input.name);
    bad[0].name = NULL; IS(run(bad, 1), ARGUMENT); bad[0] = input;
    bad[0].name = "\xc3("; IS(run(bad, 1), ARGUMENT); bad[0] = input;
    bad[0].name = "nobody"; IS(run(bad, 1), INPUT); bad[0] = input;
    bad[0].data = NULL; IS(run(bad, 1), ARGUMENT); bad[0] = input;
    bad[0].bytes--; IS(run(bad, 1), ARGUMENT); bad[0] = input;
    bad[0].bytes = (size_t)-1; IS(run(bad, 1), ARGUMENT); bad[0] = input;
    bad[0].dims = NULL; IS(run(bad, 1), ARGUMENT); bad[0] = input;
    bad[0].rank = (size_t)-1; IS(run(bad, 1), ARGUMENT); bad[0] = input;
    bad[0].rank = 0; IS(run(bad, 1), ARGUMENT); bad[0] = input;
    for (int32_t type = -3; type < 300; type++) {
        if (type == input.element_type) continue;
        bad[0].element_type = type;
        HOLDS(run(bad, 1) != ANABRANCH_STATUS_OK);
    }
    bad[0] = input;
    bad[0].element_type = ANABRANCH_TYPE_I32; /* of the same size */
    IS(run(bad, 1), INPUT);
    bad[0] = input;
    int64_t dims[2] = {-1, 1};
    bad[0].dims = dims; IS(run(bad, 1), ARGUMENT);
    dims[0] = INT64_MAX, dims[1] = INT64_MAX; IS(run(bad, 1), ARGUMENT);
    dims[0] = 0, dims[1] = INT64_MAX, bad[0].bytes = 0; HOLDS(run(bad, 1) != ANABRANCH_STATUS_OK);
    dims[0] = input.dims[1], dims[1] = input.dims[0], bad[0].bytes = input.bytes;
    if (dims[0] != dims[1]) IS(run(bad, 1), INPUT);
    IS(run(&input, 1), OK);
}

static void into_buffers(void) {
    anabranch_tensor made;
    IS(anabranch_result_output(expected, 0, &made), OK);
    unsigned char *memory = malloc(made.bytes + 192);
    unsigned char *aligned = memory + (128 - (size_t)memory % 64);
    anabranch_output_buffer sound = {output_name, made.element_type, made.dims, made.rank, aligned, made.bytes}, output = sound;
#define INTO(output, count) anabranch_run_into(session, &input, 1, output, count, NULL, 0)
    for (size_t offset = 0; offset < 2; offset++) { /* written directly, and copied */
        memset(memory, 7, made.bytes + 192);
        output.data = aligned - offset;
        IS(INTO(&output, 1), OK);
        HOLDS(memcmp(output.data, made.data, made.bytes) == 0);
        HOLDS(aligned[made.bytes - offset] == 7 && aligned[-1 - (ptrdiff_t)offset] == 7);
    }
    output = sound;
    IS(INTO(NULL, 0), OK);
    IS(INTO(NULL, 1), ARGUMENT);
    IS(INTO(&output, 99), ARGUMENT);
    output.name = "nobody"; IS(INTO(&output, 1), ARGUMENT); output = sound;
    output.name = NULL; IS(INTO(&output, 1), ARGUMENT); output = sound;
    output.data = NULL; IS(INTO(&output, 1), ARGUMENT); output = sound;
    output.bytes -= 4; IS(INTO(&output, 1), ARGUMENT); output = sound;
    output.element_type = ANABRANCH_TYPE_I32; IS(INTO(&output, 1), ARGUMENT); output = sound;
    int64_t dims[2] = {1, made.dims[0] * made.dims[1]};
    output.dims = dims; IS(INTO(&output, 1), ARGUMENT); output = sound;
    SAYS(output_name);
    output.data = (void *)input.data; /* where the input is */
    IS(INTO(&output, 1), ARGUMENT);
    SAYS("another tensor");
    output = sound;
    IS(anabranch_run_into(NULL, &input, 1, &output, 1, NULL, 0), ARGUMENT);
    IS(anabranch_run_into(session, NULL, 0, &output, 1, NULL, 0), INPUT);
    size_t needed;
    IS(anabranch_plan(session, NULL, 0, NULL, 0, &needed), INPUT);
    IS(anabranch_plan(session, &input, 1, NULL, 0, &needed), OK);
    free(memory);
}

/* What a result has is its own, also where the model gives back its input. */
static void borrowed(void) {
    float *data = malloc(ENTRIES * sizeof *data);
    for (int at = 0; at < ENTRIES; at++) data[at] = (float)at;
    int64_t dims[1] = {ENTRIES};
    anabranch_tensor x = {"x", ANABRANCH_TYPE_F32, dims, 1, data, ENTRIES * sizeof *data}, y;
    anabranch_result *result;
    IS(anabranch_run(reshape, &x, 1, NULL, 0, &result), OK);
    memset(data, 0, ENTRIES * sizeof *data);
    free(data);
    IS(anabranch_session_free(reshape), OK); /* results stay */
    IS(anabranch_result_output(result, 0, &y), OK);
    HOLDS(y.rank == 2 && y.dims[0] == 2 && y.dims[1] == ENTRIES / 2 && y.bytes == ENTRIES * sizeof(float));
    for (int at = 0; at < ENTRIES; at++) HOLDS(((const float *)y.data)[at] == (float)at);
    IS(anabranch_result_free(result), OK);
}

static int runs;

static void *work(void *unused) {
    (void)unused;
    if (strcmp(anabranch_last_error(), "") != 0) note(__LINE__, "a thread begins with another's error");
    anabranch_tensor wanted, made;
    if (anabranch_result_output(expected, 0, &wanted) != ANABRANCH_STATUS_OK) return "expected";
    for (int at = 0; at < runs; at++) {
        anabranch_result *result;
        if (anabranch_run(session, &input, 1, NULL, 0, &result) != ANABRANCH_STATUS_OK) return "run";
        if (anabranch_result_output(result, 0, &made) != ANABRANCH_STATUS_OK) return "output";
        if (made.bytes != wanted.bytes || memcmp(made.data, wanted.data, made.bytes)) return "other bits";
        if (anabranch_result_free(result) != ANABRANCH_STATUS_OK) return "free";
    }
    return NULL;
}

static void *until(void *cancel) {
    for (;;) {
        anabranch_result *result;
        anabranch_status status = anabranch_run(session, &input, 1, cancel, 0, &result);
        if (status != ANABRANCH_STATUS_OK) return (void *)(size_t)status;
        anabranch_result_free(result);
    }
}

static void threads(void) {
    pthread_t all[4];
    for (size_t at = 0; at < 4; at++) pthread_create(&all[at], NULL, work, NULL);
    for (size_t at = 0; at < 4; at++) {
        void *fault;
        pthread_join(all[at], &fault);
        if (fault) note(__LINE__, fault);
    }
    anabranch_cancel *cancel;
    void *status;
    IS(anabranch_cancel_new(NULL), ARGUMENT);
    IS(anabranch_cancel_new(&cancel), OK);
    pthread_create(&all[0], NULL, until, cancel);
    usleep(20000);
    IS(anabranch_cancel_request(cancel), OK);
    pthread_join(all[0], &status);
    HOLDS((size_t)status == ANABRANCH_STATUS_CANCELLED);
    anabranch_result *result;
    IS(anabranch_run(session, &input, 1, cancel, UINT64_MAX, &result), CANCELLED);
    IS(anabranch_cancel_free(cancel), OK);
    IS(anabranch_cancel_free(cancel), ARGUMENT);
    IS(anabranch_cancel_request(cancel), ARGUMENT);
    IS(anabranch_run(session, &input, 1, cancel, 0, &result), ARGUMENT);
    /* A session that is freed while two threads run it: they finish what they are at. */
    for (size_t at = 0; at < 2; at++) pthread_create(&all[at], NULL, until, NULL);
    usleep(20000);
    IS(anabranch_session_free(session), OK);
    for (size_t at = 0; at < 2; at++) {
        pthread_join(all[at], &status);
        HOLDS((size_t)status == ANABRANCH_STATUS_ARGUMENT);
    }
}

static void twice(void) {
    anabranch_tensor made;
    size_t count;
    IS(anabranch_session_free(session), ARGUMENT);
    SAYS("freed");
    IS(anabranch_session_free(NULL), OK);
    IS(anabranch_session_free((anabranch_session *)expected), ARGUMENT);
    IS(anabranch_input_count(session, &count), ARGUMENT);
    IS(run(&input, 1), ARGUMENT);
    IS(anabranch_result_free(expected), OK);
    IS(anabranch_result_free(expected), ARGUMENT);
    IS(anabranch_result_output(expected, 0, &made), ARGUMENT);
    IS(anabranch_result_free((anabranch_result *)&made), ARGUMENT); /* a pointer that nobody gave out */
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    runs = atoi(arguments[3]);
    HOLDS(strcmp(anabranch_last_error(), "") == 0);
    opening(arguments[1]);
    IS(anabranch_open(arguments[1], OPTIONS, &session), OK);
    IS(anabranch_open(arguments[2], OPTIONS, &reshape), OK);
    if (wrong) return 1;

    anabranch_value x, y;
    IS(anabranch_input(session, 0, &x), OK);
    IS(anabranch_output(session, 0, &y), OK);
    HOLDS(x.rank == 2 && x.dims[0] == -1 && x.dims[1] > 0 && x.element_type == ANABRANCH_TYPE_F32 && !x.is_optional);
    HOLDS(strstr(x.description, x.name) == x.description);
    /* Above 4 KiB, so that it is used where it is. */
    int64_t dims[2] = {64, x.dims[1]};
    size_t elements = (size_t)(dims[0] * dims[1]);
    float *data = malloc(elements * sizeof *data);
    for (size_t at = 0; at < elements; at++) data[at] = (float)(at % 17) / 17;
    char *name = malloc(strlen(x.name) + 1), *made = malloc(strlen(y.name) + 1);
    strcpy(name, x.name), strcpy(made, y.name);
    output_name = made;
    anabranch_tensor sound = {name, x.element_type, dims, 2, data, elements * sizeof *data};
    input = sound;
    IS(anabranch_run(session, &input, 1, NULL, 0, &expected), OK);
    if (wrong) return 1;
    asking();
    running();
    into_buffers();
    borrowed();
    threads();
    twice();
    free(data), free(name), free(made);
    if (!wrong) printf("as it should be\n");
    return wrong;
}
