// Decode steps on a GPU. What changes from step to step lies in tensors there, filled by one small copy, so
// that a step can be recorded as a graph and launched again: hundreds of small kernels for one launch. Steps
// are padded to shapes of powers of two (sequences, pages of the longest); each shape is run once as it is,
// recorded the next time, and replayed from then on. On the CPU there is nothing to record.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/device/graph.h"
#include "common/ops/rope.h"
#include "engine_adapter/embedded/kv_cache.h"
#include "engine_adapter/embedded/weights.h"

namespace tandem::engine {

// One step of running sequences: tokens[b] stands at position lengths[b] - 1 of sequence b.
struct DecodeBatch {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> lengths;  // with the new token
    std::vector<std::vector<std::int32_t>> block_tables;
};

// A padded step on the device, int32. Padding: token 0 at position 0 of a sequence of length 0.
struct StepTables {
    Tensor tokens, positions, lengths;  // [rows]
    Tensor pages;                       // [rows, width]
    std::int64_t limit = 0;             // all positions are below
};

struct GraphCounts {
    std::uint64_t recorded = 0;
    std::uint64_t replayed = 0;  // steps
};

// Used only by the decoder's thread.
class DecodeSteps {
  public:
    // Queues a step's work: logits [rows, vocab] from the tables. It runs while a graph is recorded
    // (common/device/graph.h says what it may not do), and baked into that are the weights' and the cache's
    // addresses.
    using Body = std::function<void(const StepTables&, Tensor logits)>;

    DecodeSteps(Stream& stream, const ModelWeights& weights, const KvCache& cache, const ops::RopeTable& rope,
                std::int64_t vocab, bool graphs);

    // Logits [batch, vocab] float32, good until the next call.
    Tensor run(const DecodeBatch& batch, const Body& body);
    // Releases the memory of graphs and tables. The next steps record again.
    void release();
    GraphCounts counts() const { return counts_; }

  private:
    struct Recorded {
        bool ran = false;
        Graph graph;
        std::shared_ptr<const ops::RopeTable::Rows> rope;  // which the graph reads
    };
    struct OfWeights {
        std::vector<const std::byte*> addresses;  // of the weights, which the graphs hold
        std::map<std::pair<std::int64_t, std::int64_t>, Recorded> steps;  // by rows and width
    };

    void make_room(std::int64_t rows, std::int64_t width);
    void follow_weights();
    void forget_all();
    StepTables send(const DecodeBatch& batch, std::int64_t rows, std::int64_t width);
    bool record(Recorded& step, const StepTables& tables, const Tensor& logits, const Body& body);

    Stream& stream_;
    const ModelWeights& weights_;
    const KvCache& cache_;
    const ops::RopeTable& rope_;
    std::int64_t vocab_;
    bool graphs_;
    GraphCounts counts_;
    Buffer host_;                  // pinned; what the copy reads
    Event copied_;                 // the last copy has read it
    Tensor tables_;                // [ints]
    Tensor logits_;                // [rows, vocab]
    std::uint64_t contents_ = 0;   // ModelWeights::contents() when last checked
    std::list<OfWeights> recent_;  // first: where the weights lie now
};

}  // namespace tandem::engine
