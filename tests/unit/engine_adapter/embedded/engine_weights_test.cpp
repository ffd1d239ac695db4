// An engine's weights and when they change: in place or its own, one whole version a sample, released and
// restored.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "tests/unit/engine_adapter/embedded/engine_fixture.h"

namespace tandem::engine {
namespace {

using testing::HasSubstr;

// Weights read in another owner's memory give the same as those weights loaded, and that memory lives as
// long as it is read.
TEST_F(EmbeddedEngineTest, GeneratesFromWeightsInPlaceAsFromItsOwn) {
    EmbeddedEngine source(tiny_config(), small_options());
    fill_weights(source.weights(), 2);
    start();
    EXPECT_TRUE(engine->can_alias());
    const auto sample = [&] { return get(generate(request(40, 9))).samples.at(0); };
    const SampleOutput first = sample();
    update(2);
    const SampleOutput loaded = sample();
    EXPECT_NE(loaded.tokens, first.tokens);
    update(1);

    std::vector<Span> elsewhere;
    auto memory = std::make_shared<std::vector<std::vector<std::byte>>>();
    for (const WeightSlot& slot : source.weights()) {
        // As far apart and as little aligned as a trainer's arena may lay them: to their elements.
        auto& block = memory->emplace_back(slot.memory.bytes + 4);
        std::memcpy(block.data() + 4, slot.memory.data, slot.memory.bytes);
    }
    for (auto& block : *memory) elsewhere.push_back({block.data() + 4, block.size() - 4});
    const std::weak_ptr<const void> alive = memory;
    EXPECT_THROW(engine->point_weights(elsewhere, memory), InvalidArgument);  // no update is open
    pause(PauseMode::retract);
    engine->begin_update(3);
    auto short_list = elsewhere;
    short_list.pop_back();
    EXPECT_THROW(engine->point_weights(short_list, memory), InvalidArgument);
    short_list.push_back({elsewhere.back().data, elsewhere.back().bytes - 4});
    EXPECT_THROW(engine->point_weights(short_list, memory), InvalidArgument);
    engine->point_weights(elsewhere, std::move(memory));
    engine->commit_update(3);
    engine->continue_generation();
    const SampleOutput in_place = sample();
    EXPECT_EQ(in_place.version, 3);
    EXPECT_EQ(in_place.tokens, loaded.tokens);
    EXPECT_EQ(in_place.logprobs, loaded.logprobs);
    EXPECT_FALSE(alive.expired());
    EXPECT_EQ(engine->current_weights()[0].memory.data, elsewhere[0].data);
    EXPECT_NE(engine->weights()[0].memory.data, elsewhere[0].data);

    // Back to its own memory, which still holds version 1.
    std::vector<Span> own;
    for (const WeightSlot& slot : engine->weights()) own.push_back(slot.memory);
    pause(PauseMode::retract);
    engine->begin_update(4);
    engine->point_weights(own, nullptr);
    EXPECT_TRUE(alive.expired());
    engine->commit_update(4);
    engine->continue_generation();
    EXPECT_EQ(sample().tokens, first.tokens);
}

// Only the first request of a version packs it.
TEST_F(EmbeddedEngineTest, SaysWhatPackingAVersionTook) {
    start();
    EXPECT_EQ(engine->packed_ms(), 0);
    get(generate(request(4, 1)));
    const double first = engine->packed_ms();
    EXPECT_GT(first, 0);
    get(generate(request(4, 2)));
    EXPECT_EQ(engine->packed_ms(), first);
    update(2);
    EXPECT_EQ(engine->packed_ms(), 0) << "nobody has used version 2 yet";
    get(generate(request(4, 3)));
    EXPECT_GT(engine->packed_ms(), 0);
}

// The heart of it. Requests hammer the engine while versions of two known weight sets are committed over each
// other, and sometimes broken on the way. The log-probs of every sample must be those of the version that it
// names, all of them.
TEST_F(EmbeddedEngineTest, EverySampleIsMadeByOneVersion) {
    start();
    std::atomic<bool> stop{false};
    std::vector<std::thread> clients;
    std::mutex mutex;
    std::vector<std::pair<GenerateRequest, SampleOutput>> samples;
    for (std::uint64_t client = 0; client < 3; ++client) {
        clients.emplace_back([&, client] {
            for (std::uint64_t i = 0; !stop; ++i) {
                const GenerateRequest wanted =
                    request(5 + static_cast<std::int64_t>(i % 40), client * 1000 + i,
                            1 + static_cast<std::int64_t>(i % 2));
                const GenerateResult result = get(generate(wanted));
                const std::lock_guard lock(mutex);
                for (const SampleOutput& sample : result.samples) samples.emplace_back(wanted, sample);
            }
        });
    }
    // Lets the clients finish a few samples more, however slow the machine is.
    const auto let_them_work = [&] {
        std::size_t before = 0;
        for (int i = 0; i < 2000; ++i) {
            {
                const std::lock_guard lock(mutex);
                if (i == 0) before = samples.size();
                if (samples.size() >= before + 4) return;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    };
    // Odd versions hold weight set 1, even ones set 2; the bytes change slowly, to give a torn read its
    // chance.
    for (std::int64_t version = 2; version < 14; ++version) {
        let_them_work();
        pause(version % 3 == 0 ? PauseMode::in_place : PauseMode::retract);
        engine->begin_update(version);
        if (version % 5 == 0) {
            fill_weights({engine->weights().front()}, 99);
            engine->abort_update("spoiled on purpose", true);
            engine->begin_update(version);
        }
        fill_weights(engine->weights(), version % 2 == 1 ? 1 : 2);
        engine->commit_update(version);
        engine->continue_generation();
    }
    let_them_work();
    stop = true;
    for (std::thread& client : clients) client.join();

    EmbeddedEngine sets[2] = {{tiny_config(), small_options()}, {tiny_config(), small_options()}};
    fill_weights(sets[0].weights(), 1);
    fill_weights(sets[1].weights(), 2);
    std::size_t checked[2] = {0, 0};
    const std::size_t stride = std::max<std::size_t>(1, samples.size() / 300);  // the oracle is slow
    for (std::size_t s = 0; s < samples.size(); s += stride) {
        const auto& [wanted, sample] = samples[s];
        const std::size_t set = sample.version % 2 == 1 ? 0 : 1;
        std::vector<std::int32_t> tokens = wanted.prompts[0].tokens;
        const std::size_t start_at = tokens.size() - 1;
        tokens.insert(tokens.end(), sample.tokens.begin(), sample.tokens.end());
        const auto expected = naive_logprobs(tiny_config(), sets[set].weights(), tokens);
        for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
            const double right = expected[start_at + i][static_cast<std::size_t>(sample.tokens[i])];
            ASSERT_NEAR(static_cast<double>(sample.logprobs[i]), right, 2e-5)
                << "token " << i << " of a sample that says version " << sample.version;
        }
        ++checked[set];
    }
    EXPECT_GT(checked[0], 10u);
    EXPECT_GT(checked[1], 10u);
    EXPECT_EQ(engine->state().pages_free, engine->state().pages_total);
}

// Between release and the next version nothing is generated; after it, what was generated before.
TEST_F(EmbeddedEngineTest, ReleasedMemoryComesBackWithTheNextVersion) {
    start();
    const GenerateResult before = get(generate(request(6)));
    ASSERT_TRUE(before.status.ok());
    const auto between = [&](const std::function<void()>& work) {
        std::promise<std::string> done;
        engine->between_steps([&] {
            try {
                work();
                done.set_value("");
            } catch (const std::exception& error) {
                done.set_value(error.what());
            }
        });
        return done.get_future().get();
    };
    EXPECT_EQ(between([&] { engine->release_memory(true, false); }), "");
    EXPECT_EQ(memory_stats("engine.kv").live_bytes, 0U);
    EXPECT_THAT(get(generate(request(6))).status.message, HasSubstr("cache's memory is released"));
    EXPECT_EQ(between([&] { engine->restore_memory(true, false); }), "");
    EXPECT_EQ(get(generate(request(6))).samples[0].tokens, before.samples[0].tokens);

    EXPECT_EQ(between([&] { engine->release_memory(true, true); }), "");
    EXPECT_EQ(memory_stats("engine.weights").live_bytes, 0U);
    EXPECT_EQ(memory_stats("engine.packed").live_bytes, 0U);
    EXPECT_EQ(engine->version(), 0);
    EXPECT_THROW(update(2), InvalidArgument) << "into memory that is not there";
    EXPECT_EQ(between([&] { engine->restore_memory(true, true); }), "");
    const GenerateResult empty = get(generate(request(6)));
    EXPECT_EQ(empty.status.code, Code::unavailable);
    EXPECT_THAT(empty.status.message, HasSubstr("holds no version yet"));
    update(1);
    const GenerateResult after = get(generate(request(6)));
    ASSERT_TRUE(after.status.ok()) << after.status.message;
    EXPECT_EQ(after.samples[0].tokens, before.samples[0].tokens);
    EXPECT_EQ(after.samples[0].version, 1);
}
}  // namespace
}  // namespace tandem::engine
