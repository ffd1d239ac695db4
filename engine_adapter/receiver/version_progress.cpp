#include "engine_adapter/receiver/version_progress.h"

#include <algorithm>

#include "common/error.h"

namespace tandem::engine {

VersionProgress::VersionProgress(const std::vector<TensorInfo>& tensors, const TransferPlan& plan)
    : tensors_(tensors),
      plan_(plan),
      arrived_(plan.buckets()),
      changed_(plan.transfers.size()),
      checksums_(plan.transfers.size()) {}

void VersionProgress::start(std::int64_t version) {
    version_ = version;
    content_ = Content::nothing;
    buckets_arrived_ = 0;
    std::fill(arrived_.begin(), arrived_.end(), std::uint8_t{0});
    std::fill(changed_.begin(), changed_.end(), std::uint8_t{0});
}

void VersionProgress::require_not_closed(const char* what) const {
    if (content_ == Content::all) {
        throw ProtocolError(
            fmt::format("{} after version {} was verified or adopted as a whole", what, version_));
    }
}

void VersionProgress::add_bucket(std::int64_t bucket, std::span<const ops::Checksum> checksums) {
    require_not_closed("a bucket");
    if (bucket < 0 || static_cast<std::size_t>(bucket) >= arrived_.size()) {
        throw ProtocolError(fmt::format("bucket {} of {}", bucket, arrived_.size()));
    }
    const auto at = static_cast<std::size_t>(bucket);
    const std::size_t count = plan_.bucket(at).size();
    if (checksums.size() != count) {
        throw ProtocolError(
            fmt::format("bucket {}: {} checksums for {} transfers", bucket, checksums.size(), count));
    }
    if (arrived_[at] != 0) {
        throw ProtocolError(fmt::format("bucket {} arrived before in version {}", bucket, version_));
    }
    arrived_[at] = 1;
    ++buckets_arrived_;
    if (content_ == Content::nothing) content_ = Content::buckets;
    std::copy(checksums.begin(), checksums.end(),
              checksums_.begin() + static_cast<std::ptrdiff_t>(plan_.first[at]));
}

void VersionProgress::add_changes(std::int64_t bucket, std::span<const DeltaEntry> entries) {
    require_not_closed("changes");
    for (const DeltaEntry& entry : entries) {
        if (entry.transfer >= changed_.size()) {
            throw ProtocolError(fmt::format("bucket {}: changes of transfer {} of {}", bucket, entry.transfer,
                                            changed_.size()));
        }
        if (changed_[entry.transfer] != 0) {
            throw ProtocolError(
                fmt::format("bucket {}: transfer {} of tensor '{}' changes twice in version {}", bucket,
                            entry.transfer, tensors_[plan_.transfers[entry.transfer].tensor].name, version_));
        }
        changed_[entry.transfer] = 1;
    }
    content_ = Content::unverified;
}

void VersionProgress::add_unverified(const char* what) {
    require_not_closed(what);
    content_ = Content::unverified;
}

void VersionProgress::add_all(const char* what, std::span<const ops::Checksum> checksums) {
    require_not_closed(what);
    if (checksums.size() != checksums_.size()) {
        throw ProtocolError(
            fmt::format("{}: {} checksums for {} transfers", what, checksums.size(), checksums_.size()));
    }
    content_ = Content::all;
    std::copy(checksums.begin(), checksums.end(), checksums_.begin());
}

void VersionProgress::require_whole(const ops::Checksum& manifest) const {
    if (content_ == Content::unverified) {
        throw ProtocolError(fmt::format("version {} is not whole: what came was not verified", version_));
    }
    if (content_ != Content::all && buckets_arrived_ != arrived_.size()) {
        const auto missing = static_cast<std::size_t>(
            std::find(arrived_.begin(), arrived_.end(), std::uint8_t{0}) - arrived_.begin());
        const std::span<const Transfer> transfers = plan_.bucket(missing);
        const std::string tensor = transfers.empty() ? ""
                                                     : fmt::format(" (tensor '{}' and what follows)",
                                                                   tensors_[transfers.front().tensor].name);
        throw ProtocolError(
            fmt::format("version {} is not whole: bucket {}{} has not arrived", version_, missing, tensor));
    }
    const ops::Checksum mine = manifest_checksum(version_, tensors_, plan_, checksums_);
    if (mine != manifest) {
        throw ProtocolError(fmt::format("the manifest of version {} is {}, the trainer's {}", version_,
                                        ops::to_hex(mine), ops::to_hex(manifest)));
    }
}

}  // namespace tandem::engine
