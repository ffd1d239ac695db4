// The routes of the stand-in for vLLM that give memory away and take it back, as vLLM 0.32 answers them: the scheduler is
// paused with the first of it, and resumed with the last.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/vllm_stand_in.h"

namespace tandem::test {

using nlohmann::json;

namespace {

// "tags" of "tags=weights&tags=kv_cache", "level" of "level=2&mode=wait": all values.
std::vector<std::string> values_of(std::string query, const std::string& name) {
    std::vector<std::string> values;
    while (!query.empty()) {
        const std::string one = query.substr(0, query.find('&'));
        query.erase(0, one.size() + 1);
        if (one.starts_with(name + "=")) values.push_back(one.substr(name.size() + 1));
    }
    return values;
}

}  // namespace

void VllmStandIn::route_sleep() {
    if (options_.statistics) {
        route("GET", "/metrics", [this](const auto&) {
            std::string text = "# TYPE vllm:engine_sleep_state gauge\n";
            for (const std::string state : {"awake", "weights_offloaded", "discard_all"})
                text += "vllm:engine_sleep_state{engine=\"0\",model_name=\"model\",sleep_state=\"" + state +
                        "\"} " + (state == sleep_state_ ? "1.0" : "0.0") + "\n";
            return std::pair{200, text};
        });
    }
    if (!options_.development_mode) return;
    route("POST", "/sleep", [this](const http::Request& request) {
        const auto level = values_of(request.query, "level");
        if (!options_.sleep_mode) violate("told to sleep, and was not started for it");
        if (values_of(request.query, "mode") != std::vector<std::string>{"wait"})
            violate("its requests were ended to let it sleep");
        if (!paused_) takes_paused_ = true;
        paused_ = true;
        asleep_ = {"weights", "kv_cache"};
        sleep_state_ = level == std::vector<std::string>{"2"} ? "discard_all" : "weights_offloaded";
        if (sleep_state_ == "discard_all") {
            for (auto& [name, bytes] : weights_) std::fill(bytes.begin(), bytes.end(), '\0');
        }
        return std::pair{200, json{{"status", "sleeping"}}.dump()};
    });
    route("POST", "/release_kv_cache_memory", [this](const auto&) {
        if (!options_.sleep_mode) violate("told to release its cache, and was not started for it");
        if (!paused_) return std::pair{500, json{{"error", "requires a completed pause first"}}.dump()};
        if (!asleep_.empty())
            return std::pair{500, json{{"error", "requires all executor memory to be resident"}}.dump()};
        asleep_ = {"kv_cache"};
        sleep_state_ = "";
        return std::pair{200, json{{"status", "kv_cache_released"}}.dump()};
    });
    route("POST", "/wake_up", [this](const http::Request& request) { return wake_up(request.query); });
    route("GET", "/is_sleeping", [this](const auto&) {
        return std::pair{200, json{{"is_sleeping", paused_ || !asleep_.empty()}}.dump()};
    });
}

// A tag that does not sleep makes it do nothing; where nothing sleeps (any more) it goes on.
std::pair<int, std::string> VllmStandIn::wake_up(const std::string& query) {
    const std::vector<std::string> tags = values_of(query, "tags");
    const bool known =
        std::all_of(tags.begin(), tags.end(), [&](const auto& tag) { return asleep_.count(tag) > 0; });
    if (tags.empty()) asleep_.clear();
    for (const std::string& tag : tags) {
        if (known) asleep_.erase(tag);
    }
    if (asleep_.empty()) {
        if (version_.starts_with("loading")) violate("woken while it says that it loads");
        if (stale_cache_) violate("woken with a prefix cache of weights from before");
        paused_ = false;
        sleep_state_ = "awake";
    }
    return {200, json{{"status", asleep_.empty() ? "awake" : "sleeping"}}.dump()};
}

}  // namespace tandem::test
