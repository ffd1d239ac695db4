#include "sync/main/expected_answers.h"

#include <algorithm>
#include <future>
#include <thread>

#include "common/error.h"
#include "common/ops/matmul.h"
#include "engine_adapter/embedded/embedded_engine.h"

namespace tandem::sync {
namespace {

engine::GenerateRequest request_of(const Prompts& prompts) {
    engine::GenerateRequest request;
    request.return_logprob = true;
    for (const std::vector<std::int32_t>& tokens : prompts) {
        engine::Prompt& prompt = request.prompts.emplace_back();
        prompt.tokens = tokens;
        prompt.params.temperature = 0;
        prompt.params.max_new_tokens = kProbeTokens;
        prompt.params.ignore_eos = true;
    }
    return request;
}

}  // namespace

ExpectedAnswers::ExpectedAnswers(const std::string& directory)
    : directory_(directory),
      config_(model::read_model_config(directory)),
      prompts_(probe_prompts(config_.vocab_size)) {}

const std::vector<Said>& ExpectedAnswers::in(DType dtype) {
    if (dtype == DType::float16)
        dtype = DType::float32;  // which nothing here computes in; the probe allows for rounding
    const std::lock_guard lock(mutex_);
    if (!answers_.contains(dtype)) answers_[dtype] = computed(dtype);
    return answers_.at(dtype);
}

std::vector<Said> ExpectedAnswers::computed(DType dtype) const {
    ops::set_compute_threads(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
    engine::EmbeddedOptions options;
    options.dtype = dtype;
    options.packed_weights = false;  // a few tokens do not pay for a copy
    options.kv_tokens = 4096;
    engine::EmbeddedEngine engine(config_, options);
    engine.load(directory_, 1);
    engine.start();
    std::promise<engine::GenerateResult> promise;
    engine.generate(request_of(prompts_),
                    [&](engine::GenerateResult result) { promise.set_value(std::move(result)); });
    engine::GenerateResult result = promise.get_future().get();
    engine.stop();
    if (!result.status.ok())
        throw Error(fmt::format("the probe of {}: {}", directory_, result.status.message));
    std::vector<Said> answers;
    for (engine::SampleOutput& sample : result.samples)
        answers.push_back({std::move(sample.tokens), {sample.logprobs.begin(), sample.logprobs.end()}});
    return answers;
}

}  // namespace tandem::sync
