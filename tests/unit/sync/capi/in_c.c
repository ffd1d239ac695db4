#include "tests/unit/sync/capi/in_c.h"

#include <string.h>

#include "sync/capi/tandem_sync.h"

static td_tensor tensor_of(const char* name, float* data, int32_t ndim, const int64_t* shape) {
    td_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.size = sizeof tensor;
    tensor.name = name;
    tensor.data = data;
    tensor.dtype = TD_FLOAT32;
    tensor.device_type = TD_CPU;
    tensor.ndim = ndim;
    tensor.global_shape = shape;
    return tensor;
}

static const char* push_twice(td_session* session, float* b) {
    td_report report;
    int32_t match = -1;
    char mismatch[64];
    memset(&report, 0, sizeof report);
    report.size = sizeof report;
    if (td_session_push(session, 7, &report) != TD_OK) return td_last_error();
    if (report.version != 7 || report.bytes != 17 * sizeof(float)) return "the report of version 7";
    if (strcmp(report.mode, "gather") != 0) return "a mode that needs shared memory was chosen";
    b[2] += 1.0f;
    if (td_session_check(session, &match, mismatch, sizeof mismatch) != TD_OK) return td_last_error();
    if (match != 0 || strcmp(mismatch, "b") != 0) return "a changed weight was not noticed";
    if (td_session_push(session, 8, NULL) != TD_OK) return td_last_error();
    if (td_session_check(session, &match, NULL, 0) != TD_OK) return td_last_error();
    return match == 1 ? NULL : "the engine does not hold version 8";
}

const char* use_in_c(const char* engine, float* a, float* b) {
    static const int64_t a_shape[2] = {4, 3};
    static const int64_t b_shape[1] = {5};
    td_options options;
    td_session* session = NULL;
    td_tensor tensors[2];
    const char* wrong;

    if (td_abi_version() != TD_ABI_VERSION) return "another version of the ABI";
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.engines = &engine;
    options.engine_count = 1;
    if (td_session_open(&options, NULL, &session) != TD_OK) return td_last_error();
    tensors[0] = tensor_of("a", a, 2, a_shape);
    tensors[1] = tensor_of("b", b, 1, b_shape);
    wrong = td_session_publish(session, tensors, 2) == TD_OK ? push_twice(session, b) : td_last_error();
    if (td_session_close(session) != TD_OK) return td_last_error();
    return wrong;
}
