#include "sync/session/announce.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "common/error.h"
#include "common/json_text.h"

namespace tandem::sync {

std::string to_text(const EngineLayout& layout) {
    nlohmann::json ranks = nlohmann::json::array();
    for (const auto& tensors : layout) {
        nlohmann::json list = nlohmann::json::array();
        for (const engine::TensorInfo& tensor : tensors) {
            nlohmann::json parts = nlohmann::json::array();
            for (const engine::Part& part : tensor.parts)
                parts.push_back({part.name, part.start, part.size, part.offset, part.stride});
            list.push_back({tensor.name, tensor.shape, static_cast<int>(tensor.dtype), std::move(parts)});
        }
        ranks.push_back(std::move(list));
    }
    return ranks.dump();
}

EngineLayout engine_layout_from_text(const std::string& text) {
    EngineLayout layout;
    for (const auto& list : parse_json_text(text, any_values(text))) {
        auto& tensors = layout.emplace_back();
        for (const auto& t : list) {
            engine::TensorInfo& tensor = tensors.emplace_back();
            tensor.name = t[0].get<std::string>();
            tensor.shape = t[1].get<Shape>();
            tensor.dtype = static_cast<DType>(t[2].get<int>());
            for (const auto& p : t[3]) {
                tensor.parts.push_back({p[0].get<std::string>(), p[1].get<Shape>(), p[2].get<Shape>(),
                                        p[3].get<std::int64_t>(), p[4].get<Shape>()});
            }
        }
    }
    return layout;
}

std::string to_text(const WeightSource& source) {
    nlohmann::json groups = nlohmann::json::array();
    nlohmann::json tensors = nlohmann::json::array();
    for (const NamedTensor& named : source.tensors()) {
        const DTensor& tensor = named.tensor;
        nlohmann::json group{tensor.mesh().ranks(), tensor.mesh().sizes(), to_string(tensor.placements())};
        const auto known = std::find(groups.begin(), groups.end(), group);
        const auto index = known - groups.begin();
        if (known == groups.end()) groups.push_back(std::move(group));
        tensors.push_back({named.name, tensor.shape(), static_cast<int>(tensor.dtype()), index});
    }
    return nlohmann::json{{"groups", std::move(groups)}, {"tensors", std::move(tensors)}}.dump();
}

SourceLayout join_sources(const std::vector<std::string>& texts) {
    SourceLayout layout;
    layout.world_size = static_cast<int>(texts.size());
    std::unordered_map<std::string, std::size_t> known;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        const auto announced = parse_json_text(texts[rank], any_values(texts[rank]));
        std::vector<int> group_of;  // this rank's numbers → the layout's
        for (const auto& g : announced["groups"]) {
            const SourceGroup group{g[0].get<std::vector<int>>(), g[1].get<std::vector<int>>(),
                                    parse_placements(g[2].get<std::string>())};
            const auto found = std::find(layout.groups.begin(), layout.groups.end(), group);
            group_of.push_back(static_cast<int>(found - layout.groups.begin()));
            if (found == layout.groups.end()) layout.groups.push_back(group);
        }
        for (const auto& t : announced["tensors"]) {
            const SourceTensor tensor{
                t[0].get<std::string>(), t[1].get<Shape>(), static_cast<DType>(t[2].get<int>()), {}};
            const auto [at, is_new] = known.emplace(tensor.name, layout.tensors.size());
            if (is_new) layout.tensors.push_back(tensor);
            SourceTensor& joined = layout.tensors[at->second];
            enforce(joined.shape == tensor.shape && joined.dtype == tensor.dtype,
                    "tensor '{}' is {} {} on rank {} and {} {} on another", tensor.name,
                    dtype_name(tensor.dtype), to_string(tensor.shape), rank, dtype_name(joined.dtype),
                    to_string(joined.shape));
            const int group = group_of[t[3].get<std::size_t>()];
            if (std::find(joined.groups.begin(), joined.groups.end(), group) == joined.groups.end())
                joined.groups.push_back(group);
        }
    }
    return layout;
}

}  // namespace tandem::sync
