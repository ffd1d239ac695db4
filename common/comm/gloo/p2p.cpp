// A batch of sends and receives. Each message is announced with its size, which the receiver checks before it lets the
// bytes come.
#include <cstring>
#include <deque>

#include "common/comm/gloo/collectives.h"
#include "common/error.h"

namespace tandem::comm::gloo {
namespace {

constexpr const char* kWhat = "p2p";

[[noreturn]] void fail_size(const Group& group, const std::string& phase, int from, std::uint64_t sent,
                            std::uint64_t expected) {
    const std::string text =
        fmt::format("{}: {} sends {} bytes to {}, which expects {}", phase, group.rank_name(from), sent,
                    group.rank_name(group.index()), expected);
    group.mesh().abort(text);
    throw InvalidArgument(text);
}

// Messages from this rank to itself: the k-th send meets the k-th receive of the batch. One without a partner
// waits for something that cannot come.
void to_oneself(const Group& group, const std::vector<P2POp>& ops, const std::string& phase,
                Deadline deadline) {
    std::deque<Span> sends;
    std::deque<Span> recvs;
    for (const P2POp& op : ops) {
        if (op.peer == group.index()) (op.kind == P2POp::Kind::send ? sends : recvs).push_back(op.memory);
    }
    for (; !sends.empty() && !recvs.empty(); sends.pop_front(), recvs.pop_front()) {
        const Span from = sends.front();
        const Span to = recvs.front();
        if (from.bytes != to.bytes) fail_size(group, phase, group.index(), from.bytes, to.bytes);
        if (from.bytes > 0) std::memmove(to.data, from.data, from.bytes);
    }
    if (!sends.empty() || !recvs.empty()) group.mesh().wait_for_abort(phase, deadline);
}

}  // namespace

void OnCpu::p2p(const std::vector<P2POp>& ops) {
    const std::string phase = group_.phase(kWhat);
    const Deadline deadline = group_.mesh().deadline();
    group_.mesh().throw_if_aborted(phase);
    std::vector<std::uint64_t> sizes(ops.size());  // sent, or announced by the peer
    std::vector<Transfer> sends;
    std::vector<Transfer> announced;
    std::vector<std::size_t> receives;
    for (std::size_t i = 0; i < ops.size(); ++i) {
        const P2POp& op = ops[i];
        if (op.peer == group_.index()) continue;
        const Span size{reinterpret_cast<std::byte*>(&sizes[i]), sizeof(sizes[i])};
        if (op.kind == P2POp::Kind::recv) {
            announced.push_back(group_.recv(size, op.peer, Lane::p2p_size, phase));
            receives.push_back(i);
            continue;
        }
        sizes[i] = op.memory.bytes;
        sends.push_back(group_.send(size, op.peer, Lane::p2p_size, phase));
        if (op.memory.bytes > 0) sends.push_back(group_.send(op.memory, op.peer, Lane::p2p_data, phase));
    }
    std::vector<Transfer> data;
    for (std::size_t r = 0; r < receives.size(); ++r) {
        const P2POp& op = ops[receives[r]];
        // Together with those after it: should it be late, all that are get named.
        if (!announced[r].done()) group_.mesh().wait_first(std::span(announced).subspan(r), phase, deadline);
        if (sizes[receives[r]] != op.memory.bytes)
            fail_size(group_, phase, op.peer, sizes[receives[r]], op.memory.bytes);
        if (op.memory.bytes > 0) data.push_back(group_.recv(op.memory, op.peer, Lane::p2p_data, phase));
    }
    to_oneself(group_, ops, phase, deadline);
    group_.mesh().wait(data, phase, deadline);
    group_.mesh().wait(sends, phase, deadline);
}

}  // namespace tandem::comm::gloo
