// State of a GPU that leaves it: to pinned host memory and back, at the same addresses. On the emulated GPU,
// or (TANDEM_TEST_DEVICE=cuda without TANDEM_EMULATED_GPUS) on the real one.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>

#include "common/comm/launch.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "tests/emulated_gpu/emulated.h"
#include "tests/support/free_bytes.h"
#include "trainer/offload/in_chunks.h"

#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {
namespace {

using Sleep = Policy::Sleep;

constexpr Device kGpu{DeviceType::cuda, 0};
constexpr std::int64_t kChunk = chunk_elements(kGpu);

std::vector<float> host_values(const Tensor& tensor) {
    Stream stream = Stream::make(kGpu, "test");
    return tensor.to_host(stream).to_vector<float>();
}

std::vector<float> counting(std::int64_t numel) {
    std::vector<float> values(static_cast<std::size_t>(numel));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 8191);
    return values;
}

void set(const Tensor& tensor, const std::vector<float>& values) {
    Stream stream = Stream::make(kGpu, "test");
    copy(stream, Tensor::from<float>(values, {tensor.numel()}), tensor);
    stream.synchronize();
}

TEST(OffloadOnGpu, AFlatStateKeepsItsValuesAndItsAddress) {
    Stream compute = Stream::make_compute(kGpu);
    FlatState state(compute, 100'000, DType::float32, "gpu_flat_state", device_pool(kGpu), Pages::go);
    compute.synchronize();
    set(state.tensor(), counting(100'000));
    const std::byte* address = state.tensor().raw();
    state.offload("");
    EXPECT_FALSE(state.resident());
    EXPECT_EQ(memory_stats("gpu_flat_state").live_bytes, 0U);
    const Tensor part = Tensor::zeros(compute, {3}, DType::float32, "test");
    state.read(compute, 70'000, part);
    compute.synchronize();
    EXPECT_EQ(host_values(part), (std::vector<float>{4472, 4473, 4474}));
    state.write(compute, 0, part);
    compute.synchronize();
    state.onload();
    EXPECT_EQ(state.tensor().raw(), address);
    auto expected = counting(100'000);
    expected[0] = 4472;
    expected[1] = 4473;
    expected[2] = 4474;
    EXPECT_EQ(host_values(state.tensor()), expected);
    state.offload("");
    state.zero(compute);
    state.onload();
    EXPECT_EQ(host_values(state.tensor()), std::vector<float>(100'000, 0));
}

TEST(OffloadOnGpu, PagesThatStaySayThatTheyDo) {
    Stream compute = Stream::make_compute(kGpu);
    FlatState state(compute, 10, DType::float32, "gpu_flat_state", device_pool(kGpu));
    compute.synchronize();
    EXPECT_THROW(state.offload(""), InvalidArgument);
    EXPECT_TRUE(state.resident());
}

TEST(OffloadOnGpu, ChunksStreamThroughAFewBuffers) {
    Stream compute = Stream::make_compute(kGpu);
    Stream in = Stream::make(kGpu, "in");
    Stream out = Stream::make(kGpu, "out");
    const std::int64_t numel = 3 * kChunk + 1000;
    FlatState offloaded =
        FlatState::offloaded_zeros(numel, DType::float32, "gpu_chunk_test", device_pool(kGpu), "");
    FlatState resident(compute, numel, DType::float32, "gpu_chunk_test", device_pool(kGpu));
    compute.synchronize();
    set(resident.tensor(), counting(numel));
    reset_memory_peaks();
    const std::vector<FlatState*> states{&resident, &offloaded};
    in_chunks(in, out, compute, states, [&](std::int64_t, const std::vector<Tensor>& parts) {
        copy(compute, parts[0].span(), parts[1].span());
    });
    EXPECT_EQ(memory_stats("offload_chunks").peak_bytes, 3U * 4U * static_cast<std::uint64_t>(kChunk));
    offloaded.onload();
    EXPECT_EQ(host_values(offloaded.tensor()), counting(numel));
}

// The bus carries both ways at once: the third chunk arrives while the first is still on its way back. On the
// emulated GPU, whose streams a test can hold.
TEST(OffloadOnGpu, ReadsDoNotQueueBehindWrites) {
    if (!is_emulated(kGpu)) return;
    Stream compute = Stream::make_compute(kGpu);
    Stream in = Stream::make(kGpu, "in");
    Stream out = Stream::make(kGpu, "out");
    const std::int64_t numel = 3 * kChunk;
    FlatState offloaded =
        FlatState::offloaded_zeros(numel, DType::float32, "gpu_chunk_test", device_pool(kGpu), "");
    std::promise<void> third_is_there;
    std::future_status seen = std::future_status::timeout;
    FlatState* const states[] = {&offloaded};
    in_chunks(in, out, compute, states, [&](std::int64_t first, const std::vector<Tensor>&) {
        if (first == 0) {
            emulated::launch(out, [&, there = third_is_there.get_future().share()] {
                seen = there.wait_for(std::chrono::seconds(10));
            });
        } else if (first == 2 * kChunk) {
            emulated::launch(compute, [&] { third_is_there.set_value(); });
        }
    });
    EXPECT_EQ(seen, std::future_status::ready);
}

TEST(OffloadOnGpu, APolicyWakesAtTheSameAddresses) {
    PolicyOptions options;
    options.device = kGpu;
    {
        Policy light(make_mesh(comm::solo(), {1, 1}), tiny_config(), options);
        EXPECT_THROW(light.sleep(Sleep::optimizer), InvalidArgument);
    }
    options.deepest_sleep = Sleep::all;
    Policy policy(make_mesh(comm::solo(), {1, 1}), tiny_config(), options);
    const std::byte* address = policy.parameters()[0].second.local().raw();
    const auto values = full_values(policy.parameters());
    policy.sleep(Sleep::optimizer);
    EXPECT_EQ(memory_stats("optimizer").live_bytes, 0U);
    policy.sleep(Sleep::all);
    for (const char* tag : {"shards", "gradients", "optimizer"})
        EXPECT_EQ(memory_stats(tag).live_bytes, 0U) << tag;
    EXPECT_THROW(policy.parameters(), InvalidArgument);
    policy.wake();
    EXPECT_EQ(policy.parameters()[0].second.local().raw(), address);
    EXPECT_EQ(full_values(policy.parameters()), values);
}

// What the ranks show each other, too: buffers of the passes, and what calls were staged through.
TEST(OffloadOnGpu, AFullSleepLeavesNoArena) {
    const auto before = tests::free_bytes(kGpu);
    const auto samples = random_samples({17, 9, 30, 5}, tiny_config().vocab_size, 3);
    comm::run_threads(2, [&](const std::shared_ptr<comm::Communicator>& world) {
        PolicyOptions options;
        options.device = kGpu;
        options.deepest_sleep = Sleep::all;
        options.compute_dtype = DType::bfloat16;
        Policy policy(make_mesh(world, {2, 1}), tiny_config(), options);
        for (int round = 0; round < 2; ++round) {
            const double loss = policy.accumulate(samples, supervised_loss()).loss;
            policy.apply(1e-3);
            EXPECT_GT(loss, 0);
            world->barrier();
            const auto awake = tests::free_bytes(kGpu);
            world->barrier();
            policy.sleep(Sleep::all);
            world->barrier();
            const auto asleep = tests::free_bytes(kGpu);
            EXPECT_GE(asleep, awake + 2 * (std::uint64_t{64} << 20));  // an arena a rank, at least
            if (is_emulated(kGpu)) {                                   // a real one holds its kernels too
                EXPECT_LE(before - asleep, std::uint64_t{1} << 20) << "of " << before - awake << " awake";
            }
            world->barrier();
        }
    });
}

}  // namespace
}  // namespace tandem::trainer::testing
