// The ranks of an SGLang stand-in on emulated GPUs: they meet at PyTorch's store where they are told to, join NCCL with
// their first broadcast, and open tensors by CUDA IPC.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/comm/nccl/api.h"
#include "tests/support/nccl_workers.h"
#include "tests/support/sglang_stand_in.h"

namespace tandem {
class RawClient;
}

namespace tandem::test {

class SglangGroupStandIn {
  public:
    struct Options {
        int ranks = 1;  // rank i on GPU 1 + i
        const comm::nccl::Api* nccl = nullptr;
        int fails_in_update = 0;  // the number of the update whose ranks fail behind its broadcast; 0: none
        bool stranger =
            false;  // somebody who knows the store's port and nothing else waits there before the ranks
    };
    explicit SglangGroupStandIn(Options options);
    ~SglangGroupStandIn();

    void add_routes(SglangStandIn& server);  // for SglangStandIn::Options::more_routes; outlives the server
    // For SglangStandIn::Options::open_cuda.
    static std::string open_cuda(const nlohmann::json& arguments, std::size_t bytes);

    void fail_in_update(int number);  // counted from now
    std::vector<std::size_t> received() const;
    int groups() const;  // that were formed
    bool in_group() const;
    bool stranger_was_told();  // of a key that was set; false: its connection has ended

  private:
    using Answer = SglangStandIn::Answer;
    Answer init(const nlohmann::json& body);
    Answer destroy(const nlohmann::json& body);
    Answer update(SglangStandIn& server, const nlohmann::json& body);
    std::map<std::string, std::string> receive(const nlohmann::json& body);

    class StoreClient;
    mutable std::mutex mutex_;
    Options options_;
    std::string group_;  // its name
    int world_ = 0;
    std::unique_ptr<StoreClient> store_;
    std::unique_ptr<RawClient> stranger_;
    std::unique_ptr<NcclWorkers> workers_;
    std::vector<std::size_t> received_;
    int groups_ = 0;
};

}  // namespace tandem::test
