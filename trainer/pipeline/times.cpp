#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "common/error.h"
#include "common/json_text.h"
#include "trainer/pipeline/simulate.h"

namespace tandem::pipeline {
namespace {

using nlohmann::json;

// Reads one object; `kinds`: what the stage runs.
class StageReader {
  public:
    StageReader(const json& object, std::string file, std::string where, const std::set<ActionKind>& kinds)
        : object_(object), file_(std::move(file)), where_(std::move(where)), kinds_(kinds) {}

    StageTimes read() const {
        if (!object_.is_object()) refuse("", R"(must be an object, as in {"F": 3, "I": 4, "W": 2})");
        for (const auto& [key, value] : object_.items()) {
            if (key != "F" && key != "I" && key != "W" && key != "B")
                refuse(key, "is unknown; known: F, I, W, B");
            const bool good = value.is_number() && std::isfinite(value.get<double>()) &&
                              value.get<double>() >= 0 && value.get<double>() <= kMost;
            if (!good) refuse(key, fmt::format("must be a number from 0 to {:.0f}", kMost));
        }
        StageTimes times;
        times.forward = get("F", ActionKind::forward);
        times.input = get("I", ActionKind::backward_input);
        times.weight = get("W", ActionKind::backward_weight);
        const bool is_sum = !object_.contains("B") && object_.contains("I") && object_.contains("W");
        times.backward = is_sum ? times.input + times.weight : get("B", ActionKind::full_backward);
        return times;
    }

  private:
    static constexpr double kMost = 1e9;

    double get(const char* key, ActionKind kind) const {
        if (object_.contains(key)) return object_[key].get<double>();
        if (kinds_.contains(kind)) refuse(key, "is missing, and this schedule needs it");
        return 0;
    }
    [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
        throw ConfigError(file_, where_ + (where_.empty() || key.empty() ? "" : ".") + key, what);
    }

    const json& object_;
    std::string file_, where_;
    const std::set<ActionKind>& kinds_;
};

}  // namespace

std::vector<StageTimes> read_times(std::string_view text, const std::string& file, const Schedule& compute) {
    const json document = parse_json_file(text, file);
    std::vector<std::set<ActionKind>> kinds(compute.rank_of_stage.size());
    for (const ActionList& list : compute.ranks)
        for (const Action& action : list)
            for (const Action& part : parts_of(action))
                kinds[static_cast<std::size_t>(part.stage)].insert(part.kind);
    if (document.is_array() && document.size() != kinds.size())
        throw ConfigError(
            file, "",
            fmt::format("has times of {} stages, where the schedule has {}", document.size(), kinds.size()));
    std::vector<StageTimes> times;
    for (std::size_t stage = 0; stage < kinds.size(); ++stage) {
        const bool each = document.is_array();
        times.push_back(StageReader(each ? document[stage] : document, file,
                                    each ? fmt::format("stage {}", stage) : "", kinds[stage])
                            .read());
    }
    return times;
}

}  // namespace tandem::pipeline
