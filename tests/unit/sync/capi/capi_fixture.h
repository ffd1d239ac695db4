// Two tensors, an engine of ours in this process that holds them, and what the C ABI says of a failure.
#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine_adapter/receiver/receiver.h"
#include "sync/capi/tandem_sync.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"

namespace tandem::sync {

inline constexpr DType kFloat = DType::float32;

struct Details {
    int status, rank, bucket;
    std::string phase, peer, message;
};
inline Details last_error() {
    td_error error{};
    error.size = sizeof error;
    EXPECT_EQ(td_last_error_details(&error), TD_OK);
    return {error.status, error.rank, error.bucket, error.phase, error.peer, error.message};
}

inline std::vector<float> counting(std::size_t count, float from) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), from);
    return values;
}

inline std::vector<float> held(const engine::TestTarget& target, std::size_t t) {
    const Span memory = target.reading(t);
    std::vector<float> values(memory.bytes / sizeof(float));
    std::memcpy(values.data(), memory.data, memory.bytes);
    return values;
}

// An engine of two tensors, and options that name it.
class Capi : public ::testing::Test {
  protected:
    td_options options() const {
        td_options options{};
        options.size = sizeof options;
        options.engines = &engine_;
        options.engine_count = 1;
        options.deadline_s = 20;
        return options;
    }
    td_session* open() const {
        const td_options chosen = options();
        td_session* session = nullptr;
        EXPECT_EQ(td_session_open(&chosen, nullptr, &session), TD_OK) << td_last_error();
        return session;
    }
    td_tensor a() {
        td_tensor tensor{};
        tensor.size = sizeof tensor;
        tensor.name = "a";
        tensor.data = a_.data();
        tensor.dtype = TD_FLOAT32;
        tensor.device_type = TD_CPU;
        tensor.ndim = 2;
        tensor.global_shape = a_shape_;
        return tensor;
    }
    td_tensor b() {
        td_tensor tensor = a();
        tensor.name = "b";
        tensor.data = b_.data();
        tensor.ndim = 1;
        tensor.global_shape = b_shape_;
        return tensor;
    }
    // Of publishing the two in an open session, which goes away.
    Details refused(const std::vector<td_tensor>& tensors) {
        td_session* session = open();
        EXPECT_NE(td_session_publish(session, tensors.data(), tensors.size()), TD_OK);
        Details details = last_error();
        EXPECT_EQ(td_session_close(session), TD_OK);
        return details;
    }

    std::vector<float> a_ = counting(12, 1);
    std::vector<float> b_ = counting(5, 100);
    std::int64_t a_shape_[2] = {4, 3};
    std::int64_t b_shape_[1] = {5};
    engine::TestTarget target_{{{"a", {4, 3}, kFloat, {}}, {"b", {5}, kFloat, {}}}};
    std::unique_ptr<engine::Receiver> receiver_ = std::make_unique<engine::Receiver>(target_);
    std::string address_ = receiver_->address();
    const char* engine_ = address_.c_str();
};

}  // namespace tandem::sync
