// Offload changes where state lives, not what is computed: the same bits after steps with every choice, also
// with sleep between them; and the memory really goes.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <filesystem>
#include <mutex>

#include "common/comm/launch.h"
#include "common/device/memory.h"
#include "common/device/process_memory.h"
#include "common/device/tier.h"
#include "trainer/offload/in_chunks.h"

#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {
namespace {

using Values = std::map<std::string, std::vector<float>>;
using Sleep = Policy::Sleep;

model::ModelConfig config_of(bool large) {
    auto config = tiny_config();
    if (large) {  // groups for a thread of their own, and more than a chunk of the optimizer
        config.hidden_size = 256;
        config.intermediate_size = 1100;
        config.num_hidden_layers = 4;
    }
    return config;
}

Values trained(MeshSizes sizes, bool large, PolicyOptions options, Sleep sleep, bool with_reference = false) {
    options.init_std = 0.1f;
    options.max_tokens_per_rank = 40;
    options.offload.directory = ::testing::TempDir();
    Values result;
    std::mutex mutex;
    comm::run_threads(sizes.dp * sizes.cp, [&](std::shared_ptr<comm::Communicator> world) {
        const bool first = world->rank() == 0;
        const auto config = config_of(large);
        PolicyOptions here = options;
        here.device = device_of(world->rank());
        here.deepest_sleep = sleep;
        Policy policy(make_mesh(std::move(world), sizes), config, here);
        if (with_reference) policy.set_reference();
        Values values;
        for (unsigned step = 0; step < 3; ++step) {
            const auto samples = random_samples({11, 3, 37, 9, 6, 14}, config.vocab_size, step);
            if (step == 2) policy.reset_optimizer();
            if (with_reference)
                values["reference" + std::to_string(step)] =
                    policy.score(samples, {.reference = true}).logprobs[2];
            policy.accumulate(samples, supervised_loss());
            policy.apply(1e-2);
            policy.sleep(sleep);
        }
        const Policy::OnloadScope onloaded(policy);
        for (auto& [name, full] : full_values(policy.parameters())) values[name] = full;
        const std::lock_guard lock(mutex);
        if (first) result = values;
    });
    return result;
}

TEST(Offload, TrainingHasTheSameBits) {
    for (const bool large : {false, true}) {
        for (const MeshSizes sizes : {MeshSizes{1, 1}, MeshSizes{2, 1}, MeshSizes{1, 2}}) {
            if (large && sizes.dp == 1) continue;
            for (const DType dtype : {DType::float32, DType::bfloat16}) {
                PolicyOptions options;
                options.compute_dtype = dtype;
                const Values plain = trained(sizes, large, options, Sleep::none, true);
                for (const auto& [optimizer, parameters] :
                     {std::pair{true, false}, {false, true}, {true, true}}) {
                    if (large && !(optimizer && parameters)) continue;
                    options.offload.optimizer = optimizer;
                    options.offload.parameters = parameters;
                    EXPECT_EQ(trained(sizes, large, options, Sleep::none, true), plain)
                        << sizes.dp << "x" << sizes.cp << " " << dtype_name(dtype) << optimizer << parameters;
                }
            }
        }
    }
}

TEST(Offload, SleepBetweenStepsChangesNothing) {
    for (const MeshSizes sizes : {MeshSizes{1, 1}, MeshSizes{2, 1}, MeshSizes{2, 1, 2}}) {
        PolicyOptions options;
        if (sizes.dp_replicate == 2) options.shard_axes = {"dp_shard", "cp"};
        const Values plain = trained(sizes, false, options, Sleep::none);
        EXPECT_EQ(trained(sizes, false, options, Sleep::optimizer), plain);
        EXPECT_EQ(trained(sizes, false, options, Sleep::all), plain);
        options.offload.parameters = true;
        EXPECT_EQ(trained(sizes, false, options, Sleep::all), plain);
    }
}

TEST(Offload, ParametersAreNotReadWhileTheyAreAway) {
    PolicyOptions options;
    options.offload.parameters = true;
    options.offload.directory = ::testing::TempDir();
    Policy policy(make_mesh(comm::solo(), {1, 1}), tiny_config(), options);
    EXPECT_THROW(policy.parameters(), InvalidArgument);
    {
        const Policy::OnloadScope onloaded(policy);
        EXPECT_GT(policy.parameters().size(), 0U);
    }
    EXPECT_THROW(policy.parameters(), InvalidArgument);
    policy.accumulate(random_samples({5}, 13, 1), supervised_loss());
    EXPECT_THROW(policy.sleep(Sleep::all), InvalidArgument) << "gradients would be lost";
}

#if !defined(TANDEM_SANITIZE_address) && !defined(TANDEM_SANITIZE_thread)
TEST(Offload, SleepGivesMemoryBack) {
    auto config = tiny_config();
    config.vocab_size = 20000;
    config.hidden_size = 256;
    config.num_attention_heads = 2;
    PolicyOptions options;
    options.offload.directory = ::testing::TempDir();
    Policy policy(make_mesh(comm::solo(), {1, 1}), config, options);
    policy.accumulate(random_samples({9, 12}, config.vocab_size, 1), supervised_loss());
    policy.apply(1e-3);
    const auto flat = static_cast<std::uint64_t>(config.parameter_count()) * 4;
    const std::uint64_t awake = process_memory().resident_bytes;
    policy.sleep(Sleep::optimizer);
    EXPECT_EQ(memory_stats("optimizer").live_bytes, 0U);
    EXPECT_LE(process_memory().resident_bytes, awake - flat * 19 / 10);
    policy.sleep(Sleep::all);
    EXPECT_EQ(memory_stats("shards").live_bytes, 0U);
    EXPECT_EQ(memory_stats("gradients").live_bytes, 0U);
    EXPECT_LE(process_memory().resident_bytes, awake - flat * 38 / 10);
    policy.wake();
    EXPECT_GE(memory_stats("optimizer").live_bytes, 2 * flat);
}
#endif

TEST(FlatState, KeepsItsValuesAndItsAddress) {
    Stream here = Stream::make_inline();
    FlatState state(here, 100'000, DType::float32, "flat_state_test", cpu_pool());
    for (std::size_t i = 0; i < 100'000; ++i) state.tensor().values<float>()[i] = static_cast<float>(i);
    const std::byte* address = state.tensor().raw();
    state.offload(::testing::TempDir());
    EXPECT_FALSE(state.resident());
    EXPECT_EQ(memory_stats("flat_state_test").live_bytes, 0U);
    Stream stream = Stream::make_inline();
    const Tensor part = Tensor::zeros({3}, DType::float32, "test");
    state.read(stream, 70'000, part);
    EXPECT_EQ(part.to_vector<float>(), (std::vector<float>{70'000, 70'001, 70'002}));
    part.values<float>()[1] = -1;
    state.write(stream, 70'000, part);
    state.onload();
    EXPECT_EQ(state.tensor().raw(), address);
    EXPECT_EQ(state.tensor().values<float>()[70'001], -1.0f);
    EXPECT_EQ(state.tensor().values<float>()[99'999], 99'999.0f);
    EXPECT_EQ(memory_stats("flat_state_test").live_bytes, 400'000U);
    EXPECT_THROW(state.read(stream, 0, part), InvalidArgument);
}

// Three chunks at most are in memory, whatever the size; each element is seen once, in order.
TEST(InChunks, StreamsOverParkedStates) {
    constexpr std::int64_t kChunk = chunk_elements(Device{});
    const std::int64_t numel = 5 * kChunk + 77;
    auto offloaded =
        FlatState::offloaded_zeros(numel, DType::float32, "chunk_test", cpu_pool(), ::testing::TempDir());
    Stream here = Stream::make_inline();
    FlatState resident(here, numel, DType::float32, "chunk_test", cpu_pool());
    Stream in = Stream::make_worker("in");
    Stream out = Stream::make_worker("out");
    Stream compute = Stream::make_inline();
    reset_memory_peaks();
    std::int64_t next = 0;
    for (int pass = 0; pass < 2; ++pass) {
        next = 0;
        const std::array states{&offloaded, &resident};
        in_chunks(in, out, compute, states, [&](std::int64_t first, const std::vector<Tensor>& parts) {
            EXPECT_EQ(first, next);
            next += parts[0].numel();
            for (std::int64_t i = 0; i < parts[0].numel(); i += 1001) {
                parts[0].data<float>()[i] += static_cast<float>(first + i);
                parts[1].data<float>()[i] = parts[0].data<float>()[i];
            }
        });
    }
    EXPECT_EQ(next, numel);
    EXPECT_EQ(memory_stats("offload_chunks").peak_bytes, 3U * 4U * static_cast<std::uint64_t>(kChunk));
    offloaded.onload();
    EXPECT_EQ(offloaded.tensor().to_vector<float>(), resident.tensor().to_vector<float>());
    EXPECT_EQ(offloaded.tensor().values<float>()[static_cast<std::size_t>(4 * kChunk)],
              2 * static_cast<float>(4 * kChunk));
}

TEST(Tier, FaultsNameTheFolderAndTheReason) {
    const auto message = [](const auto& body) {
        try {
            body();
        } catch (const SystemError& error) {
            return std::string(error.what());
        }
        return std::string("nothing was thrown");
    };
    const std::string missing = ::testing::TempDir() + "no_such_folder";
    EXPECT_NE(message([&] { make_file_tier(missing, 10); }).find(missing), std::string::npos);
    // More than any disk has.
    const std::string full = message([] { make_file_tier(::testing::TempDir(), std::uint64_t{1} << 50); });
    EXPECT_NE(full.find("reserve"), std::string::npos) << full;
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit tiny{4096, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &tiny);
    const std::string limited = message([] { make_file_tier(::testing::TempDir(), 1 << 20); });
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_NE(limited.find("File too large"), std::string::npos) << limited;
    const auto tier = make_file_tier(::testing::TempDir(), 100);
    std::array<std::byte, 8> bytes{};
    EXPECT_THROW(tier->read(96, {bytes.data(), bytes.size()}), InvalidArgument);
}

}  // namespace
}  // namespace tandem::trainer::testing
