// The changes of a bucket on their way into the engine's weights: what a trainer says of them is checked,
// their encodings are copied out of its memory and verified, and then they are applied. The trainer can write
// to its memory all the while: only the copy is taken apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine_adapter/receiver/attachment.h"
#include "engine_adapter/receiver/weight_writer.h"

namespace tandem::engine {

class Changes {
  public:
    // All are borrowed.
    Changes(const std::vector<WeightSlot>& weights, WeightWriter& writer)
        : weights_(weights), writer_(writer) {}

    // Throws ProtocolError naming bucket and tensor unless the entry can be read and carried out. no_base:
    // why the engine holds nothing that could be changed; empty: it does.
    void check(std::int64_t bucket, const DeltaEntry& entry, const Attachment& from,
               const std::string& no_base) const;

    // Of entries that were checked. Throws ProtocolError naming the first whose checksum is another than
    // announced. Attachment and entries are borrowed until apply() is over.
    // `received`: has the bytes, where regions are not mapped; borrowed likewise.
    void take(std::int64_t bucket, std::span<const DeltaEntry> entries, const Attachment& from,
              const ChangesReceiver* received = nullptr);
    // Writes what was taken. Throws ProtocolError: an encoding makes no sense, and others may have been
    // applied.
    void apply();

  private:
    const Transfer& transfer_of(std::size_t i) const { return from_->plan().transfers[entries_[i].transfer]; }

    const std::vector<WeightSlot>& weights_;
    WeightWriter& writer_;
    const Attachment* from_ = nullptr;
    std::int64_t bucket_ = 0;
    std::span<const DeltaEntry> entries_;
    std::vector<ConstSpan> encoded_;  // [entry]
    std::vector<std::byte> copied_;
};

}  // namespace tandem::engine
