// Decode steps on a GPU, recorded and replayed: the same logits bit for bit while sequences come and go,
// change pages and grow, while weights are written and moved, and while the cache comes and goes. On the
// emulated GPU they are the CPU's; on a real one (tests/gpu/engine) those of steps that are not recorded.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "common/error.h"
#include "common/ops/embedding.h"
#include "engine_adapter/embedded/decoder.h"
#include "tests/unit/engine_adapter/embedded/engine_fixture.h"

namespace tandem::engine {
namespace {

constexpr Device kGraphsGpu{DeviceType::cuda, 0};
#if defined(TANDEM_REAL_GPU)
constexpr Device kReference = kGraphsGpu;
#else
constexpr Device kReference{};
#endif
constexpr std::int64_t kPageSize = 2;  // few tokens reach the next width

// A decoder on one device, with the weights of a seed.
struct Side {
    Side(Device device, bool graphs)
        : config(tiny_config({.qk_norm = true})),
          stream(Stream::make_compute(device)),
          weights(config, DType::float32, stream),
          cache(config, DType::float32, 512, kPageSize, device),
          decoder(config, weights, cache, stream, true, graphs) {
        write(1);
    }
    // A new version in the same memory, as a receiver writes it there.
    void write(std::uint64_t seed) {
        Stream here = Stream::make_inline();
        const ModelWeights host(config, DType::float32, here);
        fill_weights(host.slots(), seed);
        for (std::size_t i = 0; i < host.slots().size(); ++i)
            copy(stream, host.slots()[i].memory, weights.current()[i].memory);
        stream.synchronize();
        weights.changed();
    }
    // The pool's memory comes in the order of one stream of a thread: of the side that works now.
    std::vector<float> prefill(const PrefillSequence& sequence) {
        stream.use_for_allocations();
        return decoder.prefill({sequence}).to_host(stream).to_vector<float>();
    }
    std::vector<float> decode(const DecodeBatch& batch) {
        stream.use_for_allocations();
        return decoder.decode(batch).to_host(stream).to_vector<float>();
    }

    model::ModelConfig config;
    Stream stream;
    ModelWeights weights;
    KvCache cache;
    Decoder decoder;
};

// The same sequences with and without graphs; each step is compared.
struct Pair {
    explicit Pair(bool graphs = true) : gpu(kGraphsGpu, graphs) {}

    void arrive(std::size_t length) {
        PrefillSequence sequence;
        for (std::size_t i = 0; i < length; ++i)
            sequence.tokens.push_back(static_cast<std::int32_t>(random() % 40));
        for (std::int64_t i = 0; i < plain.cache.pages_for(static_cast<std::int64_t>(length)); ++i)
            sequence.pages.push_back(take());
        EXPECT_EQ(gpu.prefill(sequence), plain.prefill(sequence));
        running.push_back(std::move(sequence));
    }
    void leave(std::size_t index) {
        for (const std::int32_t page : running[index].pages) plain.cache.pool().release(page);
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(index));
    }
    void step() {
        DecodeBatch batch;
        for (PrefillSequence& sequence : running) {
            sequence.tokens.push_back(static_cast<std::int32_t>(random() % 40));
            const auto length = static_cast<std::int64_t>(sequence.tokens.size());
            if (plain.cache.pages_for(length) > static_cast<std::int64_t>(sequence.pages.size()))
                sequence.pages.push_back(take());
            batch.tokens.push_back(sequence.tokens.back());
            batch.lengths.push_back(static_cast<std::int32_t>(length));
            batch.block_tables.push_back(sequence.pages);
        }
        ASSERT_EQ(gpu.decode(batch), plain.decode(batch));
    }
    void steps(int count) {
        for (int i = 0; i < count; ++i) step();
    }
    void write(std::uint64_t seed) {
        plain.write(seed);
        gpu.write(seed);
    }
    // The GPU's next version in other memory, as mode alias puts it there; the memory it leaves is zeroed.
    void turn(const std::vector<Tensor>& to, std::uint64_t seed) {
        gpu.stream.use_for_allocations();
        const std::vector<WeightSlot> before = gpu.weights.current();
        std::vector<Span> spans;
        for (const Tensor& tensor : to) spans.push_back(tensor.span());
        gpu.weights.point(spans, nullptr);
        write(seed);
        for (const WeightSlot& slot : before) fill_zero(gpu.stream, slot.memory);
    }
    std::vector<Tensor> room() {
        gpu.stream.use_for_allocations();
        std::vector<Tensor> result;
        for (const WeightSlot& slot : gpu.weights.slots())
            result.push_back(Tensor::empty(gpu.stream, slot.info.shape, slot.info.dtype, "test"));
        return result;
    }
    std::int32_t take() { return plain.cache.pool().allocate(); }  // the GPU's cache has the same pages
    GraphCounts graphs() { return gpu.decoder.graphs(); }

    std::mt19937 random{5};
    Side plain{kReference, false};
    Side gpu;
    std::vector<PrefillSequence> running;
};

TEST(DecodeGraphs, SequencesComeAndGo) {
    Pair pair;
    int steps = 0;
    for (int turn = 0; turn < 30; ++turn) {
        if (pair.running.size() < 6 && (pair.running.empty() || turn % 3 == 0))
            pair.arrive(1 + pair.random() % 9);
        if (pair.running.size() > 2 && turn % 4 == 3) pair.leave(pair.random() % pair.running.size());
        pair.steps(2);  // up to 36 tokens and over: two widths
        steps += 2;
    }
    EXPECT_GE(pair.graphs().recorded, 3U);
    EXPECT_GT(pair.graphs().replayed, 40U);
    EXPECT_LT(pair.graphs().replayed, static_cast<std::uint64_t>(steps));  // each shape ran once unrecorded
}

TEST(DecodeGraphs, ASequenceMovesToOtherPages) {
    Pair pair;
    pair.arrive(5);
    pair.steps(3);
    ASSERT_EQ(pair.graphs().replayed, 2U);
    PrefillSequence again = pair.running[0];
    const std::int32_t kept = pair.take();  // or it would get its old pages
    pair.leave(0);
    for (std::int32_t& page : again.pages) page = pair.take();
    EXPECT_NE(again.pages[0], kept);
    EXPECT_EQ(pair.gpu.prefill(again), pair.plain.prefill(again));
    pair.running.push_back(again);
    pair.steps(3);
    EXPECT_EQ(pair.graphs().recorded, 1U);
    EXPECT_EQ(pair.graphs().replayed, 5U);
}

TEST(DecodeGraphs, TheNextTokenSeesNewWeightsWhereverTheyLie) {
    Pair pair;
    pair.arrive(4);
    pair.steps(3);
    pair.write(2);  // in place: the recording holds
    pair.steps(2);
    EXPECT_EQ(pair.graphs().recorded, 1U);
    EXPECT_EQ(pair.graphs().replayed, 4U);

    const std::vector<Tensor> elsewhere = pair.room();
    pair.turn(elsewhere, 3);
    pair.steps(3);  // moved: recorded again, after one plain step
    EXPECT_EQ(pair.graphs().recorded, 2U);
    EXPECT_EQ(pair.graphs().replayed, 6U);
}

// Mode alias: each version in the other of two memories. Each records once; a third memory takes the place of
// the one used longest ago.
TEST(DecodeGraphs, TwoMemoriesInTurnsAreRecordedOnceEach) {
    Pair pair;
    pair.arrive(3);
    const std::vector<Tensor> memories[] = {pair.room(), pair.room(), pair.room()};
    std::uint64_t version = 1;
    const auto turn = [&](int to) {
        pair.turn(memories[to], ++version);
        pair.steps(2);
        return pair.graphs().recorded;
    };
    turn(0);
    EXPECT_EQ(turn(1), 2U);
    for (int i = 0; i < 3; ++i) {
        turn(0);
        EXPECT_EQ(turn(1), 2U);
    }
    EXPECT_EQ(pair.graphs().replayed, 14U);  // all steps but the first of each memory
    EXPECT_EQ(turn(2), 3U);
    EXPECT_EQ(turn(1), 3U);
    EXPECT_EQ(turn(0), 4U);
}

TEST(DecodeGraphs, TheirMemoryAndTheCachesGoAndComeBack) {
    Pair pair;
    pair.arrive(4);
    pair.steps(3);
    EXPECT_GT(memory_stats("engine.steps").live_bytes, 0U);
    pair.gpu.decoder.release_graphs();
    pair.plain.decoder.release_graphs();  // a reference on a GPU has tables there too
    EXPECT_EQ(memory_stats("engine.steps").live_bytes, 0U);
    pair.gpu.stream.synchronize();
    pair.gpu.cache.release();
    pair.gpu.cache.restore();
    pair.leave(0);
    pair.arrive(6);
    pair.steps(3);
    EXPECT_EQ(pair.graphs().recorded, 2U);
}

TEST(DecodeGraphs, WithoutThem) {
    Pair pair(false);
    pair.arrive(4);
    pair.steps(4);
    EXPECT_EQ(pair.graphs().recorded, 0U);
    EXPECT_EQ(pair.graphs().replayed, 0U);
}

#if !defined(TANDEM_REAL_GPU)
// A driver that spoils a recording, after all of it was kept: steps then run as they are, and give the same.
TEST(DecodeGraphs, WhereTheyAreRefusedStepsRunPlain) {
    ::setenv("TANDEM_EMULATED_GRAPHS", "refused", 1);
    Pair pair;
    pair.arrive(4);
    pair.arrive(7);
    pair.steps(3);
    ::unsetenv("TANDEM_EMULATED_GRAPHS");
    pair.steps(40);  // not tried again
    EXPECT_EQ(pair.graphs().recorded, 0U);
    EXPECT_EQ(pair.graphs().replayed, 0U);
}
#endif

// A value that an op reads on the host would be replayed unchanged.
TEST(DecodeGraphs, OpsRefuseTheHostsTables) {
    Side side(kGraphsGpu, true);
    const Tensor ids = Tensor::zeros(side.stream, {2}, DType::int32, "test");
    const Tensor x = Tensor::zeros(side.stream, {2, side.config.hidden_size}, DType::float32, "test");
    const auto embed = [&](const auto& from) {
        return Graph::capture(side.stream,
                              [&] { ops::embedding(side.stream, side.weights.embedding(), from, x); });
    };
    EXPECT_THROW(embed(std::vector<std::int32_t>{1, 2}), InvalidArgument);
    embed(ids).launch(side.stream);
    side.stream.synchronize();
}

class GraphEngineTest : public EmbeddedEngineTest {
  protected:
    // Requests of several lengths and settings that arrive while others run; a new version in the middle.
    std::vector<SampleOutput> run(Device device, bool disable) {
        EmbeddedOptions options = small_options();
        options.device = device;
        options.disable_cuda_graph = disable;
        options.max_running = 5;
        engine = std::make_unique<EmbeddedEngine>(tiny_config(), options);
        engine->start();
        std::vector<SampleOutput> samples;
        for (std::int64_t version = 1; version <= 3; ++version) {
            write(version, device);
            std::vector<std::future<GenerateResult>> open;
            for (std::uint64_t seed = 1; seed <= 6; ++seed) {
                GenerateRequest wanted = request(4 + static_cast<std::int64_t>(seed) * 5, seed, 2);
                SamplingParams& params = wanted.prompts[0].params;
                if (seed == 2) params.temperature = 0;
                if (seed == 3) params.top_p = 0.8f;
                if (seed == 4) params.top_k = 7, params.min_p = 0.02f;
                open.push_back(generate(std::move(wanted)));
            }
            for (auto& one : open) {
                GenerateResult result = get(std::move(one));
                EXPECT_TRUE(result.status.ok()) << result.status.message;
                for (SampleOutput& sample : result.samples) samples.push_back(std::move(sample));
            }
        }
        return samples;
    }
    void write(std::int64_t version, Device device) {
        pause(PauseMode::retract);
        engine->begin_update(version);
        Stream here = Stream::make_inline(), there = Stream::make(device, "writer");
        const ModelWeights host(tiny_config(), DType::float32, here);
        fill_weights(host.slots(), static_cast<std::uint64_t>(version));
        for (std::size_t i = 0; i < host.slots().size(); ++i)
            copy(there, host.slots()[i].memory, engine->weights()[i].memory);
        there.synchronize();
        engine->commit_update(version);
        engine->continue_generation();
    }
};

TEST_F(GraphEngineTest, ContinuousBatchingAndUpdatesGiveTheSameTokens) {
    const auto wanted = run(kReference, true);
    const auto expect_the_same = [&](const std::vector<SampleOutput>& found) {
        ASSERT_EQ(found.size(), wanted.size());
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            EXPECT_EQ(found[i].tokens, wanted[i].tokens) << i;
            EXPECT_EQ(found[i].logprobs, wanted[i].logprobs) << i;
            EXPECT_EQ(found[i].version, wanted[i].version) << i;
        }
    };
    expect_the_same(run(kGraphsGpu, false));
    EXPECT_GE(engine->state().counts.graphs.recorded, 2U);
    EXPECT_GT(engine->state().counts.graphs.replayed, 20U);
    expect_the_same(run(kGraphsGpu, true));
    EXPECT_EQ(engine->state().counts.graphs.replayed, 0U);
}

}  // namespace
}  // namespace tandem::engine
