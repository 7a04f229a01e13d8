/* Opens a model, runs it on ones, and prints its outputs, its plan's size and a summary of the run.
 *
 *     cargo build --release -p anabranch-c
 *     cc -Iinclude examples/c/run_model.c -Ltarget/release -lanabranch_c -Wl,-rpath,target/release -o run_model
 *     ./run_model MODEL.onnx '{"place": "auto"}'
 */
#include "anabranch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(anabranch_status status) {
    if (status != ANABRANCH_STATUS_OK) {
        fprintf(stderr, "run_model: %s\n", anabranch_last_error());
        exit(1);
    }
}

static void *room_for(size_t bytes) {
    void *room = calloc(bytes ? bytes : 1, 1);
    if (!room) {
        fprintf(stderr, "run_model: no memory\n");
        exit(1);
    }
    return room;
}

/* Returns an input of ones for 32-bit floats, and of zeros for other types; undeclared dimensions are 1. */
static anabranch_tensor filled(const anabranch_value *value) {
    int64_t *dims = room_for(16 * sizeof *dims);
    size_t elements = 1, size;
    for (int32_t axis = 0; axis < value->rank; axis++) {
        dims[axis] = value->dims[axis] < 0 ? 1 : value->dims[axis];
        elements *= (size_t)dims[axis];
    }
    switch (value->element_type) {
    case ANABRANCH_TYPE_I64:
    case ANABRANCH_TYPE_U64:
    case ANABRANCH_TYPE_F64: size = 8; break;
    case ANABRANCH_TYPE_F32:
    case ANABRANCH_TYPE_I32:
    case ANABRANCH_TYPE_U32: size = 4; break;
    case ANABRANCH_TYPE_F16:
    case ANABRANCH_TYPE_BF16:
    case ANABRANCH_TYPE_I16:
    case ANABRANCH_TYPE_U16: size = 2; break;
    default: size = 1;
    }
    void *data = room_for(elements * size);
    if (value->element_type == ANABRANCH_TYPE_F32)
        for (size_t at = 0; at < elements; at++)
            ((float *)data)[at] = 1.0f;
    anabranch_tensor tensor = {value->name, value->element_type, dims, value->rank < 0 ? 0 : (size_t)value->rank,
                               data, elements * size};
    return tensor;
}

int main(int count, char **arguments) {
    if (count < 2 || count > 3) {
        fprintf(stderr, "usage: run_model MODEL.onnx [OPTIONS as JSON]\n");
        return 2;
    }
    if (anabranch_interface() != ANABRANCH_INTERFACE) {
        fprintf(stderr, "run_model: the library has another interface than the header\n");
        return 2;
    }
    anabranch_session *session;
    check(anabranch_open(arguments[1], count == 3 ? arguments[2] : NULL, &session));

    size_t input_count;
    check(anabranch_input_count(session, &input_count));
    anabranch_tensor *inputs = room_for(input_count * sizeof *inputs);
    for (size_t at = 0; at < input_count; at++) {
        anabranch_value value;
        check(anabranch_input(session, at, &value));
        printf("input %s\n", value.description);
        inputs[at] = filled(&value);
    }

    size_t bytes;
    check(anabranch_plan(session, inputs, input_count, NULL, 0, &bytes));
    char *text = room_for(bytes);
    check(anabranch_plan(session, inputs, input_count, text, bytes, NULL));
    printf("plan: %zu bytes of JSON\n", strlen(text));
    free(text);

    anabranch_result *result;
    check(anabranch_run(session, inputs, input_count, NULL, 0, &result));
    size_t output_count;
    check(anabranch_result_count(result, &output_count));
    for (size_t at = 0; at < output_count; at++) {
        anabranch_tensor output;
        check(anabranch_result_output(result, at, &output));
        printf("output %s: %zu bytes", output.name, output.bytes);
        if (output.element_type == ANABRANCH_TYPE_F32 && output.bytes)
            printf(", the first is %g", ((const float *)output.data)[0]);
        printf("\n");
    }
    check(anabranch_report(result, NULL, 0, &bytes));
    text = room_for(bytes);
    check(anabranch_report(result, text, bytes, NULL));
    printf("report: %s\n", text);
    free(text);

    for (size_t at = 0; at < input_count; at++) {
        free((void *)inputs[at].dims);
        free((void *)inputs[at].data);
    }
    free(inputs);
    check(anabranch_result_free(result));
    check(anabranch_session_free(session));
    printf("anabranch %s\n", anabranch_version());
    return 0;
}
