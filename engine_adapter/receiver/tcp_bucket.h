// A bucket, or a bucket of changes, whose bytes come over TCP: keeps its slot until it is destroyed.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine_adapter/receiver/bucket_receiver.h"
#include "engine_adapter/transport/tcp/member.h"
#include "engine_adapter/transport/tcp/packed.h"

namespace tandem::engine {

// What a request says of the bytes that belong to it.
struct TcpAnnounced {
    std::uint64_t serial = 0;
    std::string phase;
    Deadline deadline = Deadline::after_ms(0);
};

class TcpBytes {
  public:
    // Borrowed, but `announced`. waits: true while bytes are being waited for.
    TcpBytes(TcpMember& member, TcpAnnounced announced, const std::function<void()>& check, bool& waits)
        : member_(member), announced_(std::move(announced)), check_(check), waits_(waits) {}
    ~TcpBytes() { member_.release(announced_.serial); }
    TcpBytes(const TcpBytes&) = delete;
    TcpBytes& operator=(const TcpBytes&) = delete;

    void receive(std::vector<std::uint64_t> offsets) {
        const WaitsForBytes waits(waits_);
        data_ =
            member_.receive(announced_.serial, offsets.back(), announced_.phase, announced_.deadline, check_);
        offsets_ = std::move(offsets);
    }
    const std::byte* at(std::size_t index) const { return data_ + offsets_[index]; }
    void check() const { check_(); }

  private:
    TcpMember& member_;
    const TcpAnnounced announced_;
    const std::function<void()>& check_;
    bool& waits_;
    const std::byte* data_ = nullptr;
    std::vector<std::uint64_t> offsets_;
};

class TcpBucketReceiver final : public BucketReceiver {
  public:
    TcpBucketReceiver(TcpBytes& bytes, const TransferPlan& plan) : bytes_(bytes), plan_(plan) {}
    void receive(int bucket) override {
        bytes_.receive(packed_offsets(plan_.bucket(static_cast<std::size_t>(bucket))));
    }
    Arrived at(std::size_t index, const Transfer& t) const override {
        return {bytes_.at(index), t.row_elements * dtype_size(t.from_dtype)};
    }
    // The bytes are in host memory, whole, when receive() returns, and their copies have ended when load does.
    Event arrived() const override { return {}; }
    void release_after(const Event&) override {}
    void check() override { bytes_.check(); }

  private:
    TcpBytes& bytes_;
    const TransferPlan& plan_;
};

class TcpChangesReceiver final : public ChangesReceiver {
  public:
    TcpChangesReceiver(TcpBytes& bytes, std::span<const DeltaEntry> entries)
        : bytes_(bytes), entries_(entries) {}
    void receive() override { bytes_.receive(packed_offsets(entries_)); }
    const std::byte* at(std::size_t index) const override { return bytes_.at(index); }

  private:
    TcpBytes& bytes_;
    std::span<const DeltaEntry> entries_;
};

}  // namespace tandem::engine
