/* Anabranch: runs one ONNX graph over all the devices of a machine. docs/c.md is the guide, limits first.
 *
 * Made by scripts/header from plugin/c/src; a test fails where it is stale. */

#ifndef ANABRANCH_H
#define ANABRANCH_H

#include <stddef.h>
#include <stdint.h>

/**
 * The version of this header: it changes when a caller would have to be compiled again.
 */
#define ANABRANCH_INTERFACE 1

/**
 * How a call ended. anabranch_last_error() has the text. Further numbers may be added.
 */
enum anabranch_status
#ifdef __cplusplus
  : int32_t
#endif // __cplusplus
 {
  /**
   * Everything was done.
   */
  ANABRANCH_STATUS_OK = 0,
  /**
   * The call is wrong: a null pointer, a handle that is not open, sizes that contradict each other, no such output.
   */
  ANABRANCH_STATUS_ARGUMENT = 1,
  /**
   * An option is not known, has no such value, or names a strategy or a file that is not there.
   */
  ANABRANCH_STATUS_OPTION = 2,
  /**
   * The file cannot be read, or is no sound ONNX model.
   */
  ANABRANCH_STATUS_MODEL = 3,
  /**
   * The model uses operators that there is no kernel for.
   */
  ANABRANCH_STATUS_UNSUPPORTED = 4,
  /**
   * An input is missing, or not what the model declares.
   */
  ANABRANCH_STATUS_INPUT = 5,
  /**
   * A device is not there, cannot be used, or was lost.
   */
  ANABRANCH_STATUS_DEVICE = 6,
  /**
   * What is needed does not fit a device's memory, or there is none left.
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
   * The run took longer than it was given.
   */
  ANABRANCH_STATUS_TIMEOUT = 10,
  /**
   * The text is longer than the room for it; the call told how much it takes.
   */
  ANABRANCH_STATUS_ROOM = 11,
  /**
   * A fault of Anabranch. Please report it.
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
   * The same with another bias, and NaN in the place of negative zero.
   */
  ANABRANCH_TYPE_F8E4M3FNUZ = 18,
  /**
   * 8-bit float of 5 exponent and 2 mantissa bits.
   */
  ANABRANCH_TYPE_F8E5M2 = 19,
  /**
   * The same with another bias, NaN in the place of negative zero, and no infinities.
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
 * Asks runs to stop, from any thread.
 */
typedef struct anabranch_cancel anabranch_cancel;

/**
 * What a run has made.
 */
typedef struct anabranch_result anabranch_result;

/**
 * A model that is open.
 */
typedef struct anabranch_session anabranch_session;

/**
 * An input or output as the model declares it. The pointers are valid until the session is freed.
 */
typedef struct anabranch_value {
  /**
   * Its name, in UTF-8.
   */
  const char *name;
  /**
   * For people, in UTF-8: `x: f32[batch×3×224×224]`, where `batch` is a symbol and `?` what is not declared.
   */
  const char *description;
  /**
   * One of anabranch_type; ANABRANCH_TYPE_UNKNOWN for an output whose type is not declared.
   */
  int32_t element_type;
  /**
   * The number of dimensions; -1 if not even that is declared.
   */
  int32_t rank;
  /**
   * The dimensions, outermost first; -1 for those that only a run tells.
   */
  const int64_t *dims;
  /**
   * 1 if it may be left out, because the model holds a default; else 0.
   */
  int32_t is_optional;
} anabranch_value;

/**
 * A tensor to be read: elements in row-major order, without gaps.
 */
typedef struct anabranch_tensor {
  /**
   * Its name, in UTF-8.
   */
  const char *name;
  /**
   * One of anabranch_type.
   */
  int32_t element_type;
  /**
   * The dimensions, outermost first; may be null if there are none.
   */
  const int64_t *dims;
  /**
   * The number of dimensions, 16 at most.
   */
  size_t rank;
  /**
   * The elements; may be null if there are no bytes. Used where they are if they are aligned to 8 bytes, and copied if they are not or are
   * few.
   */
  const void *data;
  /**
   * How many bytes that are: exactly those of the elements.
   */
  size_t bytes;
} anabranch_tensor;

/**
 * Where an output is to be written.
 */
typedef struct anabranch_room {
  /**
   * The output's name, in UTF-8.
   */
  const char *name;
  /**
   * One of anabranch_type: exactly the output's.
   */
  int32_t element_type;
  /**
   * The dimensions, outermost first: exactly the output's; may be null if there are none.
   */
  const int64_t *dims;
  /**
   * The number of dimensions, 16 at most.
   */
  size_t rank;
  /**
   * Where the elements go; may be null if there are no bytes. Written directly if it is aligned to 8 bytes.
   */
  void *data;
  /**
   * How many bytes that are: exactly those of the elements.
   */
  size_t bytes;
} anabranch_room;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the header that the library was built with, to be compared with ANABRANCH_INTERFACE.
 *
 * Any thread, at any time.
 */
uint32_t anabranch_interface(void);

/**
 * The library's version, such as "0.1.0". The text is never freed.
 *
 * Any thread, at any time.
 */
const char *anabranch_version(void);

/**
 * Makes a token, to be given to runs. On success `cancel` is a handle, which anabranch_cancel_free() closes.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `cancel` must be a place for a pointer, or null.
 */
anabranch_status anabranch_cancel_new(struct anabranch_cancel **cancel);

/**
 * Asks every run with this token to stop, those under way and those to come: a token that was used once stays used. Runs end with
 * ANABRANCH_STATUS_CANCELLED between nodes, between the parts of a CPU's kernel, or within milliseconds of a wait; planning goes on to its end.
 *
 * Any thread, at any time; not from a signal handler.
 */
anabranch_status anabranch_cancel_request(struct anabranch_cancel *cancel);

/**
 * Closes a token; null is none. Runs that have it are not stopped by that.
 *
 * Any thread, at any time.
 */
anabranch_status anabranch_cancel_free(struct anabranch_cancel *cancel);

/**
 * Opens the ONNX model in a file. `options` is a JSON object, or null for none: `{"strategy": "auto", "threads": 2}`; docs/c.md lists them, and
 * so does the error of one that is not known. On success `session` is a handle, which anabranch_session_free() closes; on failure null.
 *
 * Any thread, at any time. Takes as long as reading the model and looking for devices.
 *
 * # Safety
 * `path` and `options` must be texts that end with a zero byte, or null, and `session` a place for a pointer, or null.
 */
anabranch_status anabranch_open(const char *path,
                                const char *options,
                                struct anabranch_session **session);

/**
 * Opens the ONNX model in `size` bytes, which must not refer to other files, and may be freed afterwards. All else as anabranch_open().
 *
 * Any thread, at any time.
 *
 * # Safety
 * At `bytes` there must be `size` bytes, or it must be null; otherwise as `anabranch_open`.
 */
anabranch_status anabranch_open_bytes(const void *bytes,
                                      size_t size,
                                      const char *options,
                                      struct anabranch_session **session);

/**
 * Closes a session; null is none. Runs that are under way end as if it was open; what anabranch_input() and anabranch_output() have told is gone.
 * Results of its runs stay.
 *
 * Any thread, at any time.
 */
anabranch_status anabranch_session_free(struct anabranch_session *session);

/**
 * How many inputs the model has.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `count` must be a place for a number, or null.
 */
anabranch_status anabranch_input_count(const struct anabranch_session *session, size_t *count);

/**
 * What the model declares of an input, by its place from 0 on.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `value` must be a place for one, or null.
 */
anabranch_status anabranch_input(const struct anabranch_session *session, size_t index, struct anabranch_value *value);

/**
 * How many outputs the model has.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `count` must be a place for a number, or null.
 */
anabranch_status anabranch_output_count(const struct anabranch_session *session, size_t *count);

/**
 * What the model declares of an output, by its place from 0 on.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `value` must be a place for one, or null.
 */
anabranch_status anabranch_output(const struct anabranch_session *session, size_t index, struct anabranch_value *value);

/**
 * How many outputs a run has made: as many as the model has.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `count` must be a place for a number, or null.
 */
anabranch_status anabranch_result_count(const struct anabranch_result *result, size_t *count);

/**
 * An output, by its place in the model's order from 0 on. What `tensor` points to is the result's, and valid until that is freed; its elements
 * are aligned to 64 bytes.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `tensor` must be a place for one, or null.
 */
anabranch_status anabranch_result_output(const struct anabranch_result *result,
                                         size_t index,
                                         struct anabranch_tensor *tensor);

/**
 * What a run did, as JSON: predicted and measured milliseconds, nodes, peak and limit in bytes of each device; with the option `profile` when each
 * node ran and each transfer was made, in nanoseconds. Written to `buffer` with a zero byte at its end, if it has room for that; `needed` is told
 * how many bytes it takes. With a null `buffer` and no `room` only that is told; `needed` may be null otherwise.
 *
 * Any thread, at any time.
 *
 * # Safety
 * `buffer` must have room for `room` bytes, or be null; `needed` must be a place for a number, or null.
 */
anabranch_status anabranch_report(const struct anabranch_result *result,
                                  char *buffer,
                                  size_t room,
                                  size_t *needed);

/**
 * Frees a result and its outputs; null is none.
 *
 * Any thread, at any time at which nobody reads its outputs.
 */
anabranch_status anabranch_result_free(struct anabranch_result *result);

/**
 * Runs the model. `inputs` are `input_count` tensors in any order, by their names; those that the model has a default for may be left out.
 * `cancel` is a token, or null. A run that takes longer than `timeout_ms` milliseconds ends with ANABRANCH_STATUS_TIMEOUT; 0 is for ever. On
 * success `result` is a handle, which anabranch_result_free() closes; on failure null.
 *
 * The first run with new shapes of inputs makes a plan for them. Any thread, at any time: runs of one session follow each other, since each uses
 * all the devices of its plan. Until the call returns nobody may write the inputs; afterwards nothing of them is used.
 *
 * # Safety
 * `inputs` must be `input_count` tensors with what they point to, or null, and `result` a place for a pointer, or null.
 */
anabranch_status anabranch_run(const struct anabranch_session *session,
                               const struct anabranch_tensor *inputs,
                               size_t input_count,
                               const struct anabranch_cancel *cancel,
                               uint64_t timeout_ms,
                               struct anabranch_result **result);

/**
 * Runs the model like anabranch_run(), and writes outputs to `outputs`, `output_count` places in any order, by the outputs' names; outputs that
 * are not among them are not given. Types, shapes and sizes must be exactly the outputs'; where they follow from the inputs' shapes, that is
 * seen before the run. After a failure what is in the places means nothing.
 *
 * Any thread, at any time, as anabranch_run(). Until the call returns nobody may write the inputs, nor read or write the places.
 *
 * # Safety
 * `inputs` must be `input_count` tensors and `outputs` `output_count` places with what they point to, or null.
 */
anabranch_status anabranch_run_into(const struct anabranch_session *session,
                                    const struct anabranch_tensor *inputs,
                                    size_t input_count,
                                    const struct anabranch_room *outputs,
                                    size_t output_count,
                                    const struct anabranch_cancel *cancel,
                                    uint64_t timeout_ms);

/**
 * The plan for inputs of these shapes, as the JSON that `anabranch place` writes: the device of each node and why, the order of each device, transfers,
 * predicted times in microseconds and bytes. It can be edited, and given to a session as the option `strategy`. The inputs are as in
 * anabranch_run(); a later run with such inputs follows this plan. Where shapes follow from computed values, it is the plan of what comes before
 * them. `buffer`, `room` and `needed` are as in anabranch_report().
 *
 * Any thread, at any time. Takes as long as planning, once for each set of shapes.
 *
 * # Safety
 * `inputs` must be `input_count` tensors with what they point to, or null; `buffer` must have room for `room` bytes, or be null; `needed` must be a
 * place for a number, or null.
 */
anabranch_status anabranch_plan(const struct anabranch_session *session,
                                const struct anabranch_tensor *inputs,
                                size_t input_count,
                                char *buffer,
                                size_t room,
                                size_t *needed);

/**
 * Why the last call of this thread that failed did, in UTF-8: what it is about, and what to do next. Empty if none has failed. The text is valid
 * until the next call of this thread that fails, or the thread's end; calls that succeed leave it alone.
 *
 * Any thread, at any time: each has its own text.
 */
const char *anabranch_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ANABRANCH_H */
