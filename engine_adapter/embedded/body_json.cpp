#include "engine_adapter/embedded/body_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/json_text.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

constexpr std::size_t kMostValues = std::size_t{4}
                                    << 20;  // of one body; each takes 16 bytes and more once parsed
constexpr int kDeepest = 32;
constexpr std::size_t kLongestKey = 64;  // of what is quoted

bool asks_for_nothing(const json& value) {
    return value.is_null() || value == false || value == 0 || value == "" ||
           (value.is_structured() && value.empty());
}

}  // namespace

json parse_body(const std::string& body) {
    if (body.empty()) return json::object();
    json parsed;
    try {
        parsed = parse_json_text(body, {.depth = kDeepest, .values = kMostValues});
    } catch (const BadInput& error) {
        throw BadInput(std::string("the body ") + error.what());
    }
    enforce(parsed.is_object(), "the body must be a JSON object");
    return parsed;
}

void check_keys(const json& body, std::initializer_list<std::string_view> known) {
    for (const auto& [key, value] : body.items()) {
        if (std::find(known.begin(), known.end(), key) != known.end() || asks_for_nothing(value)) continue;
        throw BadInput(fmt::format("{} is not supported by this engine", key.substr(0, kLongestKey)));
    }
}

const json& field(const json& body, const char* key) {
    static const json kNull;
    const auto found = body.find(key);
    return found == body.end() ? kNull : *found;
}

}  // namespace tandem::engine
