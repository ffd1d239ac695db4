#include "tests/support/model_forward.h"

#include <algorithm>
#include <numeric>

#include "common/comm/launch.h"
#include "common/model/safetensors.h"
#include "common/ops/elementwise.h"
#include "engine_adapter/embedded/decoder.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/data/micro_batch.h"
#include "trainer/nn/decoder.h"
#include "trainer/policy/policy.h"

namespace tandem::testing {
namespace {

// All parameters in memory, from the start to the end.
class Resident : public trainer::GroupHooks {
  public:
    void unshard(int, int) override {}
    void after_forward(int) override {}
    void begin_gradients(int) override {}
    void after_backward(int) override {}
};

trainer::Sample sample_of(const Tokens& tokens, const Tokens& mask) {
    trainer::Sample sample;
    sample.tokens = tokens;
    sample.target_mask.assign(mask.begin(), mask.end());
    return sample;
}

struct Engine {
    Engine(const std::string& directory, DType dtype, std::size_t length)
        : config(model::read_model_config(directory)),
          weights(config, dtype, stream),
          cache(config, dtype, round_up(length), kPage),
          decoder(config, weights, cache, stream) {
        weights.load(config, directory, stream);
        for (std::int64_t i = 0; i < cache.pages_for(static_cast<std::int64_t>(length)); ++i)
            pages.push_back(cache.pool().allocate());
    }
    static constexpr std::int64_t kPage = 16;
    static std::int64_t round_up(std::size_t length) {
        return (static_cast<std::int64_t>(length) + kPage - 1) / kPage * kPage;
    }
    Tensor prefill(const Tokens& tokens) { return decoder.prefill({{tokens, pages}}); }
    Tensor decode(std::int32_t token, std::size_t position) {
        return decoder.decode({{token}, {static_cast<std::int32_t>(position) + 1}, {pages}});
    }
    model::ModelConfig config;
    Stream stream = Stream::make_inline();
    engine::ModelWeights weights;
    engine::KvCache cache;
    engine::Decoder decoder;
    std::vector<std::int32_t> pages;
};

}  // namespace

std::vector<Tokens> whole_vocabulary(const model::ModelConfig& config, std::size_t positions) {
    Tokens all(static_cast<std::size_t>(config.vocab_size));
    std::iota(all.begin(), all.end(), 0);
    return std::vector<Tokens>(positions, all);
}

std::vector<std::vector<float>> trainer_logprobs(const std::string& directory, DType dtype,
                                                 const Tokens& tokens,
                                                 const std::vector<Tokens>& candidates) {
    using namespace trainer;
    const model::ModelConfig config = model::read_model_config(directory);
    const auto files = model::Safetensors::open(directory);
    Stream stream = Stream::make_inline();
    const auto alone = comm::solo();
    const TensorParallel tensor(*alone, false);
    Decoder decoder(config, DecoderOptions{}, tensor);
    for (Parameter& parameter : decoder.parameters()) {
        parameter.value = Tensor::empty(parameter.shape, dtype, "test");
        ops::cast(stream, files.tensor(parameter.name), parameter.value);
    }
    const std::vector<Sample> samples{sample_of(tokens, Tokens(tokens.size(), 1))};
    const Pack pack{{0}, static_cast<std::int64_t>(tokens.size())};
    const MicroBatch batch = make_micro_batch(samples, pack, /*zigzag=*/false, 1, 0);
    const auto context = make_local_context(batch.layout, stream);
    Tokens rows, targets;  // a row for each candidate: only the head's work grows
    for (std::size_t position = 0; position < candidates.size(); ++position) {
        rows.insert(rows.end(), candidates[position].size(), static_cast<std::int32_t>(position));
        targets.insert(targets.end(), candidates[position].begin(), candidates[position].end());
    }
    std::vector<float> logprobs(rows.size());
    Resident hooks;
    const Compute compute{stream, dtype, *context, tensor, batch.positions};
    const DecoderStage& all = decoder.stage();
    all.score(compute, all.forward(compute, batch.tokens, {}, hooks, nullptr), {rows, targets}, hooks, 1.0f,
              {logprobs, {}, {}});
    std::vector<std::vector<float>> result;
    auto at = logprobs.begin();
    for (const Tokens& list : candidates) {
        const auto end = at + static_cast<std::ptrdiff_t>(list.size());
        result.emplace_back(at, end);
        at = end;
    }
    return result;
}

Tensor engine_logits(const std::string& directory, DType dtype, const Tokens& tokens, std::size_t prompt) {
    Engine engine(directory, dtype, tokens.size());
    const auto count = static_cast<std::int64_t>(tokens.size() - prompt + 1);
    const Tensor result = Tensor::empty({count, engine.config.vocab_size}, DType::float32, "test");
    Stream stream = Stream::make_inline();
    ops::cast(stream, engine.prefill({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(prompt)}),
              result.rows(0, 1));
    for (std::size_t i = prompt; i < tokens.size(); ++i) {
        ops::cast(stream, engine.decode(tokens[i], i),
                  result.rows(static_cast<std::int64_t>(i - prompt) + 1, 1));
    }
    return result;
}

Tokens engine_greedy(const std::string& directory, DType dtype, const Tokens& prompt, std::size_t count) {
    Engine engine(directory, dtype, prompt.size() + count);
    Tokens result;
    Tensor logits = engine.prefill(prompt);
    for (;;) {
        const auto values = logits.values<float>();
        result.push_back(
            static_cast<std::int32_t>(std::max_element(values.begin(), values.end()) - values.begin()));
        if (result.size() == count) return result;
        logits = engine.decode(result.back(), prompt.size() + result.size() - 1);
    }
}

Trained train(const std::string& directory, DType dtype, const std::vector<Tokens>& tokens,
              const std::vector<Tokens>& masks) {
    constexpr int kSteps = 10;
    constexpr double kLearningRate = 1e-3;
    trainer::PolicyOptions options;
    options.compute_dtype = dtype;
    options.clip_grad_norm = 0;
    options.beta1 = 0.9f;
    options.beta2 = 0.95f;
    options.eps = 1e-8f;
    options.weight_decay = 0.1f;
    trainer::Policy policy(DeviceMesh::create(comm::solo(), {1, 1}, {"dp", "cp"}),
                           model::read_model_config(directory), options);
    trainer::load_checkpoint(policy, directory);
    std::vector<trainer::Sample> samples;
    for (std::size_t i = 0; i < tokens.size(); ++i) samples.push_back(sample_of(tokens[i], masks[i]));
    Trained result;
    result.logprobs = policy.logprobs(samples);
    for (int step = 0; step < kSteps; ++step) {
        const double loss = policy.accumulate(samples, trainer::supervised_loss()).loss;
        if (step == 0) {
            result.loss = loss;
            for (const auto& [name, tensor] : policy.gradients())
                result.gradients[name] = tensor.full_tensor().clone("test");
        }
        policy.apply(kLearningRate);
    }
    for (const auto& [name, tensor] : policy.parameters())
        result.parameters[name] = tensor.full_tensor().clone("test");
    return result;
}

}  // namespace tandem::testing
