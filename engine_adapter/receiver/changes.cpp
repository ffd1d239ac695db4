#include "engine_adapter/receiver/changes.h"

#include <cstring>

#include "common/error.h"
#include "common/ops/delta.h"
#include "common/trace.h"

namespace tandem::engine {
namespace {

bool is_dense(const DeltaEntry& entry) {
    return entry.codec == static_cast<std::uint32_t>(ops::DeltaCodec::dense);
}

}  // namespace

void Changes::check(std::int64_t bucket, const DeltaEntry& entry, const Attachment& from,
                    const std::string& no_base) const {
    const TransferPlan& plan = from.plan();
    if (entry.transfer >= plan.transfers.size()) return;  // VersionProgress says so
    const Transfer& transfer = plan.transfers[entry.transfer];
    const auto refuse = [&](const std::string& why) {
        throw ProtocolError(fmt::format("bucket {}: {} {}", bucket, from.describe(transfer), why));
    };
    if (entry.codec > static_cast<std::uint32_t>(ops::DeltaCodec::dense))
        refuse(fmt::format("is changed by codec number {}", entry.codec));
    // The dense codec replaces all elements; every other one needs a base.
    if (!is_dense(entry) && !no_base.empty()) refuse(no_base);
    const DType dtype = weights_[transfer.tensor].info.dtype;
    if (dtype != DType::float32 && dtype != DType::bfloat16 && dtype != DType::float16)
        refuse(fmt::format("is {}, which a delta cannot change", dtype_name(dtype)));
    try {
        from.require_inside(0, entry.offset, entry.bytes);
    } catch (const ProtocolError& error) {
        refuse(std::string("is changed by what cannot be read: ") + error.what());
    }
    // A copy is made of it. No codec takes more than the elements themselves, but for a few bytes.
    const std::uint64_t dense = transfer.rows * transfer.row_elements * dtype_size(dtype);
    if (entry.bytes > 2 * dense + 64)
        refuse(fmt::format("is changed by {} bytes, and has only {}", entry.bytes, dense));
}

// The dense codec is not copied: its elements are written as they are, and verify looks at the result.
void Changes::take(std::int64_t bucket, std::span<const DeltaEntry> entries, const Attachment& from,
                   const ChangesReceiver* received) {
    bucket_ = bucket;
    entries_ = entries;
    from_ = &from;
    std::vector<std::size_t> at{0};
    for (const DeltaEntry& entry : entries)
        at.push_back(at.back() +
                     (received != nullptr || is_dense(entry) ? 0 : static_cast<std::size_t>(entry.bytes)));
    if (copied_.size() < at.back()) copied_.resize(at.back());
    encoded_.resize(entries.size());
    std::vector<ops::Checksum> found(entries.size());
    writer_.share(entries.size(), [&](std::size_t i) {
        if (received != nullptr) {
            encoded_[i] = {received->at(i), static_cast<std::size_t>(entries[i].bytes)};
        } else {
            encoded_[i] = from.bytes_of(0, entries[i].offset, entries[i].bytes);
        }
        if (received == nullptr && !is_dense(entries[i]) && encoded_[i].bytes > 0) {
            std::memcpy(copied_.data() + at[i], encoded_[i].data, encoded_[i].bytes);
            encoded_[i].data = copied_.data() + at[i];
        }
        found[i] = ops::checksum(encoded_[i]);
    });
    for (std::size_t i = 0; i < entries.size(); ++i) {
        if (found[i] == entries[i].checksum) continue;
        throw ProtocolError(fmt::format(
            "bucket {}: {} is corrupted: the checksum of its changes is {}, the rank announced {}", bucket,
            from.describe(transfer_of(i)), ops::to_hex(found[i]), ops::to_hex(entries[i].checksum)));
    }
}

void Changes::apply() {
    writer_.share(entries_.size(), [&](std::size_t i) {
        const Transfer& t = transfer_of(i);
        const WeightSlot& weight = weights_[t.tensor];
        try {
            writer_.apply(static_cast<ops::DeltaCodec>(entries_[i].codec), encoded_[i],
                          {weight.memory.data + t.to, t.to_stride, static_cast<std::int64_t>(t.rows),
                           static_cast<std::int64_t>(t.row_elements), dtype_size(weight.info.dtype)});
        } catch (const ProtocolError& error) {
            throw ProtocolError(fmt::format("bucket {}: {}: {}", bucket_, from_->describe(t), error.what()));
        }
    });
}

}  // namespace tandem::engine
