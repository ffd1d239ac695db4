// The engine with its thread: pauses, aborts, deadlines, and above all versions: whatever happens around it,
// a sample is made by one whole version, and says which.
#include "engine_adapter/embedded/embedded_engine.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <future>

#include "common/error.h"
#include "tests/unit/engine/tiny_model.h"

namespace tandem::engine {
namespace {

using testing::HasSubstr;

EmbeddedOptions small_options() {
    EmbeddedOptions options;
    options.kv_tokens = 512;
    return options;
}

GenerateRequest request(std::int64_t max_new_tokens, std::uint64_t seed = 1, std::int64_t n = 1) {
    GenerateRequest result;
    result.id = "r" + std::to_string(seed);
    result.return_logprob = true;
    Prompt& prompt = result.prompts.emplace_back();
    prompt.id = result.id;
    prompt.tokens = {1, 2, static_cast<std::int32_t>(seed % 40)};
    prompt.params.max_new_tokens = max_new_tokens;
    prompt.params.seed = seed;
    prompt.params.n = n;
    return result;
}

class EmbeddedEngineTest : public testing::Test {
  protected:
    void start(bool with_weights = true, EmbeddedOptions options = small_options()) {
        engine = std::make_unique<EmbeddedEngine>(tiny_config(), options);
        engine->start();
        if (with_weights) update(1);
    }
    std::future<GenerateResult> generate(GenerateRequest wanted) {
        auto promise = std::make_shared<std::promise<GenerateResult>>();
        auto future = promise->get_future();
        engine->generate(std::move(wanted),
                         [promise](GenerateResult result) { promise->set_value(std::move(result)); });
        return future;
    }
    static GenerateResult get(std::future<GenerateResult> future) {
        if (future.wait_for(std::chrono::seconds(30)) != std::future_status::ready)
            throw Error("no answer in 30 s");
        return future.get();
    }
    void pause(PauseMode mode) {
        std::promise<void> paused;
        engine->pause(mode, [&] { paused.set_value(); });
        ASSERT_EQ(paused.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
    }
    void update(std::int64_t version) {
        pause(PauseMode::retract);
        engine->begin_update(version);
        fill_weights(engine->weights(), static_cast<std::uint64_t>(version));
        engine->commit_update(version);
        engine->resume();
    }
    std::unique_ptr<EmbeddedEngine> engine;
};

TEST_F(EmbeddedEngineTest, RefusesUntilTheFirstVersionIsWhole) {
    start(false);
    EXPECT_EQ(engine->version(), 0);
    const GenerateResult refused = get(generate(request(4)));
    EXPECT_EQ(refused.status.code, Code::unavailable);
    EXPECT_THAT(refused.status.message, HasSubstr("no weights have been loaded"));
    update(3);
    EXPECT_EQ(engine->version(), 3);
    const GenerateResult served = get(generate(request(4)));
    ASSERT_TRUE(served.status.ok()) << served.status.message;
    EXPECT_EQ(served.samples[0].tokens.size(), 4u);
    EXPECT_EQ(served.samples[0].version, 3);
}

TEST_F(EmbeddedEngineTest, SeedsDecideAndUnseededRequestsFollowTheServersSeed) {
    start();
    const auto tokens = [](const GenerateResult& result) { return result.samples.at(0).tokens; };
    const auto first = tokens(get(generate(request(30, 5))));
    EXPECT_EQ(tokens(get(generate(request(30, 5)))), first);
    EXPECT_NE(tokens(get(generate(request(30, 6)))), first);
    const auto unseeded = [&](std::uint64_t server_seed) {
        EmbeddedOptions options = small_options();
        options.random_seed = server_seed;
        start(true, options);
        std::vector<std::vector<std::int32_t>> all;
        for (int i = 0; i < 2; ++i) {
            GenerateRequest wanted = request(30);
            wanted.prompts[0].params.seed.reset();
            all.push_back(tokens(get(generate(wanted))));
        }
        EXPECT_NE(all[0], all[1]);
        return all;
    };
    const auto one = unseeded(1);
    EXPECT_EQ(one, unseeded(1));
    EXPECT_NE(one, unseeded(2));
}

TEST_F(EmbeddedEngineTest, PausedRequestsWaitAndGoOn) {
    start();
    const auto expected = get(generate(request(60, 9))).samples[0].tokens;
    for (const PauseMode mode : {PauseMode::retract, PauseMode::in_place}) {
        auto running = generate(request(60, 9));
        pause(mode);
        auto queued = generate(request(60, 9));
        EXPECT_EQ(queued.wait_for(std::chrono::milliseconds(150)), std::future_status::timeout);
        EXPECT_TRUE(engine->state().paused);
        engine->resume();
        EXPECT_EQ(get(std::move(running)).samples[0].tokens, expected);
        EXPECT_EQ(get(std::move(queued)).samples[0].tokens, expected);
    }
}

TEST_F(EmbeddedEngineTest, PauseAbortAnswersWithWhatThereIs) {
    start();
    pause(PauseMode::in_place);
    auto waiting = generate(request(60, 9, 3));
    pause(PauseMode::abort);
    const GenerateResult result = get(std::move(waiting));
    ASSERT_TRUE(result.status.ok());
    ASSERT_EQ(result.samples.size(), 3u);
    for (const SampleOutput& sample : result.samples) {
        EXPECT_EQ(sample.finish, Finish::abort);
        EXPECT_EQ(sample.version, 1);
    }
    EXPECT_EQ(engine->state().pages_free, engine->state().pages_total);
}

TEST_F(EmbeddedEngineTest, AbortByIdAndAll) {
    start();
    pause(PauseMode::in_place);
    auto a = generate(request(50, 1));
    auto b = generate(request(50, 2));
    auto c = generate(request(50, 3));
    engine->abort("r1");
    EXPECT_EQ(get(std::move(a)).samples[0].finish, Finish::abort);
    EXPECT_EQ(b.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
    engine->abort("");
    EXPECT_EQ(get(std::move(b)).samples[0].finish, Finish::abort);
    EXPECT_EQ(get(std::move(c)).samples[0].finish, Finish::abort);
}

TEST_F(EmbeddedEngineTest, DeadlinesAndClientsThatLeft) {
    EmbeddedOptions options = small_options();
    options.request_timeout = std::chrono::milliseconds(200);
    start(true, options);
    pause(PauseMode::in_place);
    const GenerateResult late = get(generate(request(4)));
    EXPECT_EQ(late.status.code, Code::deadline);
    EXPECT_THAT(late.status.message,
                HasSubstr("request r1 was not finished within 0.2 s; generation is paused"));
    start();
    pause(PauseMode::in_place);
    std::atomic<bool> gone{false};
    std::promise<GenerateResult> answered;
    engine->generate(
        request(4), [&](GenerateResult result) { answered.set_value(std::move(result)); },
        [&] { return gone.load(); });
    gone = true;
    EXPECT_EQ(get(answered.get_future()).status.code, Code::unavailable);
}

TEST_F(EmbeddedEngineTest, StoppingAnswersEveryone) {
    start();
    pause(PauseMode::in_place);
    auto waiting = generate(request(4));
    engine->stop();
    EXPECT_THAT(get(std::move(waiting)).status.message, HasSubstr("shutting down"));
}

TEST_F(EmbeddedEngineTest, UpdatesOnlyBeginWhilePaused) {
    start();
    EXPECT_THROW(engine->begin_update(2), InvalidArgument);
    EXPECT_THROW(engine->commit_update(2), InvalidArgument);
    EXPECT_THROW(engine->abort_update("nothing is open", true), InvalidArgument);
    pause(PauseMode::in_place);
    engine->begin_update(2);
    EXPECT_THROW(engine->begin_update(3), InvalidArgument);
    EXPECT_THROW(engine->commit_update(3), InvalidArgument);
    engine->commit_update(2);
    EXPECT_EQ(engine->version(), 2);
}

TEST_F(EmbeddedEngineTest, AnOpenUpdateHoldsRequestsEvenAfterResume) {
    start();
    pause(PauseMode::in_place);
    engine->begin_update(2);
    engine->resume();
    auto waiting = generate(request(4));
    EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(150)), std::future_status::timeout);
    fill_weights(engine->weights(), 2);
    engine->commit_update(2);
    EXPECT_EQ(get(std::move(waiting)).samples[0].version, 2);
}

TEST_F(EmbeddedEngineTest, AbortedUpdates) {
    start();
    const auto before = get(generate(request(20))).samples[0].tokens;
    pause(PauseMode::in_place);
    engine->begin_update(2);
    engine->abort_update("the trainer changed its mind", false);
    engine->resume();
    const GenerateResult same = get(generate(request(20)));
    EXPECT_EQ(same.samples[0].tokens, before);
    EXPECT_EQ(same.samples[0].version, 1);

    pause(PauseMode::in_place);
    auto waiting = generate(request(20));
    engine->begin_update(2);
    engine->abort_update("tensor x of bucket 3 is corrupt", true);
    EXPECT_EQ(get(std::move(waiting)).status.code, Code::unavailable);
    EXPECT_EQ(engine->version(), 0);
    engine->resume();
    const GenerateResult refused = get(generate(request(20)));
    EXPECT_EQ(refused.status.code, Code::unavailable);
    EXPECT_THAT(refused.status.message, HasSubstr("tensor x of bucket 3 is corrupt"));
    // An update that fails before it wrote anything does not make a broken engine whole.
    pause(PauseMode::in_place);
    engine->begin_update(3);
    engine->abort_update("early", false);
    engine->resume();
    EXPECT_THAT(get(generate(request(20))).status.message, HasSubstr("tensor x of bucket 3 is corrupt"));
    update(4);
    EXPECT_EQ(get(generate(request(20))).samples[0].version, 4);
}

// Weights read in memory of somebody else give what the same weights loaded give, and that memory lives as
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
    engine->resume();
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
    engine->resume();
    EXPECT_EQ(sample().tokens, first.tokens);
}

TEST_F(EmbeddedEngineTest, LogitsThatAreNotFiniteFailTheRequestOnly) {
    start();
    pause(PauseMode::in_place);
    engine->begin_update(2);
    const WeightSlot& norm = engine->weights().back();
    Tensor::borrow(norm.memory, norm.info.shape, DType::float32).data<float>()[0] = std::nanf("");
    engine->commit_update(2);
    engine->resume();
    const GenerateResult failed = get(generate(request(4)));
    EXPECT_EQ(failed.status.code, Code::internal);
    EXPECT_THAT(failed.status.message, HasSubstr("not finite"));
    update(3);
    EXPECT_TRUE(get(generate(request(4))).status.ok());
    EXPECT_EQ(engine->state().pages_free, engine->state().pages_total);
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
        engine->resume();
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
    EXPECT_EQ(between([&] { engine->resume_memory(true, false); }), "");
    EXPECT_EQ(get(generate(request(6))).samples[0].tokens, before.samples[0].tokens);

    EXPECT_EQ(between([&] { engine->release_memory(true, true); }), "");
    EXPECT_EQ(memory_stats("engine.weights").live_bytes, 0U);
    EXPECT_EQ(engine->version(), 0);
    EXPECT_THROW(update(2), InvalidArgument) << "into memory that is not there";
    EXPECT_EQ(between([&] { engine->resume_memory(true, true); }), "");
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
