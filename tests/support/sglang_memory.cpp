// The routes of the stand-in for SGLang that release memory and take it back, by tags. What was in it is gone.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/sglang_stand_in.h"

namespace tandem::test {

using nlohmann::json;

void SglangStandIn::add_memory_routes() {
    const std::vector<Field> fields{{"tags", "strings", true}};
    route(
        "POST", "/release_memory_occupation", fields,
        [this](const json& body, const std::string&) {
            if (!options_.memory_saver) return Answer{200, ""};
            if (running_ + stray_ > 0) {  // its scheduler asserts that it is idle
                violate("told to release memory before it was idle");
                dead_ = true;
                return Answer{};
            }
            for (const std::string tag : body["tags"]) {
                if (!asleep_.insert(tag).second) violate("told to release its " + tag + " twice");
                if (tag != "weights") continue;
                for (auto& [name, bytes] : weights_) std::fill(bytes.begin(), bytes.end(), '\0');
            }
            return Answer{200, ""};
        },
        http::Access::admin);
    route(
        "POST", "/resume_memory_occupation", fields,
        [this](const json& body, const std::string&) {
            for (const std::string tag : body["tags"]) {
                if (options_.memory_saver && asleep_.erase(tag) == 0)
                    violate("told to take back its " + tag + ", which was not released");
            }
            return Answer{200, ""};
        },
        http::Access::admin);
}

}  // namespace tandem::test
