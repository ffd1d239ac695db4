// What serves behind a vllm:// URL, asked before anything else: that it is vLLM, which version, in development mode, and
// which tensors it wants.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine_adapter/engine.h"
#include "engine_adapter/vllm/server.h"

namespace tandem::engine {

struct VllmInfo {
    std::string version;              // "0.32.0", of the CPU build too
    std::filesystem::path model;      // the directory that it was started with
    std::vector<TensorInfo> tensors;  // of that directory that are wanted, in the dtype that it computes in
    std::string weight_version;       // "default" before the first update
};

// The weight-transfer backend that it was started with, as it names it ("tandem": our plug-in); empty: none, or it does
// not say. Throws TransportError: something else answers.
std::string weight_transfer_backend(VllmServer& server, Deadline deadline);

// What a push needs to know of a server that tells its tensors itself: without model and tensors.
VllmInfo probe_vllm_server(VllmServer& server, Deadline deadline);

// only: which tensors are wanted; empty: all (layers.h). An unknown version is a warning. Throws TransportError: something
// else answers, a route is not there, a wrong key; and
// Error where its model's directory cannot be read here.
VllmInfo probe_vllm(VllmServer& server, const std::function<bool(const std::string& name)>& only,
                    Deadline deadline);

}  // namespace tandem::engine
