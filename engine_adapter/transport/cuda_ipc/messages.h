// A region of a GPU's memory in an attach message (channel/messages.h):
//
//   {"handle": 128 hexadecimal digits, "offset", "allocation_bytes", "pid", "address",
//    "written": [{"handle", "pid"}]}
#pragma once

#include <nlohmann/json.hpp>

#include "engine_adapter/region.h"

namespace tandem::engine::messages {

nlohmann::json to_json(const RegionHandle& handle, const std::vector<RegionEvent>& written = {});
// Throw MalformedMessage.
RegionHandle region_handle_from_json(const nlohmann::json& json);
std::vector<RegionEvent> region_events_from_json(const nlohmann::json& json);

}  // namespace tandem::engine::messages
