// What serves behind a sglang:// URL, asked before anything else: that it is SGLang, which version, with the routes for
// updates, and which tensors it wants.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "engine_adapter/engine.h"
#include "engine_adapter/sglang/server.h"

namespace tandem::engine {

struct SglangInfo {
    std::string version;          // "0.5.23"
    std::filesystem::path model;  // the directory that it was started with
    std::vector<TensorInfo>
        tensors;                 // of that directory, in the dtype that it computes in where that is said
    std::string weight_version;  // "default" before the first update
    std::size_t ranks = 1;       // tensor-parallel
    std::size_t replicas = 1;    // data-parallel
    bool sessions = false;       // updates from tensors must be begun and ended
};

// An unknown version is a warning. Throws TransportError: something else answers, a route is not there, a wrong key; and
// Error where its model's directory cannot be read here.
SglangInfo probe_sglang(SglangServer& server, Deadline deadline);

}  // namespace tandem::engine
