// The weight-transfer backends "ipc", "nccl" and "sparse_nccl" that come with vLLM, in a stand-in server's workers: holds
// callers to the order of vLLM's sessions and to what an update must say, and takes the bytes where they are said to be.
// GPUs are emulated ones.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/nccl/api.h"
#include "tests/support/nccl_workers.h"
#include "tests/support/vllm_stand_in.h"

namespace tandem::test {

class VllmBackendStandIn {
  public:
    struct Options {
        std::string backend;         // "ipc", "nccl", "sparse_nccl"
        int workers = 1;             // worker i on GPU 1 + i for both of NCCL
        bool opens_pickles = true;   // VLLM_ALLOW_INSECURE_SERIALIZATION=1
        std::string uuid = "gpu 0";  // of the worker's GPU, for ipc
        const comm::nccl::Api* nccl = nullptr;
        // Called before a tensor is loaded; throws: it fails there.
        std::function<void(const std::string& name)> before_load = {};
    };
    explicit VllmBackendStandIn(Options options);
    ~VllmBackendStandIn();

    void add_routes(
        VllmStandIn& server);  // for VllmStandIn::Options::more_routes; it must outlive the server
    void set_before_load(std::function<void(const std::string& name)> before_load);
    // Sizes of the chunks, or tensors, that came so far, and how many groups were formed.
    std::vector<std::size_t> received() const;
    int groups() const;
    bool update_open() const;
    // Of the last update session by "sparse_nccl": for each call, how many elements of which tensor.
    using Patches = std::vector<std::pair<std::string, std::size_t>>;
    std::vector<Patches> patches() const;

  private:
    using Bytes = std::map<std::string, std::string>;

    void init(const nlohmann::json& info);
    void start(VllmStandIn& server);
    void update(VllmStandIn& server, const nlohmann::json& info);
    void finish(VllmStandIn& server);
    void load(VllmStandIn& server, const std::string& name, std::string bytes);
    void take_ipc(VllmStandIn& server, const nlohmann::json& info);
    void take_nccl(VllmStandIn& server, const nlohmann::json& info);
    void take_sparse(VllmStandIn& server, const nlohmann::json& info);

    Options options_;
    mutable std::mutex mutex_;
    std::vector<std::size_t> received_;
    std::vector<Patches> patches_;
    int groups_ = 0;
    bool ready_ = false;  // initialised
    bool packed_ = false;
    std::uint64_t packed_bytes_ = 0;
    std::unique_ptr<NcclWorkers> group_;
    bool open_ = false;
    Bytes loaded_;             // in the open session
    bool unfinished_ = false;  // a session ended after it had loaded something, and was not finished
};

}  // namespace tandem::test
