// One sampling_params object of SGLang.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine_adapter/embedded/request.h"

namespace tandem::engine {

struct ParsedSampling {
    SamplingParams params;
    bool has_max_new_tokens = false;
    bool skip_special_tokens = true;  // in the answer's text
    bool no_stop_trim = false;        // which keeps the token that stopped the sample
};

// Unknown keys are refused, and so are known ones that this engine cannot honour, unless they ask for
// nothing. Throws InvalidArgument.
ParsedSampling parse_sampling(const nlohmann::json& object, std::int64_t vocab_size);

}  // namespace tandem::engine
