// all_gather, broadcast, all_to_all against byte-exact oracles.
#include <cstring>

#include "tests/contract/comm/checks.h"
#include "tests/contract/comm/data.h"

namespace tandem::comm::contract {
namespace {

// In line, at the border, direct or staged in one window, staged in several windows.
constexpr std::size_t kSizes[] = {0, 1, 4, 1000, 8192, 8193, 100'000, kSanitized ? 1'200'001 : 5'000'001};

void check_bytes(Span got, std::uint64_t seed, int rank, const std::string& what) {
    for (std::size_t i = 0; i < got.bytes; ++i) {
        expect(got.data[i] == byte_at(seed, rank, i), "{}: byte {} of rank {} is wrong", what, i, rank);
    }
}

void all_gather_one(Communicator& comm, std::size_t bytes, Where where, bool in_place) {
    const auto n = static_cast<std::size_t>(comm.size());
    const auto me = static_cast<std::size_t>(comm.rank());
    Buffer recv(n * bytes, "test", pool_of(comm, where));
    std::memset(recv.data(), 0xee, recv.bytes());
    Buffer own(bytes, "test", pool_of(comm, where));
    const Span send = in_place ? recv.span().subspan(me * bytes, bytes) : own.span();
    fill_bytes(send, bytes, comm.rank());
    comm.all_gather(send, recv.span());
    // The caller may overwrite its send at once.
    if (!in_place) std::memset(own.data(), 0, own.bytes());
    for (int r = 0; r < comm.size(); ++r) {
        check_bytes(recv.span().subspan(static_cast<std::size_t>(r) * bytes, bytes), bytes, r,
                    fmt::format("all_gather of {} bytes", bytes));
    }
}

void all_gather_sizes(const World& world) {
    for (const Where where : {Where::heap, Where::ordinary, Where::mixed}) {
        for (const std::size_t bytes : kSizes) {
            all_gather_one(*world, bytes, where, false);
            all_gather_one(*world, bytes, where, true);
        }
    }
}

// More items than fit beside each other in one post, uneven and empty ones, in all kinds of memory.
void all_gather_items(const World& world) {
    const auto n = static_cast<std::size_t>(world->size());
    for (const std::size_t count : {std::size_t{3}, std::size_t{40}, std::size_t{900}}) {
        for (const std::size_t most : {std::size_t{8}, std::size_t{9000}}) {
            Stream stream = Stream::make_inline();
            std::vector<Buffer> sends;
            std::vector<Buffer> recvs;
            std::vector<GatherItem> items;
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t bytes = mix(count, most, i) % most;
                const Where where = i % 3 == 0 ? Where::ordinary : (i % 3 == 1 ? Where::heap : Where::mixed);
                sends.emplace_back(bytes, "test", pool_of(*world, where));
                recvs.emplace_back(n * bytes, "test", pool_of(*world, where));
                fill_bytes(sends.back().span(), i, world->rank());
                items.push_back({sends.back().span(), recvs.back().span()});
            }
            world->all_gather(items, stream);
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t bytes = sends[i].bytes();
                for (std::size_t r = 0; r < n; ++r) {
                    check_bytes(recvs[i].span().subspan(r * bytes, bytes), i, static_cast<int>(r),
                                fmt::format("item {} of {}", i, count));
                }
            }
        }
    }
    Stream stream = Stream::make_inline();
    world->all_gather(std::span<const GatherItem>(), stream);
}

void broadcast_roots(const World& world) {
    for (const Where where : {Where::heap, Where::ordinary, Where::mixed}) {
        for (const std::size_t bytes : kSizes) {
            for (int root = 0; root < world->size(); ++root) {
                Buffer memory(bytes, "test", pool_of(*world, where));
                fill_bytes(memory.span(), 77, world->rank());
                world->broadcast(memory.span(), root);
                check_bytes(memory.span(), 77, root, fmt::format("broadcast of {} bytes", bytes));
                if (world->rank() == root) std::memset(memory.data(), 0, bytes);
            }
        }
    }
}

// What `from` sends to `to`; some pairs exchange nothing.
std::size_t a2a_bytes(std::uint64_t seed, std::size_t most, std::size_t from, std::size_t to) {
    const std::uint64_t h = mix(seed, from, to);
    return h % 4 == 0 ? 0 : h / 4 % most;
}

void all_to_all_uneven(const World& world) {
    const auto n = static_cast<std::size_t>(world->size());
    const auto me = static_cast<std::size_t>(world->rank());
    Stream stream = Stream::make_inline();
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        const std::size_t most = seed < 4 ? 100 : (seed < 10 ? 50'000 : 3'000'000);
        const Where where = seed % 3 == 0 ? Where::heap : (seed % 3 == 1 ? Where::ordinary : Where::mixed);
        AllToAllItem item;
        std::size_t sent = 0;
        std::size_t received = 0;
        for (std::size_t p = 0; p < n; ++p) {
            item.send_bytes.push_back(a2a_bytes(seed, most, me, p));
            item.recv_bytes.push_back(a2a_bytes(seed, most, p, me));
            sent += item.send_bytes.back();
            received += item.recv_bytes.back();
        }
        Buffer send(sent, "test", pool_of(*world, where));
        Buffer recv(received, "test", pool_of(*world, where));
        item.send = send.span();
        item.recv = recv.span();
        std::size_t at = 0;
        for (std::size_t p = 0; p < n; ++p) {
            fill_bytes(send.span().subspan(at, item.send_bytes[p]), seed * n + p, world->rank());
            at += item.send_bytes[p];
        }
        world->all_to_all(item, stream);
        at = 0;
        for (std::size_t p = 0; p < n; ++p) {
            check_bytes(recv.span().subspan(at, item.recv_bytes[p]), seed * n + me, static_cast<int>(p),
                        "all_to_all");
            at += item.recv_bytes[p];
        }
    }
}

}  // namespace

std::vector<Check> gather_checks() {
    return {{"all_gather_sizes", all_gather_sizes},
            {"all_gather_items", all_gather_items},
            {"broadcast_roots", broadcast_roots},
            {"all_to_all_uneven", all_to_all_uneven}};
}

}  // namespace tandem::comm::contract
