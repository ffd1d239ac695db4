// The engine's HTTP routes, with SGLang's names, fields and answers.
//
//   method     path                          key    body, and what the answer says
//   POST, PUT  /generate                     user   text or input_ids, sampling_params, return_logprob, rid
//   POST       /pause_generation             admin  mode: abort (default), retract, in_place; sent when no pass runs
//   POST       /continue_generation          admin
//   POST       /abort_request                user   rid: ends the prompts whose rid begins so; or abort_all (admin)
//   GET, POST  /flush_cache                  admin  400 while requests run or wait, after ?timeout= seconds (default 0)
//   GET, POST  /release_memory_occupation    admin  tags: kv_cache, weights; none: both. GET needs a body, if only {}
//   GET, POST  /resume_memory_occupation     admin  the same
//   GET        /model_info                   user   model_path, weight_version; under "tandem": architecture and more
//   GET        /server_info                  user   limits and counters
//   GET        /health                       open   200, or 503 with the reason while there is no whole version
//   GET        /health_generate              open   the same, after generating one token: one for all that wait
//   GET, POST  /weights_checker              admin  action: checksum; of those that wait all get one answer
//
// Keys: common/http/access.h. What changes something needs POST, PUT or a body, so that no page or prefetch does it by a
// link. Keys of a body that are not read are refused, unless they ask for nothing.
// /get_model_info and /get_server_info are the same as without get_.
#pragma once

#include <string>

#include "common/http/server.h"
#include "engine_adapter/embedded/background.h"
#include "engine_adapter/embedded/embedded_engine.h"

namespace tandem::tokenizer {
class Tokenizer;
}

namespace tandem::engine {

struct RouteInfo {
    std::string model_path;
    std::string receiver;                             // address of the engine's receiver; empty: none
    const tokenizer::Tokenizer* tokenizer = nullptr;  // nullptr: none; outlives the server
    // Parses large bodies and writes large answers; nullptr: the server's and the engine's threads do.
    Background* background = nullptr;
    int data_port = 0;              // of the receiver's data plane over TCP; 0: none
    std::string incarnation = {};   // another one after each start; empty: it says none
    std::string no_tokenizer = {};  // why there is none; empty: there are no files
};

// The engine must outlive the server.
void add_routes(http::Server& server, EmbeddedEngine& engine, const RouteInfo& info);

}  // namespace tandem::engine
