// The engine with its thread: pauses, aborts, deadlines, and above all versions: whatever happens around it,
// a sample is made by one whole version, and says which.
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/unit/engine_adapter/embedded/engine_fixture.h"

namespace tandem::engine {
namespace {

using testing::HasSubstr;

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
        engine->continue_generation();
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

// A batch of prompts a, ab and b.
GenerateRequest batch_of_three(bool named) {
    GenerateRequest all = request(50, 1, 2);
    all.named = named;
    for (const char* id : {"a", "ab", "b"}) {
        all.prompts.back().id = id;
        if (all.prompts.size() < 3) all.prompts.push_back(all.prompts.back());
    }
    return all;
}

TEST_F(EmbeddedEngineTest, AbortEndsThePromptsWhoseIdBeginsSo) {
    start();
    const auto expected = get(generate(batch_of_three(true))).samples;
    for (const PauseMode mode : {PauseMode::in_place, PauseMode::retract}) {
        for (const bool named : {true, false}) {
            auto all = generate(batch_of_three(named));
            pause(mode);
            while (all.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {  // it was too late
                engine->continue_generation();
                all = generate(batch_of_three(named));
                pause(mode);
            }
            engine->abort("c");
            engine->abort("a");
            engine->continue_generation();
            const auto samples = get(std::move(all)).samples;
            ASSERT_EQ(samples.size(), 6u);
            for (std::size_t i = 0; i < 6; ++i) {
                const bool aborted = samples[i].prompt == 0 || (named && samples[i].prompt == 1);
                EXPECT_EQ(samples[i].finish, aborted ? Finish::abort : Finish::length) << i;
                EXPECT_EQ(samples[i].tokens == expected[i].tokens, !aborted) << i;
            }
        }
    }
    EXPECT_EQ(engine->state().pages_free, engine->state().pages_total);
    EXPECT_EQ(engine->state().counts.waiting, 0u);
}

TEST_F(EmbeddedEngineTest, WhenIdle) {
    start();
    const auto idle = [&](std::chrono::milliseconds patience) {
        auto said = std::make_shared<std::promise<bool>>();
        engine->when_idle(Deadline::after(patience), [said](bool value) { said->set_value(value); });
        return said->get_future();
    };
    EXPECT_TRUE(idle(std::chrono::milliseconds(0)).get());
    pause(PauseMode::in_place);
    auto waiting = generate(request(4));
    EXPECT_FALSE(idle(std::chrono::milliseconds(0)).get());
    auto later = idle(std::chrono::seconds(60));
    EXPECT_EQ(later.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    engine->abort("");
    EXPECT_TRUE(later.get());
    auto never = generate(request(4));
    auto stopped = idle(std::chrono::seconds(60));
    engine->stop();
    stopped.get();
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
    engine->continue_generation();
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
    engine->continue_generation();
    const GenerateResult same = get(generate(request(20)));
    EXPECT_EQ(same.samples[0].tokens, before);
    EXPECT_EQ(same.samples[0].version, 1);

    pause(PauseMode::in_place);
    auto waiting = generate(request(20));
    engine->begin_update(2);
    engine->abort_update("tensor x of bucket 3 is corrupt", true);
    EXPECT_EQ(get(std::move(waiting)).status.code, Code::unavailable);
    EXPECT_EQ(engine->version(), 0);
    engine->continue_generation();
    const GenerateResult refused = get(generate(request(20)));
    EXPECT_EQ(refused.status.code, Code::unavailable);
    EXPECT_THAT(refused.status.message, HasSubstr("tensor x of bucket 3 is corrupt"));
    // An update that fails before it wrote anything does not make a broken engine whole.
    pause(PauseMode::in_place);
    engine->begin_update(3);
    engine->abort_update("early", false);
    engine->continue_generation();
    EXPECT_THAT(get(generate(request(20))).status.message, HasSubstr("tensor x of bucket 3 is corrupt"));
    update(4);
    EXPECT_EQ(get(generate(request(20))).samples[0].version, 4);
}

TEST_F(EmbeddedEngineTest, LogitsThatAreNotFiniteFailTheRequestOnly) {
    start();
    pause(PauseMode::in_place);
    engine->begin_update(2);
    const WeightSlot& norm = engine->weights().back();
    Tensor::borrow(norm.memory, norm.info.shape, DType::float32).data<float>()[0] = std::nanf("");
    engine->commit_update(2);
    engine->continue_generation();
    const GenerateResult failed = get(generate(request(4)));
    EXPECT_EQ(failed.status.code, Code::internal);
    EXPECT_THAT(failed.status.message, HasSubstr("not finite"));
    update(3);
    EXPECT_TRUE(get(generate(request(4))).status.ok());
    EXPECT_EQ(engine->state().pages_free, engine->state().pages_total);
}
TEST_F(EmbeddedEngineTest, AFullQueueRefuses) {
    EmbeddedOptions options = small_options();
    options.max_queued_samples = 4;
    options.max_queued_tokens = 7;
    start(true, options);
    pause(PauseMode::in_place);
    auto three = generate(request(4, 1, 3));  // 3 samples of 3 prompt tokens
    for (const std::int64_t more : {2, 9}) {
        const GenerateResult refused = get(generate(request(4, 2, more)));
        EXPECT_EQ(refused.status.code, Code::unavailable);
        EXPECT_THAT(refused.status.message, HasSubstr("the queue is full: 3 samples of 3 prompt tokens"));
    }
    auto one = generate(request(4, 3, 1));
    EXPECT_FALSE(get(generate(request(4, 4, 1))).status.ok());
    engine->continue_generation();
    EXPECT_TRUE(get(std::move(three)).status.ok());
    EXPECT_TRUE(get(std::move(one)).status.ok());
    EXPECT_TRUE(get(generate(request(4, 2, 9))).status.ok()) << "an idle engine takes what it can compute";
}

TEST_F(EmbeddedEngineTest, LargeRequestsLeaveHalfOfTheQueue) {
    EmbeddedOptions options = small_options();
    options.max_queued_samples = 4000;
    start(true, options);
    pause(PauseMode::in_place);
    const auto large = [](std::int64_t n) { return request(40, 1, n); };
    auto first = generate(large(1500));
    EXPECT_THAT(get(generate(large(600))).status.message, HasSubstr("the queue is full"));
    auto second = generate(large(500));
    auto small = generate(request(4));
    EXPECT_EQ(small.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout) << "it is taken";
    engine->abort("");
    for (auto* taken : {&first, &second, &small}) EXPECT_TRUE(get(std::move(*taken)).status.ok());
    EXPECT_EQ(engine->state().pages_free, engine->state().pages_total);
}

TEST_F(EmbeddedEngineTest, AnUpdateBeginsBeforeOtherWorkBetweenSteps) {
    start();
    std::atomic<bool> stop{false};
    std::function<void()> again = [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        if (!stop) engine->between_steps(again);
    };
    for (int i = 0; i < 3; ++i) engine->between_steps(again);
    for (std::int64_t version = 2; version < 20; ++version) update(version);
    EXPECT_EQ(engine->version(), 19);
    stop = true;
    std::promise<void> drained;
    engine->between_steps([&] { engine->between_steps([&] { drained.set_value(); }); });
    drained.get_future().wait();
}

TEST_F(EmbeddedEngineTest, ATrainersPauseAndSomebodyElsesEndApart) {
    start();
    engine->pause(Deadline::after_ms(30'000));
    pause(PauseMode::in_place);
    auto waiting = generate(request(4));
    engine->continue_generation();
    EXPECT_TRUE(engine->state().paused && engine->state().paused_for_trainer);
    EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
    pause(PauseMode::in_place);
    engine->resume();
    EXPECT_TRUE(engine->state().paused && !engine->state().paused_for_trainer);
    EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
    engine->continue_generation();
    EXPECT_TRUE(get(std::move(waiting)).status.ok());
}

TEST_F(EmbeddedEngineTest, ASecondPauseThatIsTooLateLeavesTheFirst) {
    start();
    engine->pause(Deadline::after_ms(30'000));
    std::promise<void> begun, go;
    engine->between_steps([&] {
        begun.set_value();
        go.get_future().wait();
    });
    begun.get_future().wait();
    EXPECT_THROW(engine->pause(Deadline::after_ms(50)), DeadlineExceeded);
    EXPECT_TRUE(engine->state().paused_for_trainer);
    go.set_value();
    engine->pause(Deadline::after_ms(30'000));  // the work is over when this returns
    engine->resume();
    EXPECT_FALSE(engine->state().paused);
}

TEST_F(EmbeddedEngineTest, AVersionThatIsWithheldIsNotServed) {
    start();
    update(2);
    engine->withhold("rank 1 may lack it");
    EXPECT_EQ(engine->version(), 0);
    EXPECT_EQ(engine->state().reason, "rank 1 may lack it");
    EXPECT_EQ(get(generate(request(4))).status.code, Code::unavailable);
    update(3);
    EXPECT_EQ(get(generate(request(4))).samples.at(0).version, 3);
}

}  // namespace
}  // namespace tandem::engine
