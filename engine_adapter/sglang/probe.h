// What serves behind a sglang:// URL, asked before anything else: that it is SGLang, which version, with the routes for
// updates, and which tensors it wants.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine_adapter/engine.h"
#include "engine_adapter/hf_directory/served_model.h"
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
    bool paused = false;                 // from 0.5.21 on: before, it does not say
    std::optional<DType> dtype;          // that it computes in; nothing: it casts what it loads
    std::string device;                  // "cuda", "cpu"
    std::string load_format;             // "auto"
    std::string quantization;            // "fp8"; empty: none
    std::optional<SglangPlugin> plugin;  // it was started with it
    ServedModel model;                   // find_tensors()
    std::vector<TensorInfo>
        tensors;               // of that, in the dtype that it computes in where that is said: the same
    std::size_t ranks = 1;     // tensor-parallel
    std::size_t replicas = 1;  // data-parallel
    bool sessions = false;     // updates from tensors must be begun and ended
};

// An unknown version is a warning. Throws TransportError: something else answers, a route is not there, a wrong key.
SglangInfo probe_sglang(SglangServer& server, Deadline deadline);
// For servers without our plug-in. pushed: ConnectOptions::pushed. Throws Error where nothing of its model can be read here
// (served_model.h), or what it holds of a quantised one.
void find_tensors(const SglangServer& server, SglangInfo& info, const std::filesystem::path& pushed);
// For a server that is to load a directory that it is given: from here on it does. Throws Error where that would be ignored,
// or be taken for something else: it was started with another load format.
void require_loads_directories(SglangServer& server, const SglangInfo& info);
// Throws TransportError: the plug-in is not there, can receive nothing, or speaks another protocol than this program.
SglangPlugin plugin_state(SglangServer& server, Deadline deadline);

}  // namespace tandem::engine
