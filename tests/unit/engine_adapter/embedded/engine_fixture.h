// An engine with its thread and a tiny model, for tests of requests.
#pragma once

#include <gmock/gmock.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "common/error.h"
#include "engine_adapter/embedded/embedded_engine.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::engine {

inline EmbeddedOptions small_options() {
    EmbeddedOptions options;
    options.kv_tokens = 512;
    return options;
}

inline GenerateRequest request(std::int64_t max_new_tokens, std::uint64_t seed = 1, std::int64_t n = 1) {
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
        engine->pause_generation(mode, [&] { paused.set_value(); });
        ASSERT_EQ(paused.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
    }
    void update(std::int64_t version) {
        pause(PauseMode::retract);
        engine->begin_update(version);
        fill_weights(engine->weights(), static_cast<std::uint64_t>(version));
        engine->commit_update(version);
        engine->continue_generation();
    }
    std::unique_ptr<EmbeddedEngine> engine;
};

}  // namespace tandem::engine
