// A trainer's attached memory: its regions, mapped (read-only on the CPU), and its plan, checked against the
// engine's tensors. Makes the copy of each transfer, and has a writer carry out those of a bucket.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine_adapter/receiver/bucket_receiver.h"
#include "engine_adapter/receiver/relay_lanes.h"
#include "engine_adapter/receiver/weight_target.h"
#include "engine_adapter/receiver/weight_writer.h"

namespace tandem::engine {

class Attachment {
  public:
    // Throws ProtocolError (check_plan). `weights` is borrowed.
    Attachment(std::vector<MappedRegion> regions, TransferPlan plan, const std::vector<WeightSlot>& weights);

    Attachment(const Attachment&) = delete;
    Attachment& operator=(const Attachment&) = delete;

    const TransferPlan& plan() const { return plan_; }
    // Of all regions.
    Device device() const { return regions_->empty() ? Device{} : regions_->front().device; }
    // Whether this process can read the regions; else a bucket's bytes are received (bucket_receiver.h).
    bool mapped() const;
    // Bytes of a region. Throws ProtocolError when they are not inside it, or not mapped.
    ConstSpan bytes_of(std::size_t region, std::uint64_t offset, std::uint64_t bytes) const;

    // The same, mapped or not.
    void require_inside(std::size_t region, std::uint64_t offset, std::uint64_t bytes) const;

    // From the region into the engine's own memory; `from`: where the bytes of a region that is not mapped lie.
    ops::CopyItem copy_of(const Transfer& transfer, const BucketReceiver::Arrived* from = nullptr) const;
    // Copies a bucket of the plan by `writer` into the engine's own memory. `receiver`: has its bytes, where the regions are
    // not mapped. Throws ProtocolError naming the transfer whose bytes are not those that `checksums` announce.
    void load(std::size_t bucket, std::span<const ops::Checksum> checksums, WeightWriter& writer,
              BucketReceiver* receiver = nullptr) const;
    // The cores that the trainer's ranks write on; none where a relay does not work.
    std::vector<int> relay_cores() const;
    // Takes every bucket as its ranks write it (relay_lanes.h); `found` gets the checksum of each transfer, which nobody has
    // compared yet.
    void relay(const RelayOrder& order, WeightWriter& writer, std::vector<ops::Checksum>& found) const;
    // Throws ProtocolError naming the first transfer whose checksum is not that of `checksums`.
    void compare(std::span<const ops::Checksum> found, std::span<const ops::Checksum> checksums) const;
    // Reads all of the engine's own memory again. Throws ProtocolError naming the first transfer whose bytes are not those
    // of `checksums`.
    void verify(std::span<const ops::Checksum> checksums, WeightWriter& writer) const;
    // The engine's own memory read again, to be checksummed.
    ops::CopyItem reading_of(const Transfer& transfer) const;

    // Where each tensor lies when the engine reads it in the regions, `shift` bytes further on than the plan
    // says. Throws ProtocolError naming the first tensor that does not lie there in one piece.
    std::vector<Span> in_place(std::uint64_t shift) const;
    std::shared_ptr<const void> regions() const { return regions_; }  // keeps them mapped

    // Events that the regions' writers record behind their writes.
    const std::vector<SharedEvent>& written() const { return written_; }

    std::string describe(const Transfer& transfer) const;

  private:
    // A tensor that lies in one region at a fixed distance from where it goes.
    struct Place {
        const Transfer* first = nullptr;
        const Transfer* misfit = nullptr;  // the first transfer that does not lie so
    };
    void require_mapped() const;
    const std::vector<WeightSlot>& weights_;
    std::shared_ptr<std::vector<MappedRegion>> regions_;
    TransferPlan plan_;
    std::vector<SharedEvent> written_;
    std::vector<Place> places_;
};

}  // namespace tandem::engine
