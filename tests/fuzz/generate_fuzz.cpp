// POST /generate as the engine's server reads it, with the vocabulary of a small tokenizer. What is accepted must keep
// within the limits that bound the engine, and its answer must be JSON.
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/tokenizer/tokenizer.h"
#include "engine_adapter/embedded/request_json.h"
#include "tests/fuzz/target.h"

using namespace tandem;

namespace {

const tokenizer::Tokenizer& small_tokenizer() {
    static const auto kTokenizer =
        tokenizer::Tokenizer::from_json(R"({"model":{"type":"BPE","unk_token":"<unk>","byte_fallback":true,)"
                                        R"("vocab":{"<unk>":0,"a":1,"b":2,"ab":3," ":4},"merges":["a b"]}})",
                                        "tokenizer.json");
    return kTokenizer;
}

void check(const engine::GenerateRequest& request, const engine::RequestLimits& limits) {
    const auto expect = [](bool holds) {
        if (!holds) std::abort();
    };
    expect(!request.prompts.empty() && request.samples() <= 65536 && request.id.size() <= 300);
    std::size_t stop_ids = 0;
    for (const engine::Prompt& prompt : request.prompts) {
        const auto length = static_cast<std::int64_t>(prompt.tokens.size());
        expect(length > 0 && prompt.params.n > 0 && prompt.params.max_new_tokens >= 0);
        expect(length + prompt.params.max_new_tokens <= std::min(limits.context_length, limits.kv_tokens));
        for (const std::int32_t token : prompt.tokens) expect(token >= 0 && token < limits.vocab_size);
        stop_ids += prompt.params.stop_token_ids.size();
    }
    expect(stop_ids <= std::size_t{1} << 20);
}

// As if each sample had ended with what its prompt says.
void answer(const engine::GenerateRequest& request, const tokenizer::Tokenizer* tokenizer) {
    engine::GenerateResult result;
    for (std::size_t i = 0; i < std::min<std::size_t>(request.prompts.size(), 8); ++i) {
        engine::SampleOutput& out = result.samples.emplace_back();
        out.prompt = i;
        out.tokens = request.prompts[i].tokens;
        out.logprobs.assign(out.tokens.size(), -0.5f);
        out.finish = i % 2 == 0 ? engine::Finish::length : engine::Finish::stop;
        out.matched = out.tokens.back();
    }
    const std::string text = engine::generate_answer(request, result, tokenizer);
    if (!nlohmann::json::accept(text)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string body(reinterpret_cast<const char*>(data), size);
    for (const tokenizer::Tokenizer* tokenizer : {&small_tokenizer(), {}}) {
        const engine::RequestLimits limits{5, 64, 48, tokenizer};
        try {
            const auto request = engine::parse_generate(body, limits, 7);
            check(request, limits);
            answer(request, tokenizer);
        } catch (const InvalidArgument&) {
        }
    }
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    return {
        R"({"input_ids":[1,2,3],"sampling_params":{"max_new_tokens":8,"temperature":0.5,"seed":1},"return_logprob":true})",
        R"({"input_ids":[[1],[2,3]],"sampling_params":[{"n":3,"stop_token_ids":[1,2]},{"top_k":2,"top_p":0.9}],"rid":["a","b"]})",
        R"({"text":["ab","b a\ud83d\ude00"],"sampling_params":{"max_new_tokens":1,"ignore_eos":true,"min_p":0.1},"rid":"r"})",
        R"({"text":"ab","stream":false,"logprob_start_len":-1,"sampling_params":{"stop":[],"n":2,"sampling_seed":-5}})",
        R"({"input_ids":[1],"return_logprob":[true,false],"sampling_params":{"skip_special_tokens":false,"logit_bias":{}}})",
        R"({"input_ids":[4294967297,-1,1e300],"sampling_params":{"max_new_tokens":18446744073709551615}})"};
}
