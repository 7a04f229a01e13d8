/* Anabranch: runs one ONNX graph over all the devices of a machine. docs/c.md is the guide, limits first.
 *
 * Made by scripts/header from plugin/c/src; a test fails where it is stale. */

#ifndef ANABRANCH_H
#define ANABRANCH_H

#include <stddef.h>
#include <stdint.h>

/**
 * Version of this header. It changes when callers have to be compiled again.
 */
#define ANABRANCH_INTERFACE 1

/**
 * Result of a call. anabranch_last_error() returns the text of a failure. Further numbers may be added.
 */
enum anabranch_status
#ifdef __cplusplus
  : int32_t
#endif // __cplusplus
 {
  /**
   * The call succeeded.
   */
  ANABRANCH_STATUS_OK = 0,
  /**
   * The call is wrong: a null pointer, a handle that is not open, sizes that contradict each other, an unknown
   * output.
   */
  ANABRANCH_STATUS_ARGUMENT = 1,
  /**
   * An option is unknown, has an invalid value, or names a strategy or a file that does not exist.
   */
  ANABRANCH_STATUS_OPTION = 2,
  /**
   * The file cannot be read, or is not a valid ONNX model.
   */
  ANABRANCH_STATUS_MODEL = 3,
  /**
   * The model uses operators without a kernel.
   */
  ANABRANCH_STATUS_UNSUPPORTED = 4,
  /**
   * An input is missing, or does not match the model's declaration.
   */
  ANABRANCH_STATUS_INPUT = 5,
  /**
   * A device does not exist, cannot be used, or was lost.
   */
  ANABRANCH_STATUS_DEVICE = 6,
  /**
   * The required memory exceeds a device's memory, or no memory is left.
   */
  ANABRANCH_STATUS_MEMORY = 7,
  /**
   * There is no plan within the constraints, for another reason than memory.
   */
  ANABRANCH_STATUS_INFEASIBLE = 8,
  /**
   * The run was cancelled.
   */
  ANABRANCH_STATUS_CANCELLED = 9,
  /**
   * The run exceeded its time limit.
   */
  ANABRANCH_STATUS_TIMEOUT = 10,
  /**
   * The buffer is too small for the text; the call reports the required size.
   */
  ANABRANCH_STATUS_BUFFER_TOO_SMALL = 11,
  /**
   * A bug in Anabranch. Please report it.
   */
  ANABRANCH_STATUS_INTERNAL = 12,
};
#ifndef __cplusplus
typedef int32_t anabranch_status;
#endif // __cplusplus

/**
 * Element types, numbered as in ONNX files.
 */
enum anabranch_type
#ifdef __cplusplus
  : int32_t
#endif // __cplusplus
 {
  /**
   * Not declared.
   */
  ANABRANCH_TYPE_UNKNOWN = 0,
  /**
   * IEEE 754 binary32.
   */
  ANABRANCH_TYPE_F32 = 1,
  /**
   * 8-bit unsigned integer.
   */
  ANABRANCH_TYPE_U8 = 2,
  /**
   * 8-bit signed integer.
   */
  ANABRANCH_TYPE_I8 = 3,
  /**
   * 16-bit unsigned integer.
   */
  ANABRANCH_TYPE_U16 = 4,
  /**
   * 16-bit signed integer.
   */
  ANABRANCH_TYPE_I16 = 5,
  /**
   * 32-bit signed integer.
   */
  ANABRANCH_TYPE_I32 = 6,
  /**
   * 64-bit signed integer.
   */
  ANABRANCH_TYPE_I64 = 7,
  /**
   * One byte, 0 or 1.
   */
  ANABRANCH_TYPE_BOOL = 9,
  /**
   * IEEE 754 binary16.
   */
  ANABRANCH_TYPE_F16 = 10,
  /**
   * IEEE 754 binary64.
   */
  ANABRANCH_TYPE_F64 = 11,
  /**
   * 32-bit unsigned integer.
   */
  ANABRANCH_TYPE_U32 = 12,
  /**
   * 64-bit unsigned integer.
   */
  ANABRANCH_TYPE_U64 = 13,
  /**
   * The upper half of a binary32.
   */
  ANABRANCH_TYPE_BF16 = 16,
  /**
   * 8-bit float of 4 exponent and 3 mantissa bits, without infinities.
   */
  ANABRANCH_TYPE_F8E4M3FN = 17,
  /**
   * As F8E4m3fn with another bias, and NaN instead of negative zero.
   */
  ANABRANCH_TYPE_F8E4M3FNUZ = 18,
  /**
   * 8-bit float of 5 exponent and 2 mantissa bits.
   */
  ANABRANCH_TYPE_F8E5M2 = 19,
  /**
   * As F8E5m2 with another bias, NaN instead of negative zero, and no infinities.
   */
  ANABRANCH_TYPE_F8E5M2FNUZ = 20,
  /**
   * 4-bit unsigned integer, in a byte.
   */
  ANABRANCH_TYPE_U4 = 21,
  /**
   * 4-bit signed integer, in a byte.
   */
  ANABRANCH_TYPE_I4 = 22,
  /**
   * 4-bit float of 2 exponent bits and 1 mantissa bit, in a byte.
   */
  ANABRANCH_TYPE_F4E2M1 = 23,
  /**
   * 2-bit unsigned integer, in a byte.
   */
  ANABRANCH_TYPE_U2 = 25,
  /**
   * 2-bit signed integer, in a byte.
   */
  ANABRANCH_TYPE_I2 = 26,
};
#ifndef __cplusplus
typedef int32_t anabranch_type;
#endif // __cplusplus

/**
 * A token that asks runs to stop, from any thread.
 */
typedef struct anabranch_cancel anabranch_cancel;

/**
 * Outputs and report of a run.
 */
typedef struct anabranch_result anabranch_result;

/**
 * An open model.
 */
typedef struct anabranch_session anabranch_session;

/**
 * An input or output as declared by the model. The pointers are valid until the session is freed.
 */
typedef struct anabranch_value {
  /**
   * Name, in UTF-8.
   */
  const char *name;
  /**
   * Description for people, in UTF-8: `x: f32[batch×3×224×224]`, with the symbol `batch`, and `?` for undeclared
   * parts.
   */
  const char *description;
  /**
   * One of anabranch_type; ANABRANCH_TYPE_UNKNOWN for an output whose type is not declared.
   */
  int32_t element_type;
  /**
   * Number of dimensions; -1 if it is not declared.
   */
  int32_t rank;
  /**
   * Dimensions, outermost first; -1 for dimensions that are known only in a run.
   */
  const int64_t *dims;
  /**
   * 1 if the input may be left out, because the model holds a default; otherwise 0.
   */
  int32_t is_optional;
} anabranch_value;

/**
 * A tensor to be read: elements in row-major order, without gaps.
 */
typedef struct anabranch_tensor {
  /**
   * Name, in UTF-8.
   */
  const char *name;
  /**
   * One of anabranch_type.
   */
  int32_t element_type;
  /**
   * Dimensions, outermost first; may be null if there are none.
   */
  const int64_t *dims;
  /**
   * Number of dimensions, at most 16.
   */
  size_t rank;
  /**
   * The elements; may be null if there are no bytes. Used in place if they are aligned to 8 bytes. Copied if they
   * are not aligned, or are few.
   */
  const void *data;
  /**
   * Number of bytes: exactly those of the elements.
   */
  size_t bytes;
} anabranch_tensor;

/**
 * Memory for an output.
 */
typedef struct anabranch_output_buffer {
  /**
   * Name of the output, in UTF-8.
   */
  const char *name;
  /**
   * One of anabranch_type: exactly the output's.
   */
  int32_t element_type;
  /**
   * Dimensions, outermost first: exactly the output's. May be null if there are none.
   */
  const int64_t *dims;
  /**
   * Number of dimensions, at most 16.
   */
  size_t rank;
  /**
   * Memory for the elements; may be null if there are no bytes. Written directly if it is aligned to 8 bytes.
   */
  void *data;
  /**
   * Number of bytes: exactly those of the elements.
   */
  size_t bytes;
} anabranch_output_buffer;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the header that the library was built with, to be compared with ANABRANCH_INTERFACE.
 *
 * Any thread, at any time.
 */
uint32_t anabranch_interface(void);

/**
 * Returns the library's version, such as "0.1.0". The string is never freed.
 *
 * Any thread, at any time.
 */
const char *anabranch_version(void);

/**
 * Makes a token that can be passed to runs. On success `cancel` is a handle, which anabranch_cancel_free() closes.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `cancel` must point to a writable pointer, or be null.
 */
anabranch_status anabranch_cancel_new(struct anabranch_cancel **cancel);

/**
 * Asks every run with this token to stop, now and in future: a token that was used once stays used.
 *
 * Runs end with ANABRANCH_STATUS_CANCELLED between nodes, between the parts of a CPU's kernel, or within milliseconds
 * of a wait. Planning is not interrupted.
 *
 * Any thread, at any time; not from a signal handler.
 */
anabranch_status anabranch_cancel_request(struct anabranch_cancel *cancel);

/**
 * Closes a token. Does nothing if it is null. Runs that use it are not stopped.
 *
 * Any thread, at any time.
 */
anabranch_status anabranch_cancel_free(struct anabranch_cancel *cancel);

/**
 * Opens the ONNX model in a file. On success `session` is a handle, which anabranch_session_free() closes; on failure
 * it is null.
 *
 * `options` is a JSON object, such as `{"place": "auto", "threads": 2}`, or null for no options. docs/c.md lists
 * the options, and so does the error of an unknown option.
 *
 * Any thread, at any time. Takes as long as reading the model and looking for devices.
 *
 * # Safety
 * `path` and `options` must be strings that end with a zero byte, or null. `session` must point to a writable pointer,
 * or be null.
 */
anabranch_status anabranch_open(const char *path, const char *options, struct anabranch_session **session);

/**
 * Opens the ONNX model in `size` bytes, which must not refer to other files, and may be freed afterwards. Otherwise as
 * anabranch_open().
 *
 * Any thread, at any time.
 *
 * # Safety
 * `bytes` must point to `size` bytes, or be null; otherwise as `anabranch_open`.
 */
anabranch_status anabranch_open_bytes(const void *bytes,
                                      size_t size,
                                      const char *options,
                                      struct anabranch_session **session);

/**
 * Closes a session. Does nothing if it is null. Running calls complete as if it were open. Declarations from
 * anabranch_input() and anabranch_output() become invalid. Results of its runs stay.
 *
 * Any thread, at any time.
 */
anabranch_status anabranch_session_free(struct anabranch_session *session);

/**
 * Returns the number of the model's inputs.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `count` must point to a writable number, or be null.
 */
anabranch_status anabranch_input_count(const struct anabranch_session *session, size_t *count);

/**
 * Returns the declaration of an input, by its index from 0.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `value` must point to a writable anabranch_value, or be null.
 */
anabranch_status anabranch_input(const struct anabranch_session *session, size_t index, struct anabranch_value *value);

/**
 * Returns the number of the model's outputs.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `count` must point to a writable number, or be null.
 */
anabranch_status anabranch_output_count(const struct anabranch_session *session, size_t *count);

/**
 * Returns the declaration of an output, by its index from 0.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `value` must point to a writable anabranch_value, or be null.
 */
anabranch_status anabranch_output(const struct anabranch_session *session, size_t index, struct anabranch_value *value);

/**
 * Returns the number of outputs of a run, which is that of the model.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `count` must point to a writable number, or be null.
 */
anabranch_status anabranch_result_count(const struct anabranch_result *result, size_t *count);

/**
 * Returns an output, by its index in the model's order from 0. The pointers in `tensor` belong to the result, and are
 * valid until it is freed. The elements are aligned to 64 bytes.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `tensor` must point to a writable anabranch_tensor, or be null.
 */
anabranch_status anabranch_result_output(const struct anabranch_result *result,
                                         size_t index,
                                         struct anabranch_tensor *tensor);

/**
 * Returns a report of a run as JSON: predicted and measured milliseconds, and nodes, peak and limit in bytes of each
 * device. With the option `profile`, also the times of each node and transfer, in nanoseconds.
 *
 * The report is written to `buffer` with a zero byte at its end, if `capacity` is large enough. `needed` receives the
 * number of required bytes. If `buffer` is null and `capacity` is 0, only `needed` is set; otherwise `needed` may be
 * null.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `buffer` must have `capacity` writable bytes, or be null. `needed` must point to a writable number, or be null.
 */
anabranch_status anabranch_report(const struct anabranch_result *result, char *buffer, size_t capacity, size_t *needed);

/**
 * Frees a result and its outputs. Does nothing if it is null.
 *
 * Any thread, at any time at which no thread reads its outputs.
 */
anabranch_status anabranch_result_free(struct anabranch_result *result);

/**
 * Runs the model. On success `result` is a handle, which anabranch_result_free() closes; on failure it is null.
 *
 * `inputs` are `input_count` tensors in any order, identified by their names. Inputs with a default in the model may
 * be left out. `cancel` is a token, or null. A run that takes longer than `timeout_ms` milliseconds ends with
 * ANABRANCH_STATUS_TIMEOUT; 0 means no limit.
 *
 * The first run with new shapes of inputs makes a plan for them. Any thread, at any time: runs of one session are
 * serialized, since each uses all the devices of its plan. No thread may write the inputs until the call returns.
 * Nothing refers to them afterwards.
 *
 * # Safety
 * `inputs` must point to `input_count` tensors with valid pointers, or be null. `result` must point to a writable
 * pointer, or be null.
 */
anabranch_status anabranch_run(const struct anabranch_session *session,
                               const struct anabranch_tensor *inputs,
                               size_t input_count,
                               const struct anabranch_cancel *cancel,
                               uint64_t timeout_ms,
                               struct anabranch_result **result);

/**
 * Runs the model like anabranch_run(), and writes outputs to the memory in `outputs`.
 *
 * `outputs` are `output_count` entries in any order, identified by the outputs' names; other outputs are not returned.
 * Types, shapes and sizes must be exactly the outputs'. If they follow from the inputs' shapes, they are checked
 * before the run. After a failure the memory's content is undefined.
 *
 * Any thread, at any time, as anabranch_run(). Until the call returns, no thread may write the inputs, nor read or
 * write the outputs' memory.
 *
 * # Safety
 * `inputs` must point to `input_count` tensors, and `outputs` to `output_count` entries, with valid pointers, or be
 * null.
 */
anabranch_status anabranch_run_into(const struct anabranch_session *session,
                                    const struct anabranch_tensor *inputs,
                                    size_t input_count,
                                    const struct anabranch_output_buffer *outputs,
                                    size_t output_count,
                                    const struct anabranch_cancel *cancel,
                                    uint64_t timeout_ms);

/**
 * Returns the plan for inputs of these shapes, as the JSON that `anabranch place` writes.
 *
 * It holds the device of each node with the reason, the order of each device, transfers, predicted times in
 * microseconds and bytes. It can be edited, and passed to a session as the option `place`. The inputs are as in
 * anabranch_run(); later runs with such inputs follow this plan. If shapes depend on computed values, the plan covers
 * only the nodes before them. `buffer`, `capacity` and `needed` are as in anabranch_report().
 *
 * Any thread, at any time. Takes as long as planning, once for each set of shapes.
 *
 * # Safety
 * `inputs` must point to `input_count` tensors with valid pointers, or be null. `buffer` must have `capacity` writable
 * bytes, or be null. `needed` must point to a writable number, or be null.
 */
anabranch_status anabranch_plan(const struct anabranch_session *session,
                                const struct anabranch_tensor *inputs,
                                size_t input_count,
                                char *buffer,
                                size_t capacity,
                                size_t *needed);

/**
 * Returns the text of this thread's last failure, in UTF-8: its subject, and the next step. Empty if no call has
 * failed.
 *
 * The text is valid until the next failing call of this thread, or the thread's end. Successful calls do not change
 * it.
 *
 * Any thread, at any time: each has its own text.
 */
const char *anabranch_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ANABRANCH_H */
