// A scheduler over a tiny model, and jobs whose every detail follows from a seed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "engine_adapter/embedded/scheduler.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::engine {

struct SchedulerRig {
    explicit SchedulerRig(std::int64_t kv_tokens = 4096, SchedulerOptions options = {})
        : config(tiny_config()),
          weights(config, DType::float32, stream),
          cache(config, DType::float32, kv_tokens, 16),
          decoder(config, weights, cache, stream),
          scheduler(options, decoder, cache) {
        fill_weights(weights.slots(), 5);
    }
    void run(int most_steps = 100000) {
        while (scheduler.has_work() && most_steps-- > 0) scheduler.step(1);
    }
    bool all_pages_free() { return cache.pool().free() == cache.pool().total(); }

    model::ModelConfig config;
    Stream stream = Stream::make_inline();
    ModelWeights weights;
    KvCache cache;
    Decoder decoder;
    Scheduler scheduler;
};

// A request of one prompt.
inline std::shared_ptr<Job> job(std::uint64_t seed, std::int64_t n = 1) {
    std::mt19937_64 random(seed);
    auto result = std::make_shared<Job>();
    Prompt& prompt = result->request.prompts.emplace_back();
    const std::size_t length = 1 + random() % 40;
    for (std::size_t i = 0; i < length; ++i)
        prompt.tokens.push_back(static_cast<std::int32_t>(random() % 40));
    prompt.params.n = n;
    prompt.params.max_new_tokens = static_cast<std::int64_t>(1 + random() % 50);
    prompt.params.temperature = seed % 5 == 0 ? 0.0f : 0.5f + 0.25f * static_cast<float>(seed % 4);
    if (seed % 3 == 0) prompt.params.top_p = 0.8f;
    prompt.params.stop_token_ids = {static_cast<std::int32_t>(random() % 40)};
    result->request.return_logprob = true;
    result->seeds = {seed * 77};
    return result;
}

inline void expect_same(const Job& a, const Job& b) {
    ASSERT_EQ(a.outputs.size(), b.outputs.size());
    for (std::size_t i = 0; i < a.outputs.size(); ++i) {
        EXPECT_EQ(a.outputs[i].tokens, b.outputs[i].tokens);
        EXPECT_EQ(a.outputs[i].logprobs, b.outputs[i].logprobs);
        EXPECT_EQ(a.outputs[i].finish, b.outputs[i].finish);
        EXPECT_EQ(a.outputs[i].matched, b.outputs[i].matched);
    }
}

}  // namespace tandem::engine
