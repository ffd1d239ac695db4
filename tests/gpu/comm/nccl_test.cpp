// NCCL itself with one rank: the library loads, its non-blocking init ends, and each operation lands.
#include <gtest/gtest.h>

#include <vector>

#include "common/comm/launch.h"
#include "common/comm/nccl/communicator.h"
#include "common/device/memory.h"

namespace tandem::comm {
namespace {

const Device kGpu{DeviceType::cuda, 0};

TEST(NcclOnGpu, OneRank) {
    const auto world = nccl::make_world(solo(), kGpu);
    Stream stream = Stream::make_compute(kGpu);
    constexpr std::size_t kCount = 100'000;
    constexpr std::size_t kBytes = kCount * sizeof(float);
    std::vector<float> host(kCount);
    for (std::size_t i = 0; i < kCount; ++i) host[i] = static_cast<float>(i % 1000);
    const ConstSpan values{reinterpret_cast<const std::byte*>(host.data()), kBytes};
    const Buffer from(kBytes, "test", world->memory(kGpu));
    const Buffer to(kBytes, "test", world->memory(kGpu));
    std::vector<float> got(kCount);
    const auto expect = [&](float factor, const char* what) {
        copy(stream, to.span(), {reinterpret_cast<std::byte*>(got.data()), kBytes});
        stream.synchronize();
        for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(got[i], factor * host[i]) << what << " at " << i;
    };
    copy(stream, values, from.span());

    const GatherItem gather{from.span(), to.span()};
    world->all_gather(std::span(&gather, 1), stream).wait(Deadline::after_ms(20'000));
    expect(1, "all_gather");
    ReduceScatterItem scatter{from.span(), to.span(), DType::float32, true};
    world->reduce_scatter(std::span(&scatter, 1), ReduceOp::avg, stream);
    expect(2, "reduce_scatter that accumulates");
    world->all_reduce(to.span(), DType::float32, ReduceOp::max, stream);
    expect(2, "all_reduce");
    world->broadcast(to.span(), 0, stream);
    const P2POp ops[] = {{P2POp::Kind::send, 0, from.span()}, {P2POp::Kind::recv, 0, to.span()}};
    world->p2p(ops, stream);
    expect(1, "p2p");
    world->barrier(stream).wait(Deadline::after_ms(20'000));
}

}  // namespace
}  // namespace tandem::comm
