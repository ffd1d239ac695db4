// An Engine from its name. Each kind of engine is a line of the table in connect.cpp.
//
//   name                 engine
//   tandem://HOST:PORT   the tandem-engine that serves there, on any host (tandem/url.h); http://HOST:PORT is the same
//   unix:///PATH         the same, at a Unix socket
//   unix-abstract:NAME   a receiver of ours, by its address
//   tcp://HOST:PORT      the same, of any host, by its data plane
//   vllm://HOST:PORT     a vLLM server of this host, without our plug-in (vllm/engine.h); with our plug-in of any host
//                        (vllm/plugin_engine.h, tandem/url.h)
//   sglang://HOST:PORT   an SGLang server of this host, without our plug-in (sglang/engine.h); with our plug-in of
//                        any host (sglang/plugin_engine.h); sglang+tensor:// the first, given tensors in shared memory
//                        or of a GPU instead of a directory; sglang+nccl:// the same, sent them from a GPU;
//                        sglang+ipc:// the same, by checkpoint-engine's protocol
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/http/access.h"
#include "engine_adapter/engine.h"
#include "engine_adapter/transport/nccl/group.h"

namespace tandem::engine {

class StagingShare;  // hf_directory/shared_directory.h

// Requests that a third-party server works on when it is to be paused.
enum class InFlight : std::uint8_t {
    wait,   // they end first, with the weights that they began with
    abort,  // they are ended
    keep  // they stand still, and go on with the new weights, by which their keys and values are computed anew: an answer
          // may be of several versions. vLLM, and SGLang from 0.5.23 on; a tandem-engine refuses it
};
// "wait", "abort", "keep". Throws BadInput: another one.
InFlight in_flight_from_name(const std::string& name);

struct ConnectOptions {
    // For the HTTP servers of all engines that have none of their own in `keys`, by their names; empty: TANDEM_API_KEY,
    // VLLM_API_KEY or SGLANG_API_KEY of the environment, by the kind of engine.
    std::string key = {};
    std::map<std::string, std::string> keys = {};
    InFlight in_flight = InFlight::wait;
    // Where weights are staged for engines that load them from a directory, which they must see too.
    std::filesystem::path staging = "/dev/shm";
    // Of a push into several engines: those that load the same tensors share the staged version, until this goes.
    std::shared_ptr<StagingShare> share = {};
    // Buckets go over one NCCL group: this process is its rank 0, engine rank i rank 1 + i, each on a GPU of
    // its own. The group is formed when the first engine rank is attached. They cannot read weights in place,
    // and take only memory of this process. Without: the engine maps the trainer's memory.
    std::optional<NcclOptions> nccl = {};
    // A server that takes the weights out of a GPU's memory is given them in chunks of about so many bytes, of which its
    // workers hold two beside the weights; by vLLM's "ipc" one. 0: tensor by tensor. Unset: as the way there has it.
    std::optional<std::uint64_t> packed_bytes = {};
    // For how long this trainer may say nothing while it has an engine paused: then the engine gives it up.
    std::chrono::milliseconds lease{300'000};
    // The first version that is committed need not be above those that the engine has had: a run that counts anew.
    bool rollback = false;
    // The Hugging Face directory whose weights are pushed; empty: they are in none. Third-party servers whose own files are
    // nowhere here ("s3://…") want its tensors, and get its JSON files.
    std::filesystem::path pushed = {};
    // Whether a tensor of the trainer's is brought over; empty: all are, and an engine that can only take all refuses.
    std::function<bool(const std::string& name)> only = {};
};

// Of most ways to an engine.
inline std::uint64_t packed_bytes(const ConnectOptions& options) {
    return options.packed_bytes.value_or(std::uint64_t{256} << 20);
}

// What that engine's HTTP server is sent; `variable`: of the environment.
inline std::string key_for(const std::string& name, const ConnectOptions& options, const char* variable) {
    if (const auto own = options.keys.find(name); own != options.keys.end()) return own->second;
    return options.key.empty() ? http::key_from_environment(variable) : options.key;
}

// Throws BadInput: no such kind of engine.
void check_name(const std::string& name);

// Throws BadInput (no such kind of engine), TransportError (nothing answers there), DeadlineExceeded.
std::unique_ptr<Engine> connect(const std::string& name, Deadline deadline,
                                const ConnectOptions& options = {});

// The ranks of one engine, in their order.
std::vector<std::unique_ptr<Engine>> connect_ranks(const std::vector<std::string>& names, Deadline deadline,
                                                   const ConnectOptions& options = {});

}  // namespace tandem::engine
