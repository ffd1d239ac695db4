// Rollouts for every rank: rank 0 asks the engine, the others receive its answer. Collective over the world.
#pragma once

#include <functional>
#include <memory>

#include "common/comm/communicator.h"
#include "trainer/rollout/client.h"

namespace tandem::trainer {

class Rollouts {
  public:
    // `client` on rank 0, null elsewhere. The communicator must outlive this.
    Rollouts(comm::Communicator& world, std::unique_ptr<RolloutClient> client);

    // As RolloutClient::generate, in requests of the client's batch, each of which reaches every rank before
    // the next is sent: no rank waits longer than one takes. Prompts that NonFiniteLogits was about are asked again one
    // by one; those that it is about again get a completion that says so. When rank 0 throws, the others wait until
    // the job is aborted or their deadline passes.
    std::vector<Completion> generate(std::span<const std::vector<std::int32_t>> prompts,
                                     std::span<const std::uint64_t> seeds, const Sampling& sampling,
                                     std::int64_t version);

    // Run `compute` on rank 0 and return what it does on every rank: lists of tokens, or `count` numbers.
    std::vector<std::vector<std::int32_t>> lists_on_every_rank(
        const std::function<std::vector<std::vector<std::int32_t>>()>& compute);
    std::vector<float> on_every_rank(std::size_t count, const std::function<std::vector<float>()>& compute);

  private:
    void broadcast(std::vector<std::int32_t>& words);  // of rank 0, their number first

    comm::Communicator& world_;
    std::unique_ptr<RolloutClient> client_;
};

// The bytes that travel between ranks.
std::vector<std::int32_t> pack_completions(std::span<const Completion> completions);
std::vector<Completion> unpack_completions(std::span<const std::int32_t> words);  // throws ProtocolError

}  // namespace tandem::trainer
