// The workers of a third-party server on emulated GPUs, for tests: their ends of one NCCL group, and memory that they open by
// CUDA IPC.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/nccl/handle.h"
#include "common/device/stream.h"

namespace tandem::test {

// A thread for each while they wait for the others. Every call throws where a worker fails.
class NcclWorkers {
  public:
    // Blocks until all ranks have joined. Worker i is rank rank_offset + i, on GPU 1 + i. id: of NCCL.
    NcclWorkers(const comm::nccl::Api& api, const std::string& id, int rank_offset, int world, int workers);
    ~NcclWorkers();

    void sum();  // one float over all ranks
    // What every worker got. Throws: they did not get the same.
    std::string broadcast(std::size_t bytes);

  private:
    struct Member {
        std::optional<Stream> stream;
        std::unique_ptr<comm::nccl::Handle> handle;
    };
    template <typename Body>
    void each(Body&& body);
    template <typename Call>
    void launch(Member& member, Call&& call);

    const comm::nccl::Api& api_;
    std::vector<Member> members_;
};

// What rebuild_cuda_tensor's arguments name, as far as they are those of contiguous memory of at least so many bytes.
std::string opened_cuda_memory(const nlohmann::json& arguments, std::size_t bytes);

}  // namespace tandem::test
