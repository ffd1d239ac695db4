// SGLang's /generate in JSON, there and back. Everything that a request may get wrong is found here.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine_adapter/embedded/request.h"

namespace tandem::tokenizer {
class Tokenizer;
}

namespace tandem::engine {

struct RequestLimits {
    std::int64_t vocab_size = 0;
    std::int64_t context_length = 0;  // prompt and new tokens together
    std::int64_t kv_tokens = 0;
    const tokenizer::Tokenizer* tokenizer = nullptr;                 // nullptr: requests must have input_ids
    std::string no_tokenizer = "this model has no tokenizer files";  // why there is none
};

// `request_number` names requests without a rid. Throws InvalidArgument with a message for the client:
// malformed JSON, wrong types, fields that this engine would have to ignore, values out of range.
//
// Without max_new_tokens: 128, or what context and cache leave. Seeds: sampling_params.sampling_seed or seed.
// Samples of one prompt draw from streams 0 … n-1 of its seed; prompts that share one sampling_params object
// continue the count, so that equal prompts of a batch get different samples.
GenerateRequest parse_generate(const std::string& body, const RequestLimits& limits,
                               std::uint64_t request_number);

// JSON: an object for one sample of one prompt that was not sent as a list, otherwise a list. Without a tokenizer samples
// come without text; the token that stopped one is in output_ids, and in the text with no_stop_trim.
std::string generate_answer(const GenerateRequest& request, const GenerateResult& result,
                            const tokenizer::Tokenizer* tokenizer = nullptr);

}  // namespace tandem::engine
