// The engine's HTTP routes, with SGLang's names, fields and answers.
//
//   method     path                          body, and what the answer says
//   POST       /generate                     text or input_ids, sampling_params, return_logprob, rid
//   POST       /pause_generation             mode: abort (default), retract, in_place; sent when no pass runs
//   POST       /continue_generation
//   POST       /abort_request                rid, or abort_all
//   GET, POST  /flush_cache                  400 while requests run or wait
//   GET, POST  /release_memory_occupation    tags: kv_cache, weights; none: both
//   GET, POST  /resume_memory_occupation     tags, as above
//   GET        /model_info                   model_path, weight_version; under "tandem": this engine's own
//   GET        /server_info                  limits and counters
//   GET        /health                       200, or 503 with the reason while there is no whole version
//   GET        /health_generate              the same, after generating one token
//   GET, POST  /weights_checker              action: checksum
//
// /get_model_info and /get_server_info are the same as without get_.
#pragma once

#include <string>

#include "common/http/server.h"
#include "engine_adapter/embedded/embedded_engine.h"

namespace tandem::tokenizer {
class Tokenizer;
}

namespace tandem::engine {

struct RouteInfo {
    std::string model_path;
    std::string receiver;                             // address of the engine's receiver; empty: none
    const tokenizer::Tokenizer* tokenizer = nullptr;  // nullptr: none; outlives the server
};

// The engine must outlive the server.
void add_routes(http::Server& server, EmbeddedEngine& engine, const RouteInfo& info);

}  // namespace tandem::engine
