#include "tests/support/sglang_ipc_stand_in.h"

#include <utility>

#include "common/error.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"
#include "tests/support/nccl_workers.h"
#include "tests/unit/engine_adapter/checkpoint_engine/worker.h"

namespace tandem::test {
namespace {

using engine::checkpoint_engine::Worker;
using nlohmann::json;

constexpr const char* kDevice = "GPU-gpu 0";

}  // namespace

void SglangIpcStandIn::add_routes(SglangStandIn& server) {
    server.route(
        "POST", "/update_weights_from_ipc",
        {{"zmq_handles", "any", true},
         {"flush_cache", "boolean"},
         {"weight_version", "string"},
         {"torch_empty_cache", "boolean"}},
        [this, &server](const json& body, const std::string&) { return load(server, body); },
        http::Access::admin);
}

SglangStandIn::Answer SglangIpcStandIn::load(SglangStandIn& server, const json& body) {
    const std::lock_guard lock(mutex_);
    ++loads_;
    buffer_ = {};
    nones_ = 0;
    failed_.clear();
    leaves_ = false;
    if (!server.held_back()) server.violate("sent tensors while it runs");
    if (!body["zmq_handles"].contains(kDevice)) {
        failed_ = fmt::format("Device UUID {} not found in zmq_handles", kDevice);
    } else {
        Worker(body["zmq_handles"][kDevice].get<std::string>(), [&](const json& message) {
            return hear(server, message);
        }).join();
    }
    if (failed_.empty()) return server.flush_and_take(body);
    return {400, json{{"success", false}, {"message", failed_}}.dump()};
}

std::optional<std::string> SglangIpcStandIn::hear(SglangStandIn& server, const json& message) {
    if (leaves_) return std::nullopt;
    try {
        if (Worker::is_failure(message)) throw BadInput(message["arguments"][0].get<std::string>());
        if (message.is_null()) return ++nones_ == (newer_ ? 2 : 1) ? "last" : "";
        if (buffer_.is_null()) return open(message);
        return load_bucket(server, message);
    } catch (const std::exception& error) {
        if (Worker::is_failure(message) && !buffer_.is_null()) {
            failed_ = error.what();
            return std::nullopt;
        }
        return fail(error.what());
    }
}

// The older leaves without a word; the newer says why, and leaves at the next message.
std::optional<std::string> SglangIpcStandIn::fail(const std::string& why) {
    failed_ = why;
    if (!newer_) return std::nullopt;
    leaves_ = true;
    return "Traceback (most recent call last):\nRuntimeError: " + why;
}

std::string SglangIpcStandIn::open(const json& message) {
    enforce(message.is_array() && message.size() == 2 &&
                message[0] == json{{"global", "torch.multiprocessing.reductions.rebuild_cuda_tensor"}},
            "no handle first");
    if (!open_failure_.empty()) throw BadInput(std::exchange(open_failure_, ""));
    buffer_ = message[1];
    opened_cuda_memory(buffer_, buffer_[8].get<std::size_t>());
    return "";
}

std::string SglangIpcStandIn::load_bucket(SglangStandIn& server, const json& message) {
    const std::string memory = opened_cuda_memory(buffer_, buffer_[8].get<std::size_t>());
    std::map<std::string, std::string> tensors;
    for (const json& one : message) {
        const DType dtype = dtype_from_name(one["dtype"]["global"].get<std::string>().substr(6));  // "torch."
        const Shape shape = one["shape"]["arguments"][0].get<Shape>();
        const auto begin = one["offset"].get<std::size_t>();
        const std::size_t bytes = static_cast<std::size_t>(numel(shape)) * dtype_size(dtype);
        enforce(begin % dtype_size(dtype) == 0, "a view of unaligned memory");
        enforce(begin + bytes <= memory.size(), "a view behind the buffer's end");
        tensors[one["name"].get<std::string>()] = memory.substr(begin, bytes);
    }
    buckets_.push_back(tensors.size());
    if (bucket_failure_ > 0 && --bucket_failure_ == 0) throw BadInput("a rank stumbles");
    server.hold_some(tensors);
    return "";
}

void SglangIpcStandIn::fail_to_open(const std::string& why) {
    const std::lock_guard lock(mutex_);
    open_failure_ = why;
}
void SglangIpcStandIn::fail_in_bucket(int number) {
    const std::lock_guard lock(mutex_);
    bucket_failure_ = number;
}
std::vector<std::size_t> SglangIpcStandIn::buckets() const {
    const std::lock_guard lock(mutex_);
    return buckets_;
}

}  // namespace tandem::test
