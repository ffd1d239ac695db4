// Memory on paper: blocks that are taken and given back without being allocated, and the peaks that they
// would have made. The counterpart of common/device/memory.h; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/device/memory.h"

namespace tandem::trainer::memory {

class Ledger {
  public:
    // Owns its bytes of the ledger until it goes. Copies share them, as copies of a tensor do.
    using Block = std::shared_ptr<const void>;

    Ledger() = default;
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;

    Block take(const std::string& tag, std::int64_t bytes) {
        grow(tag, bytes);
        return {nullptr, [this, tag, bytes](const void*) { grow(tag, -bytes); }};
    }
    // Bytes that come and go without a block.
    void grow(const std::string& tag, std::int64_t bytes) {
        live_[tag] += bytes;
        total_ += bytes;
        MemoryPeak& peak = phases_[phase_];
        if (total_ <= static_cast<std::int64_t>(peak.bytes)) return;
        peak.bytes = static_cast<std::uint64_t>(total_);
        peak.by_tag.clear();
        for (const auto& [name, live] : live_) {
            if (live > 0) peak.by_tag[name] = static_cast<std::uint64_t>(live);
        }
    }
    void enter(const std::string& phase) {
        phase_ = phase;
        grow("", 0);
    }
    std::int64_t live() const { return total_; }
    const std::map<std::string, MemoryPeak>& phases() const { return phases_; }

  private:
    std::string phase_ = "other";
    std::int64_t total_ = 0;
    std::map<std::string, std::int64_t> live_;
    std::map<std::string, MemoryPeak> phases_;
};

using Block = Ledger::Block;

}  // namespace tandem::trainer::memory
