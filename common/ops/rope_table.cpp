// Computes the cosines and sines of a position once for all copies of a table.
#include "common/ops/rope_table.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "common/error.h"

namespace tandem::ops {
namespace {

// Positions past this are computed where they are used: a table would cost too much memory.
constexpr std::int64_t kMaxTableRows = 1 << 17;
constexpr std::int64_t kFirstRows = 256;
// A table doubles, but by no more than this at a time: whoever is in need of a row waits for all of them.
constexpr std::int64_t kMostMoreRows = 8192;

}  // namespace

struct RopeTable::State {
    std::mutex mutex;
    std::shared_ptr<const Rows> rows;
};

RopeTable::RopeTable(std::vector<float> inverse_frequencies, float attention_factor)
    : state_(std::make_shared<State>()) {
    require(!inverse_frequencies.empty(), "a rope table needs frequencies");
    auto rows = std::make_shared<Rows>();
    rows->frequencies = std::move(inverse_frequencies);
    rows->factor = attention_factor;
    state_->rows = std::move(rows);
}

std::int64_t RopeTable::head_dim() const {
    if (!state_) return 0;
    const std::lock_guard lock(state_->mutex);
    return state_->rows->head_dim();
}

// Rows never change once they are handed out; a larger set replaces them.
std::shared_ptr<const RopeTable::Rows> RopeTable::rows(std::int64_t positions) const {
    std::shared_ptr<const Rows> before;  // goes when the lock is gone: its copy on a GPU waits for the GPU
    const std::lock_guard lock(state_->mutex);
    const std::shared_ptr<const Rows>& now = state_->rows;
    const std::int64_t wanted = std::min(positions, kMaxTableRows);
    if (now->positions >= wanted) return now;
    auto grown = std::make_shared<Rows>();
    grown->frequencies = now->frequencies;
    grown->factor = now->factor;
    grown->positions = std::max(now->positions, kFirstRows);
    while (grown->positions < wanted) grown->positions += std::min(grown->positions, kMostMoreRows);
    const std::int64_t dim = grown->head_dim();
    grown->values = now->values;
    grown->values.resize(static_cast<std::size_t>(grown->positions * dim));
    for (std::int64_t p = now->positions; p < grown->positions; ++p)
        grown->fill(p, grown->values.data() + p * dim);
    before = std::exchange(state_->rows, std::move(grown));
    return state_->rows;
}

}  // namespace tandem::ops
