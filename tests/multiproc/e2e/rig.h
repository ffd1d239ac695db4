// The parts of an end-to-end test: known weight sets, a trainer that holds one of them in shards, and clients
// that ask a running engine for samples without pause and keep every answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/model/model_config.h"
#include "engine_adapter/embedded/decoder.h"
#include "sync/session/session.h"
#include "sync/weight_source.h"

namespace tandem::e2e {

struct Sample {
    std::vector<std::int32_t> prompt;
    std::vector<std::int32_t> output;
    std::vector<double> logprobs;  // of output, as the engine says
    double temperature = 1;
    std::int64_t version = 0;  // meta_info.weight_version
};

// Whole weights of a tiny model, one set a seed; version v carries set v % count().
class WeightSets {
  public:
    WeightSets(const model::ModelConfig& config, std::size_t count);
    std::size_t count() const { return sets_.size(); }
    std::size_t of_version(std::int64_t version) const {
        return static_cast<std::size_t>(version) % sets_.size();
    }
    const std::vector<engine::WeightSlot>& slots() const { return sets_[0].weights.slots(); }
    const std::vector<Tensor>& tensors(std::size_t set) const { return sets_[set].tensors; }
    // The largest |claimed - recomputed| log-prob of a sample, were `set` the weights that made it. One
    // prefill and one decode step a token, in a cache of its own: nothing of how the engine batches enters.
    double misfit(const Sample& sample, std::size_t set);

  private:
    // deque: a decoder keeps references to its config and weights.
    struct Set {
        explicit Set(const model::ModelConfig& config);
        Stream stream = Stream::make_inline();
        engine::ModelWeights weights;
        engine::KvCache cache;
        engine::Decoder decoder;
        std::vector<Tensor> tensors;  // views of the weights, in the order of the slots
    };
    model::ModelConfig config_;
    std::deque<Set> sets_;
};

// One rank's shards of one set: Shard(0) over a 1-D mesh, so that every tensor travels in uneven pieces.
class ShardedSet final : public sync::WeightSource {
  public:
    ShardedSet(const WeightSets& sets, DeviceMesh mesh);
    void hold(std::size_t set);  // replaces the local pieces' values
    // The local pieces lie where the session lets them be written for its next push, as far as it says where; or in
    // memory of their own again, as from the start: before that session ends.
    void move_to_writable(sync::Session& session);
    void move_home();
    const std::vector<sync::NamedTensor>& tensors() const override { return tensors_; }
    Event ready() const override { return {}; }

  private:
    const WeightSets& sets_;
    DeviceMesh mesh_;
    void move(std::size_t t, const Tensor& memory);
    std::vector<Tensor> homes_;  // memory that engines can map
    std::vector<sync::NamedTensor> tensors_;
};

// Asks for one sample; lengths, seed and temperature follow from `number`. Throws TransportError unless the
// answer is 200.
Sample ask(const std::string& url, std::uint64_t number);

// Client threads, each with a connection of its own, from construction to stop().
class Hammer {
  public:
    Hammer(const std::string& url, int clients);
    ~Hammer();
    Hammer(const Hammer&) = delete;
    Hammer& operator=(const Hammer&) = delete;

    // Until `count` more samples of `version` have come; false after 20 s.
    bool wait_for(std::int64_t version, int count) const;
    // Joins the clients; what they got, and what they were told instead of a sample.
    std::vector<Sample> stop();
    const std::vector<std::string>& refusals() const { return refusals_; }

  private:
    void run(const std::string& url, std::uint64_t client);
    std::atomic<bool> stopping_{false};
    mutable std::mutex mutex_;
    std::vector<Sample> samples_;
    std::vector<std::string> refusals_;
    std::vector<std::thread> clients_;
};

}  // namespace tandem::e2e
