// What a plug-in of ours has in an inference server, for tests without one: a receiver over staging memory, through the C
// functions that sync/python/tandem_sync/server calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sync/capi/tandem_sync.h"

namespace tandem::test {

class StagingStandIn {
  public:
    // model: the directory whose tensors it wants. engine: "vllm". data_listen, key: as a plug-in takes them from its
    // environment.
    StagingStandIn(const std::string& model, std::string engine, std::string data_listen, std::string key);
    ~StagingStandIn();
    StagingStandIn(const StagingStandIn&) = delete;
    StagingStandIn& operator=(const StagingStandIn&) = delete;

    void open();  // nothing where it is
    bool is_open() const { return receiver_ != nullptr; }
    // Throw std::runtime_error with td_last_error().
    void take(std::int64_t version);
    void give_back();
    std::map<std::string, std::string> content() const;  // name → bytes
    std::string address() const;                         // empty: not open
    nlohmann::json whereabouts() const;                  // "receiver", "host", "data_port"

    void say_it_receives_at(const std::string& address) { elsewhere_ = address; }
    void say_it_runs_on(const std::string& host) { host_ = host; }

  private:
    struct Slot {
        std::string name;
        std::vector<std::int64_t> shape;
        std::int32_t dtype;
        std::vector<std::byte> memory;
    };
    std::vector<Slot> slots_;
    const std::string engine_;
    const std::string data_listen_;
    const std::string key_;
    td_receiver* receiver_ = nullptr;
    std::string elsewhere_;
    std::string host_;
};

}  // namespace tandem::test
