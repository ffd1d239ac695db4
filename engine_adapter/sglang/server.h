// The HTTP routes of an SGLang server that a push uses, as calls. Every failure names the URL, the route as its phase,
// and what to do. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "common/deadline.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/http_api/http_api.h"

namespace tandem::engine {

// Our plug-in's, as servers are started with it (sync/python/tandem_sync/sglang).
inline constexpr const char* kPluginLoader = "tandem_sync.sglang.load";

// What an update that was answered has done to the weights.
enum class SglangUpdate : std::uint8_t {
    done,
    cached,   // done, but cached keys and values are of the weights from before
    refused,  // nothing: the weights are those from before
    unknown   // it failed on its way: nobody can tell what the weights are
};

struct SglangAnswer {
    SglangUpdate update = SglangUpdate::unknown;
    std::string phase;  // "POST /update_weights_from_disk"
    std::string why;    // where it is not done
};

class SglangServer : public HttpApi {
  public:
    // name: "sglang://HOST:PORT". key: empty for none.
    SglangServer(const std::string& name, const std::string& key);

    nlohmann::json model_info(Deadline deadline);  // an object
    std::string weight_version(Deadline deadline);
    // Paused, or ill; nothing: the server is too old to tell (before 0.5.21).
    std::optional<bool> takes_requests(Deadline deadline);

    // Ends the requests that it works on, or takes them back to its queue; new ones wait until resume.
    void pause(InFlight running, Deadline deadline);
    void resume(Deadline deadline);
    // Every rank has loaded the weights of that directory. Not paused: once the requests that it works on have ended,
    // which new ones wait for; in the same step it empties its prefix cache and takes the version.
    SglangAnswer update_from_disk(const std::filesystem::path& directory, const std::string& version,
                                  Deadline deadline);
    // The same of a paused server, which keeps its cache and its version.
    SglangAnswer update_from_disk(const std::filesystem::path& directory, Deadline deadline);
    // From here on both load files of that format, whatever the server was started with. Calls nothing.
    void load_as(const std::string& format) { load_format_ = format; }
    // Around updates from tensors, on servers from 0.5.21 on. A session that somebody left open is ended first.
    void begin_update(Deadline deadline);
    void end_update(Deadline deadline);
    // Every rank has loaded what `body` gives it (payload.h). The server is paused.
    SglangAnswer update_from_tensors(const std::string& body, Deadline deadline);
    // The ranks join PyTorch's process group that `group` describes, as far as they do before its first collective.
    void init_group(const nlohmann::json& group, Deadline deadline);
    void destroy_group(const std::string& name, Deadline deadline);
    // The same as update_from_tensors, of what rank 0 of that group sends meanwhile.
    SglangAnswer update_from_group(const std::string& body, Deadline deadline);
    // The same of what checkpoint-engine's sender says meanwhile, and as update_from_disk of a server that is not paused.
    SglangAnswer update_from_ipc(const std::string& body, Deadline deadline);
    // The same of the staged version in the server, by our plug-in, which is version `version`; in one step it empties its
    // prefix cache and takes the version. Not paused: once requests have ended, as update_from_disk.
    SglangAnswer load_staged(std::int64_t version, std::size_t ranks, Deadline deadline);
    // With our plug-in, for a successor of this process: a push has paused the server.
    void leave_note(bool paused_by_push, Deadline deadline);
    void set_weight_version(const std::string& version, Deadline deadline);
    // Returns when cached keys and values are gone, once no request runs.
    void flush_cache(Deadline deadline);

  private:
    SglangAnswer update_from_disk(nlohmann::json body, Deadline deadline);
    SglangAnswer update(const std::string& target, const std::string& body, Deadline deadline);

    std::string load_format_;  // empty: the server's own
};

}  // namespace tandem::engine
