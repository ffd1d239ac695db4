#include "common/comm/arguments.h"

#include <algorithm>
#include <set>

#include "common/comm/reduce.h"
#include "common/error.h"

namespace tandem::comm {

void check_all_gather(const Communicator& comm, std::span<const GatherItem> items) {
    const auto n = static_cast<std::size_t>(comm.size());
    for (const auto& item : items) {
        require(item.recv.bytes == n * item.send.bytes,
                "all_gather on '{}': recv has {} bytes, {} times {} are needed", comm.name(), item.recv.bytes,
                n, item.send.bytes);
    }
}

void check_reduce_scatter(const Communicator& comm, std::span<const ReduceScatterItem> items) {
    const auto n = static_cast<std::size_t>(comm.size());
    for (const auto& item : items) {
        require(item.dtype == DType::float32 || item.dtype == DType::bfloat16,
                "reduce_scatter on '{}' of {}; float32 and bfloat16 are possible", comm.name(),
                dtype_name(item.dtype));
        require(item.send.bytes == n * item.recv.bytes,
                "reduce_scatter on '{}': send has {} bytes, {} times {} are needed", comm.name(),
                item.send.bytes, n, item.recv.bytes);
        require(item.recv.bytes % dtype_size(item.dtype) == 0, "reduce_scatter on '{}': {} bytes of {}",
                comm.name(), item.recv.bytes, dtype_name(item.dtype));
        require(!item.accumulate || item.dtype == DType::float32,
                "reduce_scatter on '{}' accumulates in float32 only", comm.name());
    }
}

void check_all_reduce(const Communicator& comm, Span inout, DType dtype, ReduceOp op) {
    require_reducible(dtype, op);
    require(inout.bytes % dtype_size(dtype) == 0, "all_reduce on '{}': {} bytes of {}", comm.name(),
            inout.bytes, dtype_name(dtype));
}

void check_broadcast(const Communicator& comm, int root) {
    require(root >= 0 && root < comm.size(), "broadcast on '{}' from member {} of {}", comm.name(), root,
            comm.size());
}

void check_all_to_all(const Communicator& comm, const AllToAllItem& item) {
    const auto n = static_cast<std::size_t>(comm.size());
    require(item.send_bytes.size() == n && item.recv_bytes.size() == n,
            "all_to_all on '{}' with {} send sizes and {} receive sizes for {} ranks", comm.name(),
            item.send_bytes.size(), item.recv_bytes.size(), n);
    std::size_t sent = 0;
    std::size_t received = 0;
    for (std::size_t p = 0; p < n; ++p) {
        sent += item.send_bytes[p];
        received += item.recv_bytes[p];
    }
    require(sent == item.send.bytes && received == item.recv.bytes,
            "all_to_all on '{}': sizes add up to {} sent and {} received, memory has {} and {}", comm.name(),
            sent, received, item.send.bytes, item.recv.bytes);
}

void check_p2p(const Communicator& comm, std::span<const P2POp> ops) {
    for (const auto& op : ops) {
        require(op.peer >= 0 && op.peer < comm.size(), "p2p on '{}' with member {} of {}", comm.name(),
                op.peer, comm.size());
    }
}

void check_split(const Communicator& comm, int self, const std::vector<int>& ranks, const std::string& name) {
    const auto& members = comm.global_ranks();
    for (const int rank : ranks) {
        require(std::find(members.begin(), members.end(), rank) != members.end(),
                "split '{}': rank {} is not in '{}'", name, rank, comm.name());
    }
    require(std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size(),
            "split '{}': a rank comes twice", name);
    require(std::find(ranks.begin(), ranks.end(), self) != ranks.end(),
            "split '{}' called by rank {}, a stranger", name, self);
}

void check_timeout(std::chrono::milliseconds timeout) {
    require(timeout.count() > 0, "a timeout of {} ms", timeout.count());
}

}  // namespace tandem::comm
