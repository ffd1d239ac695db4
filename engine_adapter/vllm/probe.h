// What serves behind a vllm:// URL, asked before anything else: that it is vLLM, which version, in development mode, and
// which tensors it wants.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine_adapter/engine.h"
#include "engine_adapter/vllm/server.h"

namespace tandem::engine {

struct VllmInfo {
    std::string version;         // "0.32.0", of the CPU build too
    std::string weight_version;  // "default" before the first update
    // What it was started with, and says of itself (empty: it does not).
    std::string backend;         // of weight transfers: "tandem" is our plug-in
    std::optional<DType> dtype;  // that it computes in
    std::string device;          // "cpu", "cuda"
    // By find_tensors:
    std::filesystem::path model;      // the directory that it was started with
    std::vector<TensorInfo> tensors;  // of that directory that are wanted, in the dtype that it computes in
};

// What a push needs to know of any server: without model and tensors, which a plug-in of ours tells itself. An unknown
// version is a warning. Throws TransportError: something else answers, a route is not there, a wrong key.
VllmInfo probe_vllm(VllmServer& server, Deadline deadline);

// Adds model and tensors. only: which are wanted; empty: all (layers.h). Throws TransportError, and Error where its
// model's directory cannot be read here.
void find_tensors(VllmServer& server, VllmInfo& info,
                  const std::function<bool(const std::string& name)>& only, Deadline deadline);

}  // namespace tandem::engine
