// The HTTP routes of a vLLM server that a push uses, as calls. Most of them are there only in development mode. Every
// failure names the URL, the route as its phase, and what to do. One thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "common/deadline.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/http_api/http_api.h"

namespace tandem::engine {

struct VllmSleep {
    bool asleep = false;           // paused, and some of its memory may be given away
    bool without_weights = false;  // their memory is, or was since it was last awake
};

class VllmServer : public HttpApi {
  public:
    // name: "vllm://HOST:PORT". key: empty for none.
    VllmServer(const std::string& name, const std::string& key);

    bool is_paused(Deadline deadline);
    // Returns when no request is being worked on: those that run end first, or are ended, or stand still, and the prefix
    // cache is emptied.
    void pause(InFlight running, Deadline deadline);
    void resume(Deadline deadline);
    // By /metrics; awake where it keeps none.
    VllmSleep sleep(Deadline deadline);
    // Has what was given away under that tag ("weights", "kv_cache") in memory again. Returns whether nothing sleeps any
    // more: then it is resumed, too. Not for a server that is awake: it would be resumed.
    bool wake_up(const std::string& tag, Deadline deadline);
    // Every worker has loaded the weights of that directory.
    void reload_weights(const std::string& directory, Deadline deadline);
    // From here on reload_weights loads files of that format, whatever the server was started with. Calls nothing.
    void load_as(const std::string& format) { load_format_ = format; }
    // A method of every worker's; what each answered. Throws TransportError also where the answer has no list of them.
    nlohmann::json call_workers(const std::string& method, const nlohmann::json& kwargs, Deadline deadline);

    // The life of a weight-transfer backend. `info` is the backend's own.
    void init_weight_transfer(const nlohmann::json& info, Deadline deadline);
    void start_weight_update(Deadline deadline);
    void update_weights(const nlohmann::json& info, Deadline deadline);
    void finish_weight_update(const std::string& version, Deadline deadline);
    void finish_weight_update(Deadline deadline);      // it goes on saying the version that it says
    void shutdown_weight_transfer(Deadline deadline);  // the backend lets its trainer go
    std::int64_t world_size(Deadline deadline);        // workers, of all its replicas

    std::string weight_version(Deadline deadline);
    void set_weight_version(const std::string& version, Deadline deadline);
    // No request runs: cached keys and values are of weights from before.
    void reset_prefix_cache(Deadline deadline);

  private:
    std::string load_format_;  // empty: the server's own
};

}  // namespace tandem::engine
