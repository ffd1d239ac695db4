#include "engine_adapter/receiver/update.h"

#include "common/error.h"

namespace tandem::engine {

Update::Update(const std::vector<WeightSlot>& weights, std::int64_t version)
    : weights_(weights), version_(version), arrived_(weights.size()) {}

std::string Update::describe(int bucket, const wire::Entry& entry) const {
    return fmt::format("bucket {}: tensor '{}' bytes [{}, {}) from rank {}", bucket,
                       weights_[entry.tensor].info.name, entry.tensor_offset,
                       entry.tensor_offset + entry.bytes, entry.source_rank);
}

void Update::admit(int bucket, std::span<const wire::Entry> entries, std::size_t slot_bytes) {
    for (const wire::Entry& entry : entries) {
        if (entry.tensor >= weights_.size()) {
            throw ProtocolError(fmt::format("bucket {}: tensor number {} from rank {}, the engine holds {}",
                                            bucket, entry.tensor, entry.source_rank, weights_.size()));
        }
        const std::uint64_t size = weights_[entry.tensor].memory.bytes;
        if (entry.bytes == 0 || entry.bytes > size || entry.tensor_offset > size - entry.bytes) {
            throw ProtocolError(
                fmt::format("{} is not inside the tensor's {} bytes", describe(bucket, entry), size));
        }
        if (entry.bytes > slot_bytes || entry.bucket_offset > slot_bytes - entry.bytes) {
            throw ProtocolError(fmt::format("{} at {} is not inside the slot's {} bytes",
                                            describe(bucket, entry), entry.bucket_offset, slot_bytes));
        }
        auto& runs = arrived_[entry.tensor];
        const std::uint64_t end = entry.tensor_offset + entry.bytes;
        const auto next = runs.lower_bound(entry.tensor_offset);
        const bool hits_next = next != runs.end() && next->first < end;
        const bool hits_previous = next != runs.begin() && std::prev(next)->second.end > entry.tensor_offset;
        if (hits_next || hits_previous) {
            throw ProtocolError(describe(bucket, entry) + " overlaps bytes that arrived before");
        }
        runs.emplace_hint(next, entry.tensor_offset, Run{end, entry.checksum});
    }
}

void Update::require_whole() const {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        std::uint64_t covered = 0;
        for (const auto& [start, run] : arrived_[i]) {
            if (start != covered) break;
            covered = run.end;
        }
        if (covered != weights_[i].memory.bytes) {
            throw ProtocolError(fmt::format("version {} is not whole: tensor '{}' lacks bytes from {} of {}",
                                            version_, weights_[i].info.name, covered,
                                            weights_[i].memory.bytes));
        }
    }
}

ops::Checksum Update::manifest() const {
    std::vector<TensorInfo> tensors;
    std::vector<ops::Checksum> checksums;
    std::vector<ops::Checksum> parts;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        parts.clear();
        for (const auto& [start, run] : arrived_[i]) parts.push_back(run.checksum);
        tensors.push_back(weights_[i].info);
        checksums.push_back(ops::combine(parts));
    }
    return manifest_checksum(version_, tensors, checksums);
}

}  // namespace tandem::engine
