// Point-to-point batches: rings, exchanges, order within a pair, sends to oneself, everything larger than a
// channel.
#include <cstring>

#include "tests/contract/comm/checks.h"
#include "tests/contract/comm/data.h"

namespace tandem::comm::contract {
namespace {

P2POp send_to(int peer, const Buffer& memory) {
    return {P2POp::Kind::send, peer, memory.span()};
}
P2POp recv_from(int peer, const Buffer& memory) {
    return {P2POp::Kind::recv, peer, memory.span()};
}

void check_filled(const Buffer& memory, std::uint64_t seed, int rank, const char* what) {
    for (std::size_t i = 0; i < memory.bytes(); ++i) {
        expect(memory.data()[i] == byte_at(seed, rank, i), "{}: byte {} from rank {} is wrong", what, i,
               rank);
    }
}

// Ring attention's pattern: pass a block on and take the next, n - 1 times, until it went around.
void ring(const World& world) {
    const int n = world->size();
    const int next = (world->rank() + 1) % n;
    const int previous = (world->rank() + n - 1) % n;
    Stream stream = Stream::make_inline();
    for (const Where where : {Where::heap, Where::ordinary, Where::mixed}) {
        for (const std::size_t bytes :
             {std::size_t{0}, std::size_t{3}, std::size_t{70'000}, std::size_t{5'000'003}}) {
            Buffer here(bytes, "test", pool_of(*world, where));
            Buffer there(bytes, "test", pool_of(*world, where));
            fill_bytes(here.span(), bytes, world->rank());
            for (int step = 1; step < n; ++step) {
                const P2POp ops[] = {send_to(next, here), recv_from(previous, there)};
                world->p2p(ops, stream);
                std::swap(here, there);
                std::memset(there.data(), 0, bytes);
            }
            check_filled(here, bytes, next, "ring");
        }
    }
}

// Everybody sends 20 messages to everybody, itself included; receives are listed first, last, or in between.
void everybody(const World& world) {
    constexpr int kMessages = 20;
    const int n = world->size();
    Stream stream = Stream::make_inline();
    for (int order = 0; order < 3; ++order) {
        std::vector<Buffer> buffers;
        std::vector<P2POp> sends;
        std::vector<P2POp> recvs;
        const auto bytes_of = [](int from, int to, int m) {
            return mix(static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(from),
                       static_cast<std::uint64_t>(to)) %
                   (m == 5 ? 2'500'000 : 300);
        };
        for (int m = 0; m < kMessages; ++m) {
            for (int peer = 0; peer < n; ++peer) {
                const Where where = m % 2 == 0 ? Where::heap : Where::ordinary;
                buffers.emplace_back(bytes_of(world->rank(), peer, m), "test", pool_of(*world, where));
                fill_bytes(buffers.back().span(), static_cast<std::uint64_t>(m), world->rank());
                sends.push_back(send_to(peer, buffers.back()));
                buffers.emplace_back(bytes_of(peer, world->rank(), m), "test");
                recvs.push_back(recv_from(peer, buffers.back()));
            }
        }
        std::vector<P2POp> ops;
        for (std::size_t i = 0; i < sends.size(); ++i) {
            if (order == 2) ops.push_back(sends[i]);
            if (order == 2) ops.push_back(recvs[i]);
        }
        if (order < 2) {
            ops = order == 0 ? recvs : sends;
            const auto& rest = order == 0 ? sends : recvs;
            ops.insert(ops.end(), rest.begin(), rest.end());
        }
        world->p2p(ops, stream);
        for (std::size_t i = 0; i < recvs.size(); ++i) {
            const int m = static_cast<int>(i) / n;
            check_filled(buffers[2 * i + 1], static_cast<std::uint64_t>(m), recvs[i].peer, "everybody");
        }
    }
}

// Batches need not have the same borders on both sides, only the same order.
void batches_meet_in_order(const World& world) {
    Stream stream = Stream::make_inline();
    constexpr int kMessages = 12;
    std::vector<Buffer> buffers;
    std::vector<P2POp> ops;
    for (int m = 0; m < kMessages; ++m) {
        buffers.emplace_back(4, "test", world->memory());
        const std::uint64_t seed = static_cast<std::uint64_t>(m);
        if (world->rank() == 0) fill_bytes(buffers.back().span(), seed, 0);
        if (world->rank() < 2) {
            ops.push_back(world->rank() == 0 ? send_to(1, buffers.back()) : recv_from(0, buffers.back()));
        }
    }
    const std::size_t batch = world->rank() == 0 ? 12 : 3;
    for (std::size_t at = 0; at < ops.size(); at += batch)
        world->p2p(std::span(ops).subspan(at, batch), stream);
    if (world->rank() != 1) return;
    for (int m = 0; m < kMessages; ++m) {
        check_filled(buffers[static_cast<std::size_t>(m)], static_cast<std::uint64_t>(m), 0, "batches");
    }
}

}  // namespace

std::vector<Check> p2p_checks() {
    return {{"p2p_ring", ring}, {"p2p_everybody", everybody}, {"p2p_batches", batches_meet_in_order, 2}};
}

}  // namespace tandem::comm::contract
