// Barriers, asynchronous calls on several streams and groups, sub-groups, groups with equal members.
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/contract/comm/checks.h"
#include "tests/contract/comm/data.h"

namespace tandem::comm::contract {
namespace {

std::int64_t now_ns() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
}

// Nobody leaves a barrier before the last one came. The clock is the same for all ranks of a host.
void barrier_holds(const World& world) {
    const auto n = static_cast<std::size_t>(world->size());
    Buffer times(n * 16, "test", world->memory());
    for (int round = 0; round < world->size(); ++round) {
        if (round == world->rank()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        std::int64_t mine[2];
        mine[0] = now_ns();
        world->barrier();
        mine[1] = now_ns();
        world->all_gather({reinterpret_cast<const std::byte*>(mine), 16}, times.span());
        for (std::size_t a = 0; a < n; ++a) {
            for (std::size_t b = 0; b < n; ++b) {
                expect(as<std::int64_t>(times)[2 * a + 1] >= as<std::int64_t>(times)[2 * b],
                       "rank {} left the barrier before rank {} came", a, b);
            }
        }
    }
}

// 2 x (n / 2) mesh over the first n - n % 2 ranks: rows and columns work side by side, and a sum over rows,
// then columns is the sum over all.
void mesh_of_groups(const World& world) {
    const int n = world->size() / 2 * 2;
    const int me = world->rank();
    if (me >= n) return;
    const int columns = n / 2;
    std::vector<int> row;
    for (int c = 0; c < columns; ++c) row.push_back(me / columns * columns + c);
    const std::vector<int> column = {me % columns, me % columns + columns};
    const auto cp = world->split(row, "cp");
    const auto dp = world->split(column, "dp");
    expect(cp->size() == columns && dp->size() == 2, "wrong sizes");
    expect(cp->rank() == me % columns && dp->rank() == me / columns, "wrong ranks");
    expect(cp->global_ranks() == row && dp->global_ranks() == column, "wrong members");
    expect(cp->name() == "cp" && dp->name() == "dp", "wrong names");
    for (std::int64_t round = 0; round < 50; ++round) {
        std::int64_t value = (me + 1) * (round + 1);
        const Span span{reinterpret_cast<std::byte*>(&value), sizeof(value)};
        cp->all_reduce(span, DType::int64);
        dp->all_reduce(span, DType::int64);
        expect(value == (round + 1) * n * (n + 1) / 2, "round {}: {}", round, value);
    }
}

World reversed_group(const World& world) {
    std::vector<int> reversed;
    for (int r = world->size() - 1; r >= 0; --r) reversed.push_back(r);
    return world->split(reversed, "x");
}

Work largest(Communicator& comm, std::int64_t& value, Stream& stream) {
    return comm.all_reduce({reinterpret_cast<std::byte*>(&value), 8}, DType::int64, ReduceOp::max, stream);
}

// The order of the list is the order of the group; equal lists give groups of their own.
void splits(const World& world) {
    const auto a = reversed_group(world);
    const auto b = reversed_group(world);
    const auto inner = a->split({world->rank()}, "alone");
    expect(a->rank() == world->size() - 1 - world->rank(), "the order of the list is lost");
    expect(inner->size() == 1 && inner->rank() == 0, "a group of one");
    inner->barrier();
    Stream stream = Stream::make_inline();
    std::int64_t in_a = world->rank();
    std::int64_t in_b = 100 + world->rank();
    largest(*a, in_a, stream).wait(Deadline::after_ms(30'000));
    largest(*b, in_b, stream).wait(Deadline::after_ms(30'000));
    expect(in_a == world->size() - 1 && in_b == 100 + world->size() - 1, "groups mixed: {} {}", in_a, in_b);
}

// Half of the ranks queue b first: were they one group, the calls would mix.
void splits_in_any_order(const World& world) {
    const auto a = reversed_group(world);
    const auto b = reversed_group(world);
    Stream stream_a = Stream::make_worker("a");
    Stream stream_b = Stream::make_worker("b");
    std::int64_t in_a = world->rank();
    std::int64_t in_b = 100 + world->rank();
    const bool a_first = world->rank() % 2 == 0;
    const Work first = a_first ? largest(*a, in_a, stream_a) : largest(*b, in_b, stream_b);
    const Work second = a_first ? largest(*b, in_b, stream_b) : largest(*a, in_a, stream_a);
    first.wait(Deadline::after_ms(30'000));
    second.wait(Deadline::after_ms(30'000));
    expect(in_a == world->size() - 1 && in_b == 100 + world->size() - 1, "groups mixed: {} {}", in_a, in_b);
}

// Gathers on one stream, reductions of another group on a second, waits in between, all queued before any is
// awaited.
void streams_interleave(const World& world) {
    const auto n = static_cast<std::size_t>(world->size());
    std::vector<int> all;
    for (int r = 0; r < world->size(); ++r) all.push_back(r);
    const auto other = world->split(all, "other");
    Stream gathers = Stream::make_worker("gathers");
    Stream reduces = Stream::make_worker("reduces");
    constexpr std::size_t kRounds = 25;
    constexpr std::size_t kCount = 3000;
    std::vector<Buffer> parts;
    std::vector<Buffer> wholes;
    std::vector<Work> works;
    for (std::size_t round = 0; round < kRounds; ++round) {
        MemoryPool& pool = pool_of(*world, round % 2 == 0 ? Where::heap : Where::ordinary);
        parts.emplace_back(kCount * 4, "test", pool);
        wholes.emplace_back(n * kCount * 4, "test", pool);
        for (std::size_t i = 0; i < kCount; ++i)
            as<float>(parts[round])[i] = float_at(round, world->rank(), i);
        // Reduce on one stream, gather the result on another: each rank then holds n equal copies.
        const Work reduced_work =
            other->all_reduce(parts[round].span(), DType::float32, ReduceOp::sum, reduces);
        gathers.wait(reduced_work.event());
        const GatherItem item{parts[round].span(), wholes[round].span()};
        works.push_back(world->all_gather(std::span(&item, 1), gathers));
    }
    for (const Work& work : works) work.wait(Deadline::after_ms(30'000));
    for (std::size_t round = 0; round < kRounds; ++round) {
        expect(works[round].poll() == Poll::done, "not done after wait");
        for (std::size_t i = 0; i < n * kCount; ++i) {
            expect(as<float>(wholes[round])[i] ==
                       reduced<float>(round, world->size(), i % kCount, ReduceOp::sum),
                   "round {}: element {} is wrong", round, i);
        }
    }
}

// Calls of one communicator keep their order even when they are queued on different streams.
void streams_share_a_group(const World& world) {
    Stream one = Stream::make_worker("one");
    Stream two = Stream::make_worker("two");
    constexpr std::size_t kRounds = 40;
    std::vector<std::int64_t> values(kRounds);
    Work last;
    for (std::size_t round = 0; round < kRounds; ++round) {
        values[round] =
            world->rank() == static_cast<int>(round) % world->size() ? static_cast<std::int64_t>(round) : -1;
        last = world->broadcast({reinterpret_cast<std::byte*>(&values[round]), 8},
                                static_cast<int>(round) % world->size(), round % 3 == 0 ? one : two);
    }
    world->barrier();  // on an inline stream: after everything queued
    expect(last.poll() == Poll::done, "the barrier overtook queued calls");
    for (std::size_t round = 0; round < kRounds; ++round) {
        expect(values[round] == static_cast<std::int64_t>(round), "round {}: {}", round, values[round]);
    }
}

// What memory() kept goes, and what it holds stays; the next calls make it anew, on the groups of before too.
void trims_between_calls(const World& world) {
    std::vector<int> all = world->global_ranks();
    const auto group = world->split(all, "trimmed");
    const std::size_t elements = 5000;
    const auto sums = [&](Communicator& comm, std::uint64_t seed, Where where) {
        const Buffer memory(elements * sizeof(float), "test", pool_of(comm, where));
        for (std::size_t i = 0; i < elements; ++i)
            as<float>(memory)[i] = value_at<float>(seed, comm.rank(), i);
        comm.all_reduce(memory.span(), DType::float32);
        for (std::size_t i = 0; i < elements; ++i) {
            expect(as<float>(memory)[i] == reduced<float>(seed, comm.size(), i, ReduceOp::sum),
                   "sum {} of '{}' is wrong at {}", seed, comm.name(), i);
        }
    };
    for (std::uint64_t round = 0; round < 3; ++round) {
        sums(*world, 10 + round, Where::heap);
        sums(*group, 20 + round, Where::ordinary);
        sums(*group, 30 + round, Where::mixed);
        world->trim_memory({DeviceType::cuda, 0});
    }
}

// Each rank writes into what every other one shows, and finds there what all have written.
void shown_memory(const World& world) {
    if (!world->shares_memory() || world->size() == 1) return;
    const auto n = static_cast<std::size_t>(world->size());
    const auto me = static_cast<std::size_t>(world->rank());
    std::vector<std::size_t> bytes;
    for (std::size_t r = 0; r < n; ++r) bytes.push_back(r == 1 ? 0 : 64 * n * (r + 1));
    const Buffer own(std::max<std::size_t>(bytes[me], 1), "test", world->memory());
    const std::vector<Span> shown = world->show(own.span().subspan(0, bytes[me]), bytes);
    expect(shown.size() == n && (bytes[me] == 0 || shown[me].data == own.data()),
           "rank {} shows other memory", me);
    for (std::size_t r = 0; r < n; ++r) {
        expect(shown[r].bytes == bytes[r], "rank {} shows {} bytes, not {}", r, shown[r].bytes, bytes[r]);
        for (std::size_t i = me; i < bytes[r]; i += n) shown[r].data[i] = byte_at(r, static_cast<int>(me), i);
    }
    world->barrier();
    for (std::size_t r = 0; r < n; ++r) {
        for (std::size_t i = 0; i < bytes[r]; ++i)
            expect(shown[r].data[i] == byte_at(r, static_cast<int>(i % n), i), "byte {} of rank {} is wrong",
                   i, r);
    }
    world->barrier();
    if (me != 0) return;
    const Buffer elsewhere(64, "test", cpu_pool());
    const std::string message = message_of<InvalidArgument>([&] { world->show(elsewhere.span(), bytes); });
    expect(message.find("shows memory") != std::string::npos, "the message is '{}'", message);
}

}  // namespace

std::vector<Check> order_checks() {
    return {{"shown_memory", shown_memory},
            {"barrier_holds", barrier_holds},
            {"mesh_of_groups", mesh_of_groups, 2},
            {"splits", splits},
            {"splits_in_any_order", splits_in_any_order},
            {"streams_interleave", streams_interleave},
            {"streams_share_a_group", streams_share_a_group},
            {"trims_between_calls", trims_between_calls}};
}

}  // namespace tandem::comm::contract
