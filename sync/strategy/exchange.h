// One small all-gather that keeps the ranks of a push in step: every rank hears every rank's records
// (checksums of the pieces that it has just written), and whether any rank has failed. It is also the barrier
// after which a bucket is whole.
#pragma once

#include <span>

#include "common/comm/communicator.h"
#include "common/device/memory.h"
#include "sync/strategy/push_status.h"

namespace tandem::sync {

template <typename Record>
class Exchange {
  public:
    Exchange(comm::Communicator& world, std::size_t max_records)
        : world_(world),
          max_records_(max_records),
          buffer_(static_cast<std::size_t>(world.size()) * stride(), "sync records", world.memory()) {}

    std::size_t max_records() const { return max_records_; }
    // This rank's; valid until run, which sends the first `count` of them.
    Record* mine() const { return records(world_.rank()); }
    // Collective, also after a failure here: sets status.failed on every rank when any has failed. Throws
    // what the communicator throws.
    void run(PushStatus& status, std::size_t count = 0, bool more = false) {
        header(world_.rank()) = {status.failed ? 1u : 0u, more ? 1u : 0u, count};
        const comm::GatherItem item{record(world_.rank()), buffer_.span()};
        Stream here = Stream::make_inline();
        world_.all_gather({&item, 1}, here);
        more_ = false;
        for (int rank = 0; rank < world_.size(); ++rank) {
            status.failed = status.failed || header(rank).failed != 0;
            more_ = more_ || header(rank).more != 0;
        }
    }
    std::span<const Record> of(int rank) const { return {records(rank), header(rank).count}; }
    bool more() const { return more_; }  // any rank said so in the last run

  private:
    struct alignas(16) Header {
        std::uint32_t failed = 0;
        std::uint32_t more = 0;
        std::uint64_t count = 0;
    };
    std::size_t stride() const { return sizeof(Header) + max_records_ * sizeof(Record); }
    Span record(int rank) const {
        return buffer_.span().subspan(static_cast<std::size_t>(rank) * stride(), stride());
    }
    Header& header(int rank) const { return *reinterpret_cast<Header*>(record(rank).data); }
    Record* records(int rank) const { return reinterpret_cast<Record*>(record(rank).data + sizeof(Header)); }

    comm::Communicator& world_;
    std::size_t max_records_;
    Buffer buffer_;  // [rank][Header, records]
    bool more_ = false;
};

}  // namespace tandem::sync
