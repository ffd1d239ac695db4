// The routes of an SGLang server that a push uses, for tests without SGLang, in both generations: before 0.5.21, and from
// then on with weight-update sessions. Holds callers to order, form and keys, answers failures in SGLang's words, and
// really loads what it is told to load. Where SGLang would have killed its own process, it is dead: it answers nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/http/server.h"

namespace tandem::test {

// A rank that runs our plug-in (sglang_plugin_stand_in.h).
class SglangRankPlugin {
  public:
    virtual ~SglangRankPlugin() = default;
    virtual nlohmann::json state() const = 0;
    // The weights of the staged version. Throws std::invalid_argument: nothing was loaded; std::runtime_error: parts were.
    virtual std::map<std::string, std::string> load(std::int64_t version) = 0;
    virtual bool whole() const = 0;
    virtual void leave_note(int note) = 0;
};

class SglangStandIn {
  public:
    struct Options {
        std::string model;           // directory; also what it holds at first
        std::string dtype = "auto";  // that it was told to compute in
        std::string load_format = "auto";
        std::string started_with = {};  // as it says it; empty: the directory
        std::string quantization = {};  // of its weights; empty: none
        std::string version = "0.5.23";
        std::string api_key = {};
        std::string admin_api_key = {};
        SglangRankPlugin* plugin = nullptr;  // ours, which it was started with
        int tp = 1;                          // tensor-parallel ranks
        std::string tokenizer = {};          // empty: the model's directory
        bool update_routes = true;           // false: as of its Rust server
        bool memory_saver = true;            // it releases memory by tags
        // By route: answers with that status instead; 0: never answers.
        std::map<std::string, int> fails = {};
        // By route: answers {"success": false} with that message, as a step within it that failed.
        std::map<std::string, std::string> refuses = {};
        std::chrono::milliseconds delay{0};  // of every answer
        std::function<void(SglangStandIn&)> more_routes = {};
        std::string device = "cpu";
        // The bytes of a tensor in a GPU's memory, from rebuild_cuda_tensor's arguments.
        std::function<std::string(const nlohmann::json& arguments, std::size_t bytes)> open_cuda = {};
    };
    explicit SglangStandIn(Options options);
    ~SglangStandIn();

    std::string url() const;  // "sglang://127.0.0.1:…"
    void set_failure(const std::string& route, int status);
    void set_refusal(const std::string& route, const std::string& message);
    void mend();

    // Requests that it works on: updates of an unpaused server wait for their end.
    void set_running(int requests);
    int running() const {
        const std::lock_guard lock(mutex_);
        return running_;
    }
    // Requests that its lock does not know of, as a second tokenizer's: flushes fail while they are there.
    void set_stray(int requests);

    std::map<std::string, std::string> weights() const;  // name → bytes
    std::string weight_version() const;
    bool paused() const;
    void set_paused(bool paused);
    bool dead() const;
    // Calls that SGLang would not have forgiven, or after which it would have answered with mixed weights.
    std::vector<std::string> violations() const;
    std::vector<std::string> calls() const;  // "POST /pause_generation", in their order

    // For Options::more_routes; what a route is answered by may use held_weights, held_version and violate.
    using Answer = std::pair<int, std::string>;
    using Respond = std::function<Answer(const nlohmann::json& body, const std::string& query)>;
    // A field of a route's struct.
    struct Field {
        std::string name;
        // "string", "boolean", "number", "strings", "any"; in brackets: the values it may have
        std::string type;
        bool required = false;
    };
    void route(const std::string& method, const std::string& path, std::vector<Field> fields, Respond respond,
               http::Access access);
    const std::map<std::string, std::string>& held_weights() const { return weights_; }
    const std::string& held_version() const { return version_; }
    const std::string& version() const { return options_.version; }
    bool asleep(const std::string& tag) const { return asleep_.contains(tag); }
    void violate(const std::string& what) { violations_.push_back(what); }
    bool sessions() const;  // its updates from tensors are begun and ended
    bool in_session() const { return session_; }
    bool held_back() const { return paused_; }
    // Of weights that it has; its cache is then of others.
    void hold_some(const std::map<std::string, std::string>& tensors);
    // The end of an update in one step: its cache and its version as the body says. The answer.
    Answer flush_and_take(const nlohmann::json& body);

  private:
    const std::string& started_with() const {
        return options_.started_with.empty() ? options_.model : options_.started_with;
    }
    static constexpr const char* kNotFlushed =
        "Weights were updated, but the cache was not flushed because requests are still running or queued. "
        "Retract or finish them, then call /flush_cache.";
    static Answer success(const std::string& message);
    static Answer failure(const std::string& message);
    void add_info_routes();
    void add_update_routes();
    Answer info() const;
    Answer load(const nlohmann::json& body);
    Answer load_directory(const std::string& directory);
    void add_tensor_routes();
    Answer load_tensors(const nlohmann::json& body);
    Answer load_staged(const nlohmann::json& body);
    Answer flush(const nlohmann::json& body, Answer answer);
    void add_memory_routes();
    void run_waiting();
    // A body that its struct does not take: SGLang's answer. Empty: it does.
    std::string schema_error(const std::string& path, const std::vector<Field>& fields,
                             const nlohmann::json& body);

    mutable std::mutex mutex_;
    Options options_;
    std::map<std::string, std::string> weights_;
    std::string version_ = "default";
    std::string model_path_;
    bool paused_ = false;
    bool stopped_ = false;  // its ranks serve nothing, by themselves
    bool dead_ = false;
    bool stale_cache_ = false;
    bool session_ = false;          // an update was begun, and not ended
    std::set<std::string> asleep_;  // tags of memory that was released
    int running_ = 0;
    int retracted_ = 0;  // by a pause: they run again when it goes on
    int stray_ = 0;
    std::vector<std::function<void()>> waiting_;  // updates, for the end of the requests
    std::vector<std::string> violations_;
    std::vector<std::string> calls_;
    std::vector<http::Responder> never_;
    std::vector<std::jthread> late_;
    http::Server server_;  // last: nothing is called once it is gone
};

}  // namespace tandem::test
