#include "engine_adapter/embedded/decode_steps.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/error.h"
#include "common/log.h"

namespace tandem::engine {
namespace {

constexpr const char* kStepsTag = "engine.steps";
constexpr std::int64_t kFirstWidth = 16;  // pages: shorter sequences are one shape
// Mode alias alternates between two memories, one version in each: a third one evicts the one used longest
// ago.
constexpr std::size_t kPlaces = 2;
constexpr auto kCopyTimeout = std::chrono::minutes(1);

std::int64_t power_of_two(std::int64_t at_least) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(at_least)));
}

std::int64_t ints_of(std::int64_t rows, std::int64_t width) {
    return rows * (3 + width);
}

}  // namespace

DecodeSteps::DecodeSteps(Stream& stream, const ModelWeights& weights, const KvCache& cache,
                         const ops::RopeTable& rope, std::int64_t vocab, bool graphs)
    : stream_(stream), weights_(weights), cache_(cache), rope_(rope), vocab_(vocab), graphs_(graphs) {}

Tensor DecodeSteps::run(const DecodeBatch& batch, const Body& body) {
    const auto count = static_cast<std::int64_t>(batch.tokens.size());
    const std::int64_t rows = power_of_two(count);
    const std::int32_t longest = *std::max_element(batch.lengths.begin(), batch.lengths.end());
    const std::int64_t width = power_of_two(std::max(kFirstWidth, cache_.pages_for(longest)));
    follow_weights();
    make_room(rows, width);
    const StepTables tables = send(batch, rows, width);
    const Tensor logits = logits_.rows(0, rows);
    Recorded& step = recent_.front().steps[{rows, width}];
    if (step.graph.recorded() || record(step, tables, logits, body)) {
        step.graph.launch(stream_);
        ++counts_.replayed;
    } else {
        body(tables, logits);
        step.ran = true;
    }
    return logits.rows(0, count);
}

void DecodeSteps::release() {
    forget_all();
    tables_ = logits_ = Tensor();
    copied_.wait(Deadline::after(kCopyTimeout));
    host_ = {};
}

// The graphs hold the tables' and the logits' addresses.
void DecodeSteps::make_room(std::int64_t rows, std::int64_t width) {
    const std::int64_t ints = ints_of(rows, width);
    if (!tables_.defined() || tables_.numel() < ints) {
        forget_all();
        tables_ = Tensor();
        tables_ = Tensor::empty(stream_, {power_of_two(ints)}, DType::int32, kStepsTag);
        copied_.wait(Deadline::after(kCopyTimeout));
        host_ = {};
        host_ = Buffer(tables_.bytes(), kStepsTag, pinned_pool());
    }
    if (!logits_.defined() || logits_.dim(0) < rows) {
        forget_all();
        logits_ = Tensor();
        logits_ = Tensor::empty(stream_, {rows, vocab_}, DType::float32, kStepsTag);
    }
}

// A new version in the same memory changes nothing for the graphs. The cache never moves.
void DecodeSteps::follow_weights() {
    if (weights_.contents() == contents_) return;
    contents_ = weights_.contents();
    std::vector<const std::byte*> addresses;
    for (const WeightSlot& slot : weights_.current()) addresses.push_back(slot.memory.data);
    const auto known = std::find_if(recent_.begin(), recent_.end(),
                                    [&](const OfWeights& one) { return one.addresses == addresses; });
    if (known != recent_.end()) {
        recent_.splice(recent_.begin(), recent_, known);
        return;
    }
    recent_.push_front({std::move(addresses), {}});
    if (recent_.size() > kPlaces) recent_.pop_back();
}

void DecodeSteps::forget_all() {
    for (OfWeights& one : recent_) one.steps.clear();
}

StepTables DecodeSteps::send(const DecodeBatch& batch, std::int64_t rows, std::int64_t width) {
    copied_.wait(Deadline::after(kCopyTimeout));  // the copy before may still read them
    auto* const tokens = reinterpret_cast<std::int32_t*>(host_.data());
    std::int32_t* const positions = tokens + rows;
    std::int32_t* const lengths = positions + rows;
    std::int32_t* pages = lengths + rows;
    std::fill_n(tokens, ints_of(rows, width), 0);
    std::copy(batch.tokens.begin(), batch.tokens.end(), tokens);
    std::copy(batch.lengths.begin(), batch.lengths.end(), lengths);
    for (std::size_t b = 0; b < batch.tokens.size(); ++b, pages += width) {
        positions[b] = batch.lengths[b] - 1;
        const std::vector<std::int32_t>& table = batch.block_tables[b];
        const std::int64_t used = cache_.pages_for(batch.lengths[b]);
        require(used <= static_cast<std::int64_t>(table.size()), "sequence {} has length {} but {} pages", b,
                batch.lengths[b], table.size());
        std::copy_n(table.begin(), used, pages);
    }
    const std::int64_t ints = ints_of(rows, width);
    const Tensor sent = tables_.rows(0, ints);
    copy(stream_, host_.span().subspan(0, sent.bytes()), sent.span());
    copied_ = stream_.record();
    return {sent.rows(0, rows), sent.rows(rows, rows), sent.rows(2 * rows, rows),
            sent.rows(3 * rows, rows * width).reshape({rows, width}), width * cache_.page_size()};
}

// Records a graph if it can; returns whether there is one. A shape runs once before: libraries and tables set
// themselves up.
bool DecodeSteps::record(Recorded& step, const StepTables& tables, const Tensor& logits, const Body& body) {
    if (!graphs_ || !step.ran) return false;
    step.rope = rope_.rows(tables.limit);
    const auto give_up = [&](const std::exception& error) {
        graphs_ = false;
        log_warn(
            "decode steps run without CUDA graphs, which is slower (--disable-cuda-graph asks for it): {}",
            error.what());
        return false;
    };
    try {
        step.graph = Graph::capture(stream_, [&] { body(tables, logits); });
    } catch (const CudaError& error) {
        return give_up(error);
    } catch (const OutOfMemory& error) {  // a graph's memory is its own
        return give_up(error);
    }
    ++counts_.recorded;
    return true;
}

}  // namespace tandem::engine
