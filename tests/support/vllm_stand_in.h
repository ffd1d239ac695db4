// The routes of a vLLM server that a push uses, for tests without vLLM: holds callers to their order and form, fails
// where it is told to, and really reads the directory that it is told to load.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/http/server.h"

namespace tandem::test {

// A weight-transfer backend in the server's only worker. Called with the server's lock held.
class VllmWorkerPlugin {
  public:
    virtual ~VllmWorkerPlugin() = default;
    virtual void init() = 0;
    virtual std::string state(const std::string* note) = 0;  // JSON
    virtual void start() = 0;
    // The model's tensors after an update to that version; nullopt: it failed, as its state tells.
    virtual std::optional<std::map<std::string, std::string>> update(std::int64_t version) = 0;
    virtual void finish() = 0;
};

class VllmStandIn {
  public:
    struct Options {
        std::string model;  // directory; also what it holds at first
        std::string listen = "127.0.0.1:0";
        std::string dtype = "float32";  // that it computes in
        std::string device = "cuda";    // and where
        std::string load_format = "auto";
        std::string root = {};          // the model's name, as it says it; empty: the directory
        std::string folder = {};        // of its own, as it says it
        std::string quantization = {};  // of its weights; empty: none
        std::string api_key = {};       // guards /v1 alone, as vLLM's does
        std::string version = "0.32.0";
        bool refuses_paused = false;  // what arrives in a pause other than "keep": 503, as since 0.33
        bool development_mode = true;
        // By route, "/pause": answers with that status instead; 0: never answers.
        std::map<std::string, int> fails = {};
        std::chrono::milliseconds delay{0};  // of every answer
        bool sleep_mode = false;             // --enable-sleep-mode
        bool statistics = true;              // false: --disable-log-stats
        bool keeps_weights = false;          // says that it loaded, and goes on with what it held
        // What is generated after a prompt by weights (name → bytes): tokens and their log-probs.
        std::function<std::pair<std::vector<std::int32_t>, std::vector<double>>(
            const std::map<std::string, std::string>& weights, const std::vector<std::int32_t>& prompt,
            std::int64_t length)>
            generates = {};
        VllmWorkerPlugin* plugin = nullptr;  // started with the backend "tandem"; borrowed
        std::string backend = {};            // started with another, whose routes are in more_routes
        std::function<void(VllmStandIn&)> more_routes = {};
    };
    explicit VllmStandIn(Options options);
    ~VllmStandIn();

    std::string url() const;  // "vllm://127.0.0.1:…"
    std::string model() const { return options_.model; }
    std::string address() const { return url().substr(std::string("vllm://").size()); }
    void set_failure(const std::string& route, int status);
    void mend() {
        const std::lock_guard lock(mutex_);
        options_.fails.clear();
    }

    // What it holds now: name → bytes.
    std::map<std::string, std::string> weights() const;
    std::string weight_version() const;
    bool paused() const;
    std::vector<std::string> pause_modes() const {
        const std::lock_guard lock(mutex_);
        return pause_modes_;
    }
    std::set<std::string> asleep() const;  // "weights", "kv_cache"
    void set_paused(bool paused);
    // Calls that vLLM would not have forgiven, or would have answered with wrong weights.
    std::vector<std::string> violations() const;
    std::set<std::string> directories() const;  // that it was told to load
    std::vector<std::string> calls() const;     // "POST /pause", in their order

    // For Options::more_routes; what a route is answered by may use what follows.
    using Respond = std::function<std::pair<int, std::string>(const http::Request&)>;
    void route(const std::string& method, const std::string& path, Respond respond,
               http::Access access = http::Access::open);
    const std::map<std::string, std::string>& held_weights() const { return weights_; }
    const std::string& held_version() const { return version_; }
    bool is_paused() const { return paused_; }
    void violate(const std::string& what) { violations_.push_back(what); }
    void told_to_load() {
        if (!paused_) violate("told to load while it runs");
        if (asleep_.count("weights") > 0) violate("told to load while its weights are not in memory");
    }
    void asked_to_generate() {
        if (!asleep_.empty()) violate("asked to generate while it sleeps");
    }
    // What vLLM answers then.
    std::optional<std::pair<int, std::string>> refusal_of_a_pause() const;
    void hold_version(const std::string& version) { version_ = version; }
    // The tensors of these names were loaded.
    void hold(const std::map<std::string, std::string>& weights) {
        for (const auto& [name, bytes] : weights) weights_[name] = bytes;
        stale_cache_ = stale_cache_ || !weights.empty();
    }

  private:
    std::pair<int, std::string> call_workers(const http::Request& request);
    std::pair<int, std::string> load(const http::Request& request);
    std::pair<int, std::string> complete(const http::Request& request);
    void route_plugin();
    void route_sleep();
    std::pair<int, std::string> wake_up(const std::string& query);
    std::pair<int, std::string> worker_state(const std::string& kwargs);
    std::pair<int, std::string> update(const http::Request& request);

    mutable std::mutex mutex_;
    Options options_;
    std::map<std::string, std::string> weights_;
    std::string version_ = "default";
    bool paused_ = false;
    bool takes_paused_ = false;  // the pause is one of "keep", or of a sleep
    std::set<std::string> asleep_;
    std::string sleep_state_ = "awake";  // as /metrics says; a part that is woken changes nothing
    bool stale_cache_ = false;
    bool update_open_ = false;
    std::string load_format_;            // of its workers; what it says of itself is what it was started with
    std::set<std::string> directories_;  // loaded before
    std::vector<std::string> violations_;
    std::vector<std::string> calls_;
    std::vector<std::string> pause_modes_;
    std::vector<http::Responder> never_;
    std::vector<std::jthread> late_;
    http::Server server_;  // last: nothing is called once it is gone
};

// The tensors of a directory as bytes.
std::map<std::string, std::string> bytes_of_directory(const std::string& directory);

}  // namespace tandem::test
