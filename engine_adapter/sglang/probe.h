// What serves behind a sglang:// URL, asked before anything else: that it is SGLang, which version, with the routes for
// updates, and which tensors it wants.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine_adapter/engine.h"
#include "engine_adapter/sglang/server.h"
#include "engine_adapter/tandem/route.h"

namespace tandem::engine {

// What a server with our plug-in says of itself.
struct SglangPlugin {
    Whereabouts at;               // its first rank's receiver
    bool whole = true;            // the model holds one version
    bool paused_by_push = false;  // the note
};

struct SglangInfo {
    std::string version;                 // "0.5.23"
    std::string model_path;              // that it says it serves
    std::string tokenizer_path;          // the same
    std::string started_with;            // the model's, before the first load from a directory
    std::string weight_version;          // "default" before the first update
    std::optional<DType> dtype;          // that it computes in; nothing: it casts what it loads
    std::string device;                  // "cuda", "cpu"
    std::optional<SglangPlugin> plugin;  // it was started with it
    std::filesystem::path model;         // the directory that it was started with: find_tensors()
    std::vector<TensorInfo>
        tensors;               // of that, in the dtype that it computes in where that is said: the same
    std::size_t ranks = 1;     // tensor-parallel
    std::size_t replicas = 1;  // data-parallel
    bool sessions = false;     // updates from tensors must be begun and ended
};

// An unknown version is a warning. Throws TransportError: something else answers, a route is not there, a wrong key.
SglangInfo probe_sglang(SglangServer& server, Deadline deadline);
// For servers without our plug-in. Throws Error where the model's directory cannot be read here.
void find_tensors(const SglangServer& server, SglangInfo& info);
// Throws TransportError: the plug-in is not there, can receive nothing, or speaks another protocol than this program.
SglangPlugin plugin_state(SglangServer& server, Deadline deadline);

}  // namespace tandem::engine
