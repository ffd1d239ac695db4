// The rank of an SGLang stand-in that takes weights as checkpoint-engine's worker does: told by ZeroMQ, out of an emulated
// GPU's memory.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/sglang_stand_in.h"

namespace tandem::test {

class SglangIpcStandIn {
  public:
    // newer: as checkpoint-engine 0.4.2, else as 0.1.2.
    explicit SglangIpcStandIn(bool newer) : newer_(newer) {}

    void add_routes(SglangStandIn& server);  // for SglangStandIn::Options::more_routes; outlives the server

    void fail_to_open(const std::string& why);  // once
    void fail_in_bucket(int number);            // counted from 1; once
    std::vector<std::size_t> buckets() const;   // tensors of each
    int loads() const { return loads_; }        // that have begun

  private:
    SglangStandIn::Answer load(SglangStandIn& server, const nlohmann::json& body);
    // The answer to a message, or none where it leaves; `failed_` and `done_` say how.
    std::optional<std::string> hear(SglangStandIn& server, const nlohmann::json& message);
    std::string open(const nlohmann::json& message);
    std::string load_bucket(SglangStandIn& server, const nlohmann::json& message);
    std::optional<std::string> fail(const std::string& why);

    const bool newer_;
    std::atomic<int> loads_ = 0;
    mutable std::mutex mutex_;
    std::string open_failure_;
    int bucket_failure_ = 0;
    std::vector<std::size_t> buckets_;
    // Of the load that it is at.
    nlohmann::json buffer_;  // rebuild_cuda_tensor's arguments
    int nones_ = 0;
    std::string failed_;
    bool leaves_ = false;  // at the next message
};

}  // namespace tandem::test
