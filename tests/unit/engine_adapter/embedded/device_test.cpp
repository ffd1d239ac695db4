// The engine on an emulated GPU, whose ops are the CPU's: the same tokens and log-probs, bit for bit. Host
// code that reads device memory crashes here, host code that forgets to wait reads too early.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "common/device/devices.h"
#include "common/error.h"
#include "engine_adapter/receiver/weight_writer.h"
#include "tests/unit/common/model/temporary_directory.h"
#include "tests/unit/engine_adapter/embedded/engine_fixture.h"

namespace tandem::engine {
namespace {

constexpr Device kGpu{DeviceType::cuda, 0};

// kv_fraction is a share of the memory that the weights leave free, at most what the samples could fill.
TEST(OnGpu, TheKvCacheTakesItsShareOfTheFreeMemory) {
    model::ModelConfig config = tiny_config();
    EmbeddedOptions options;
    options.device = kGpu;
    options.kv_fraction = 0.25;
    const auto per_token = static_cast<std::int64_t>(KvCache::bytes_per_token(config, options.dtype));
    const auto total = static_cast<std::int64_t>(device_info(kGpu).total_bytes);
    const auto tokens = [&] { return EmbeddedEngine(config, options).options().kv_tokens; };
    EXPECT_EQ(tokens(), options.max_running * config.max_position_embeddings);  // of 2 GiB, all of 24,576
    config.max_position_embeddings = 1 << 20;
    const std::int64_t share = tokens();
    EXPECT_LE(share * per_token, total / 4 + options.page_size * per_token);
    EXPECT_GT(share * per_token, total / 5);
    {
        const Buffer half(static_cast<std::size_t>(total) / 2, "device_test", device_pool(kGpu));
        EXPECT_NEAR(static_cast<double>(tokens()), static_cast<double>(share) / 2,
                    0.05 * static_cast<double>(share));
    }
    options.kv_tokens = 100;
    EXPECT_EQ(tokens(), 112);  // whole pages
    options.kv_tokens = 0;
    options.device = {};
    EXPECT_EQ(tokens(), 65536);
}

// Weights, cache and decoder on one device; the weights are those of `seed` everywhere.
struct DeviceRig {
    DeviceRig(const TinyOptions& options, DType dtype, Device device)
        : config(tiny_config(options)),
          stream(Stream::make_compute(device)),
          weights(config, dtype, stream),
          cache(config, dtype, 512, 16, device),
          decoder(config, weights, cache, stream) {
        Stream here = Stream::make_inline();
        const ModelWeights host(config, dtype, here);
        fill_weights(host.slots(), 7);
        for (std::size_t i = 0; i < host.slots().size(); ++i)
            copy(stream, host.slots()[i].memory, weights.slots()[i].memory);
        stream.synchronize();
    }
    std::vector<float> host_values(const Tensor& logits) { return logits.to_host(stream).to_vector<float>(); }
    model::ModelConfig config;
    Stream stream;
    ModelWeights weights;
    KvCache cache;
    Decoder decoder;
};

// Logits of a prefill of two sequences and of decode steps that cross a page.
std::vector<std::vector<float>> logits_on(Device device, DType dtype, const TinyOptions& options) {
    DeviceRig rig(options, dtype, device);
    std::vector<PrefillSequence> sequences;
    for (const std::size_t length : {5u, 30u}) {
        PrefillSequence& sequence = sequences.emplace_back();
        for (std::size_t i = 0; i < length; ++i)
            sequence.tokens.push_back(static_cast<std::int32_t>((7 * i + length) % 40));
        for (int page = 0; page < 3; ++page) sequence.pages.push_back(rig.cache.pool().allocate());
    }
    std::vector<std::vector<float>> result{rig.host_values(rig.decoder.prefill(sequences))};
    rig.cache.copy_page(rig.stream, sequences[0].pages[0], sequences[0].pages[2]);
    sequences[0].pages[0] = sequences[0].pages[2];
    for (std::int32_t step = 1; step <= 4; ++step) {
        const DecodeBatch batch{
            {step, 2 * step}, {5 + step, 30 + step}, {sequences[0].pages, sequences[1].pages}};
        result.push_back(rig.host_values(rig.decoder.decode(batch)));
    }
    return result;
}

TEST(EngineOnADevice, LogitsEqualTheCpusBitForBit) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const TinyOptions& options :
             {TinyOptions{.qk_norm = true}, TinyOptions{.qk_norm = false, .tied = false, .qkv_bias = true}})
            EXPECT_EQ(logits_on(kGpu, dtype, options), logits_on({}, dtype, options)) << dtype_name(dtype);
    }
}

class DeviceEngineTest : public EmbeddedEngineTest {
  protected:
    // An engine that has loaded a directory; what it answers to a few requests with shared prompts.
    std::vector<GenerateResult> run(Device device) {
        const model::TemporaryDirectory directory;
        write_tiny_model(directory.path(), tiny_config(), 3);
        EmbeddedOptions options = small_options();
        options.device = device;
        engine = std::make_unique<EmbeddedEngine>(tiny_config(), options);
        engine->load(directory.path(), 4);
        engine->start();
        std::vector<std::future<GenerateResult>> open;
        for (std::uint64_t seed = 1; seed <= 5; ++seed)
            open.push_back(generate(request(12 + static_cast<std::int64_t>(seed), seed, 3)));
        std::vector<GenerateResult> results;
        for (auto& one : open) results.push_back(get(std::move(one)));
        return results;
    }
};

TEST_F(DeviceEngineTest, AnswersEqualTheCpusBitForBit) {
    const auto here = run({});
    const auto there = run(kGpu);
    ASSERT_EQ(here.size(), there.size());
    for (std::size_t i = 0; i < here.size(); ++i) {
        ASSERT_EQ(there[i].samples.size(), 3U) << there[i].status.message;
        for (std::size_t s = 0; s < 3; ++s) {
            EXPECT_EQ(here[i].samples[s].tokens, there[i].samples[s].tokens);
            EXPECT_EQ(here[i].samples[s].logprobs, there[i].samples[s].logprobs);
            EXPECT_FALSE(there[i].samples[s].logprobs.empty());
            EXPECT_EQ(there[i].samples[s].version, 4);
        }
    }
}

TEST_F(DeviceEngineTest, SleepGivesItsPagesBackAndKeepsItsAddresses) {
    const auto before = run(kGpu);
    const auto live = [] {
        return memory_stats("engine.kv").live_bytes + memory_stats("engine.weights").live_bytes;
    };
    const auto awake = live();
    const auto in_the_engine = [&](const std::function<void()>& work) {
        std::promise<void> done;
        engine->between_steps([&] {
            work();
            done.set_value();
        });
        done.get_future().wait();
    };
    in_the_engine([&] {
        engine->release_memory(true, false);
        EXPECT_EQ(memory_stats("engine.kv").live_bytes, 0U);
        engine->restore_memory(true, true);
    });
    EXPECT_EQ(live(), awake);
    EXPECT_EQ(get(generate(request(13, 1, 3))).samples[0].tokens, before[0].samples[0].tokens);

    std::vector<WeightSlot> slots = engine->weights();
    in_the_engine([&] {
        engine->release_memory(true, true);
        EXPECT_EQ(live(), 0U);
    });
    engine->pause_generation(PauseMode::retract, [] {});
    EXPECT_THROW(engine->begin_update(5), InvalidArgument);
    in_the_engine([&] { engine->restore_memory(true, true); });
    EXPECT_EQ(live(), awake);
    for (std::size_t i = 0; i < slots.size(); ++i)
        EXPECT_EQ(engine->current_weights()[i].memory.data, slots[i].memory.data);
    EXPECT_EQ(get(generate(request(13, 1, 3))).status.code, Code::unavailable);
    engine->begin_update(5);  // as a receiver does: straight to the addresses that it has known all along
    const model::TemporaryDirectory directory;
    write_tiny_model(directory.path(), tiny_config(), 3);
    Stream stream = Stream::make_compute(kGpu);
    ModelWeights again(tiny_config(), DType::float32, stream);
    again.load(tiny_config(), directory.path(), stream);
    for (std::size_t i = 0; i < slots.size(); ++i) copy(stream, again.slots()[i].memory, slots[i].memory);
    stream.synchronize();
    engine->commit_update(5);
    engine->continue_generation();
    EXPECT_EQ(get(generate(request(13, 1, 3))).samples[0].tokens, before[0].samples[0].tokens);
}

// Rows with a cast, a checksum and a gap between them, to the device and back, against plain memory.
TEST(WeightWriter, WritesReadsAndChangesAsInHostMemory) {
    Stream stream = Stream::make(kGpu, "test");
    std::vector<float> from(24);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = 0.37f * static_cast<float>(i) - 3;
    std::vector<bfloat16> plain(36, bfloat16(9.0f));
    const Span here{reinterpret_cast<std::byte*>(plain.data()), plain.size() * 2};
    const Tensor there = Tensor::borrow(here, {36}, DType::bfloat16).to(stream, kGpu, "test");
    stream.synchronize();

    WeightWriter host({}), device(kGpu);
    std::array<ops::Checksum, 2> written;
    ops::CopyItem item;
    item.from = {reinterpret_cast<const std::byte*>(from.data()), 6 * sizeof(float)};
    item.from_dtype = DType::float32;
    item.to_dtype = DType::bfloat16;
    item.rows = 4;
    item.from_stride = 6 * sizeof(float);
    item.to_stride = 9 * sizeof(bfloat16);
    const std::vector<bfloat16> dense(10, bfloat16(0.5f));
    const ConstSpan encoded(reinterpret_cast<const std::byte*>(dense.data()), dense.size() * 2);
    const auto drive = [&](WeightWriter& access, std::byte* to, ops::Checksum& sum) {
        item.to = {to, 6 * sizeof(bfloat16)};
        item.checksum = &sum;
        access.write(item);
        ops::CopyItem reading = item;
        reading.from = item.to;
        reading.from_dtype = DType::bfloat16;
        reading.from_stride = item.to_stride;
        EXPECT_EQ(access.checksum(reading), sum);
        access.apply(ops::DeltaCodec::dense, encoded, {to + 2, 18, 2, 5, 2});
        return access.checksum(ConstSpan(to, here.bytes));
    };
    EXPECT_EQ(drive(device, there.raw(), written[0]), drive(host, here.data, written[1]));
    EXPECT_EQ(written[0], written[1]);
    EXPECT_EQ(there.to_host(stream).to_vector<bfloat16>(), plain);
}

}  // namespace
}  // namespace tandem::engine
