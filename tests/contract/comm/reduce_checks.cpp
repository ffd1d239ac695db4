// reduce_scatter and all_reduce against the oracle that adds in rank order in fp32; equality is exact.
#include <bit>

#include "tests/contract/comm/checks.h"
#include "tests/contract/comm/data.h"

namespace tandem::comm::contract {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min};
// In line, at its border, one window, several windows, none a multiple of anything.
constexpr std::size_t kCounts[] = {0, 1, 7, 1023, 2048, 2049, 40'001, kSanitized ? 300'001 : 700'001};

template <typename T>
void fill_values(const Buffer& buffer, std::uint64_t seed, int rank) {
    for (std::size_t i = 0; i < buffer.bytes() / sizeof(T); ++i)
        as<T>(buffer)[i] = value_at<T>(seed, rank, i);
}

template <typename T>
void all_reduce_as(Communicator& comm, ReduceOp op, Where where) {
    for (const std::size_t count : kCounts) {
        if (count > 100'000 && op != ReduceOp::sum) continue;
        Buffer memory(count * sizeof(T), "test", pool_of(comm, where));
        fill_values<T>(memory, count, comm.rank());
        comm.all_reduce(memory.span(), dtype_of<T>::value, op);
        for (std::size_t i = 0; i < count; ++i) {
            expect(as<T>(memory)[i] == reduced<T>(count, comm.size(), i, op),
                   "all_reduce {} of {} {}: element {} is wrong", static_cast<int>(op), count,
                   dtype_name(dtype_of<T>::value), i);
        }
    }
}

void all_reduce_ops(const World& world) {
    for (const Where where : {Where::heap, Where::ordinary, Where::mixed}) {
        for (const ReduceOp op : kOps) {
            all_reduce_as<float>(*world, op, where);
            all_reduce_as<bfloat16>(*world, op, where);
            if (op != ReduceOp::avg) all_reduce_as<std::int64_t>(*world, op, where);
        }
    }
}

template <typename T>
void reduce_scatter_as(Communicator& comm, ReduceOp op, Where where, bool in_place) {
    const auto n = static_cast<std::size_t>(comm.size());
    const auto me = static_cast<std::size_t>(comm.rank());
    Stream stream = Stream::make_inline();
    for (const std::size_t count : kCounts) {
        if (count > 100'000 && op != ReduceOp::avg && op != ReduceOp::sum) continue;
        Buffer send(n * count * sizeof(T), "test", pool_of(comm, where));
        fill_values<T>(send, count, comm.rank());
        Buffer own(count * sizeof(T), "test", pool_of(comm, where));
        const Span recv = in_place ? send.span().subspan(me * own.bytes(), own.bytes()) : own.span();
        const ReduceScatterItem item{send.span(), recv, dtype_of<T>::value};
        comm.reduce_scatter(std::span(&item, 1), op, stream);
        for (std::size_t i = 0; i < count; ++i) {
            expect(reinterpret_cast<T*>(recv.data)[i] == reduced<T>(count, comm.size(), me * count + i, op),
                   "reduce_scatter {} of {} {}: element {} is wrong", static_cast<int>(op), count,
                   dtype_name(dtype_of<T>::value), i);
        }
    }
}

void reduce_scatter_ops(const World& world) {
    for (const Where where : {Where::heap, Where::ordinary, Where::mixed}) {
        for (const ReduceOp op : kOps) {
            reduce_scatter_as<float>(*world, op, where, op == ReduceOp::min);
            reduce_scatter_as<bfloat16>(*world, op, where, op == ReduceOp::sum);
        }
        reduce_scatter_as<float>(*world, ReduceOp::sum, where, true);
    }
}

// A list with both dtypes, empty pieces, and accumulation on top of what recv holds.
void reduce_scatter_items_by(const World& world, ReduceOp op) {
    const auto n = static_cast<std::size_t>(world->size());
    const auto me = static_cast<std::size_t>(world->rank());
    Stream stream = Stream::make_inline();
    std::vector<Buffer> sends;
    std::vector<Buffer> recvs;
    std::vector<ReduceScatterItem> items;
    constexpr std::size_t kItems = 60;
    const auto count_of = [](std::size_t i) { return i % 7 == 3 ? 0 : mix(5, 5, i) % 3000; };
    for (std::size_t i = 0; i < kItems; ++i) {
        const bool wide = i % 2 == 0;
        const std::size_t bytes = count_of(i) * (wide ? 4 : 2);
        sends.emplace_back(n * bytes, "test", pool_of(*world, i % 3 == 0 ? Where::mixed : Where::heap));
        recvs.emplace_back(bytes, "test", cpu_pool());
        if (wide) {
            fill_values<float>(sends.back(), i, world->rank());
            for (std::size_t k = 0; k < count_of(i); ++k) as<float>(recvs.back())[k] = float(k);
        } else {
            fill_values<bfloat16>(sends.back(), i, world->rank());
        }
        items.push_back(
            {sends.back().span(), recvs.back().span(), wide ? DType::float32 : DType::bfloat16, wide});
    }
    world->reduce_scatter(items, op, stream);
    for (std::size_t i = 0; i < kItems; ++i) {
        for (std::size_t k = 0; k < count_of(i); ++k) {
            const std::size_t at = me * count_of(i) + k;
            const bool good =
                i % 2 == 0 ? as<float>(recvs[i])[k] == float(k) + reduced<float>(i, world->size(), at, op)
                           : as<bfloat16>(recvs[i])[k] == reduced<bfloat16>(i, world->size(), at, op);
            expect(good, "reduce_scatter of a list: element {} of item {} is wrong", k, i);
        }
    }
}

void reduce_scatter_items(const World& world) {
    for (const ReduceOp op : {ReduceOp::avg, ReduceOp::sum}) reduce_scatter_items_by(world, op);
}

// The very same bits from every repetition, on every rank, whoever comes first.
void reduce_repeats(const World& world) {
    constexpr std::size_t kCount = 30'000;
    std::vector<float> first;
    for (int repetition = 0; repetition < 5; ++repetition) {
        Buffer memory(kCount * 4, "test",
                      pool_of(*world, repetition % 2 == 0 ? Where::heap : Where::ordinary));
        fill_values<float>(memory, 9, world->rank());
        world->all_reduce(memory.span(), DType::float32);
        std::vector<float> got(as<float>(memory), as<float>(memory) + kCount);
        if (repetition == 0) first = got;
        for (std::size_t i = 0; i < kCount; ++i) {
            expect(std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(first[i]),
                   "repetition {} differs at {}", repetition, i);
        }
    }
}

}  // namespace

std::vector<Check> reduce_checks() {
    return {{"all_reduce_ops", all_reduce_ops},
            {"reduce_scatter_ops", reduce_scatter_ops},
            {"reduce_scatter_items", reduce_scatter_items},
            {"reduce_repeats", reduce_repeats}};
}

}  // namespace tandem::comm::contract
