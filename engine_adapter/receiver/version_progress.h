// The bookkeeping of one open version: which buckets have arrived, and the checksum of every transfer. Pure:
// moves nothing. Made once for a plan and restarted for each version, so that a version allocates nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine_adapter/engine.h"

namespace tandem::engine {

class VersionProgress {
  public:
    // Both are borrowed; the plan has been checked.
    VersionProgress(const std::vector<TensorInfo>& tensors, const TransferPlan& plan);

    void start(std::int64_t version);
    std::int64_t version() const { return version_; }

    // A bucket of the plan that has not arrived in this version, with a checksum for each of its transfers.
    // Throws ProtocolError naming the bucket.
    void add_bucket(std::int64_t bucket, std::span<const ops::Checksum> checksums);
    // Changes to transfers that this version has not changed yet. Throws ProtocolError.
    void add_changes(std::int64_t bucket, std::span<const DeltaEntry> entries);
    // Bytes of any transfers, whose checksums nobody has compared.
    void add_unverified(const char* what);
    // All transfers at once: checksums that the engine has verified (or, for adopt, takes as they are).
    // Nothing may follow. Throws ProtocolError when there is not one for each transfer.
    void add_all(const char* what, std::span<const ops::Checksum> checksums);

    bool started() const { return content_ != Content::nothing; }
    // Every byte is accounted for, and `manifest` is that of their checksums (engine.h). Throws ProtocolError saying what
    // is missing, or both manifests.
    void require_whole(const ops::Checksum& manifest) const;

  private:
    enum class Content : std::uint8_t { nothing, buckets, unverified, all };
    void require_not_closed(const char* what) const;

    const std::vector<TensorInfo>& tensors_;
    const TransferPlan& plan_;
    std::int64_t version_ = 0;
    Content content_ = Content::nothing;
    std::size_t buckets_arrived_ = 0;
    std::vector<std::uint8_t> arrived_;     // [bucket]
    std::vector<std::uint8_t> changed_;     // [transfer]
    std::vector<ops::Checksum> checksums_;  // [transfer]
};

}  // namespace tandem::engine
