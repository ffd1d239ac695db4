// A long prompt in an engine: what comes while half of it is prefilled is done at the next piece. Everything
// that must come in the middle is done by the engine's own thread, between two steps, so that no test depends
// on the time.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>

#include "tests/unit/engine_adapter/embedded/engine_fixture.h"

namespace tandem::engine {
namespace {

constexpr std::uint64_t kLength = 2000;

GenerateRequest long_prompt(std::int64_t n = 1) {
    GenerateRequest result = request(3, 1, n);
    auto& tokens = result.prompts[0].tokens;
    while (tokens.size() < kLength) tokens.push_back(static_cast<std::int32_t>(tokens.size() * 7 % 40));
    return result;
}

class LongPrompt : public EmbeddedEngineTest {
  protected:
    LongPrompt() {
        options.kv_tokens = 8192;
        options.piece_tokens = 32;
    }
    std::uint64_t prefilled() const { return engine->state().counts.prefill_tokens; }
    // Before the prompt is given: runs `work` in the engine's thread when 100 tokens of it have been prefilled.
    void in_the_middle(const std::function<void()>& work) { later(prefilled() + 100, work); }
    // The prompt, of which generation was paused then.
    std::future<GenerateResult> paused_in_the_middle(PauseMode mode, std::int64_t n) {
        auto paused = std::make_shared<std::promise<void>>();
        in_the_middle([=, this] { engine->pause_generation(mode, [=] { paused->set_value(); }); });
        auto running = generate(long_prompt(n));
        EXPECT_EQ(paused->get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
        return running;
    }
    void expect_all_pages_free() { EXPECT_EQ(engine->state().pages_free, engine->state().pages_total); }
    EmbeddedOptions options = small_options();

  private:
    void later(std::uint64_t tokens, const std::function<void()>& work) {
        engine->between_steps([=, this] { prefilled() < tokens ? later(tokens, work) : work(); });
    }
};

TEST_F(LongPrompt, PausesInEveryModeAndGoesOn) {
    start(true, options);
    const auto expected = get(generate(long_prompt(2))).samples;
    for (const PauseMode mode : {PauseMode::in_place, PauseMode::retract, PauseMode::abort}) {
        const std::uint64_t before = prefilled();
        auto running = paused_in_the_middle(mode, 2);
        EXPECT_LT(prefilled(), before + 200) << "it stopped at the next piece";
        EXPECT_EQ(engine->state().pages_free == engine->state().pages_total, mode != PauseMode::in_place);
        if (mode == PauseMode::abort) {
            const GenerateResult result = get(std::move(running));
            EXPECT_TRUE(result.samples[0].tokens.empty());
            EXPECT_EQ(result.samples[0].finish, Finish::abort);
            EXPECT_EQ(result.samples[0].version, 1);
            engine->continue_generation();
            continue;
        }
        const std::uint64_t done = prefilled() - before;
        engine->continue_generation();
        const GenerateResult result = get(std::move(running));
        for (std::size_t i = 0; i < 2; ++i) {
            EXPECT_EQ(result.samples[i].tokens, expected[i].tokens);
            EXPECT_EQ(result.samples[i].logprobs, expected[i].logprobs);
        }
        EXPECT_EQ(prefilled() - before, kLength + (mode == PauseMode::retract ? done : 0));
    }
    expect_all_pages_free();
}

TEST_F(LongPrompt, EndsWithItsAbortOrItsClient) {
    start(true, options);
    std::uint64_t before = prefilled();
    in_the_middle([&] { engine->abort("r1"); });
    auto aborted = generate(long_prompt());
    EXPECT_EQ(get(std::move(aborted)).samples[0].finish, Finish::abort);
    EXPECT_LT(prefilled(), before + 200);
    before = prefilled();
    std::promise<GenerateResult> answered;
    int asked = 0;  // between any two steps
    engine->generate(
        long_prompt(), [&](GenerateResult result) { answered.set_value(std::move(result)); },
        [&] { return ++asked > 10; });
    EXPECT_EQ(get(answered.get_future()).status.code, Code::unavailable);
    EXPECT_LT(prefilled(), before + kLength / 2);
    EXPECT_FALSE(get(generate(request(3))).samples[0].tokens.empty());
    expect_all_pages_free();
}

TEST_F(LongPrompt, BeginsAgainWithNewWeights) {
    start(true, options);
    update(2);
    const auto expected = get(generate(long_prompt())).samples[0];
    for (const PauseMode mode : {PauseMode::in_place, PauseMode::retract}) {
        start(true, options);
        const std::uint64_t before = prefilled();
        auto running = paused_in_the_middle(mode, 1);
        const std::uint64_t of_old = prefilled() - before;
        engine->begin_update(2);
        fill_weights(engine->weights(), 2);
        engine->commit_update(2);
        engine->continue_generation();
        const SampleOutput sample = get(std::move(running)).samples[0];
        EXPECT_EQ(sample.version, 2);
        EXPECT_EQ(sample.tokens, expected.tokens);
        EXPECT_EQ(sample.logprobs, expected.logprobs);
        EXPECT_EQ(prefilled() - before, of_old + kLength);
    }
}

TEST_F(LongPrompt, OthersAreAnsweredBeforeIt) {
    start(true, options);
    const auto expected = get(generate(request(20, 5))).samples[0].tokens;
    const std::uint64_t before = prefilled();
    std::promise<GenerateResult> small;
    std::uint64_t then = 0;
    in_the_middle([&] {
        engine->generate(request(20, 5), [&](GenerateResult result) {
            then = prefilled();
            small.set_value(std::move(result));
        });
    });
    auto running = generate(long_prompt());
    EXPECT_EQ(get(small.get_future()).samples[0].tokens, expected);
    EXPECT_LT(then, before + kLength);
    EXPECT_EQ(get(std::move(running)).samples[0].tokens.size(), 3u);
}

}  // namespace
}  // namespace tandem::engine
