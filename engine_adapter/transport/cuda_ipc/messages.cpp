#include "engine_adapter/transport/cuda_ipc/messages.h"

#include <charconv>

#include "engine_adapter/channel/channel.h"
#include "engine_adapter/channel/messages.h"

namespace tandem::engine::messages {
namespace {

std::string to_hex(const IpcHandle& handle) {
    std::string text;
    for (const std::byte byte : handle) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
    return text;
}

IpcHandle handle_from_hex(const std::string& text) {
    IpcHandle handle{};
    if (text.size() != 2 * handle.size())
        throw MalformedMessage(fmt::format("a handle of {} hexadecimal digits, not 128", text.size()));
    for (std::size_t i = 0; i < handle.size(); ++i) {
        std::uint8_t value = 0;
        const char* begin = text.data() + 2 * i;
        const auto result = std::from_chars(begin, begin + 2, value, 16);
        if (result.ec != std::errc{} || result.ptr != begin + 2)
            throw MalformedMessage(fmt::format("'{}' is not hexadecimal", std::string(begin, 2)));
        handle[i] = std::byte{value};
    }
    return handle;
}

}  // namespace

nlohmann::json to_json(const RegionHandle& handle, const std::vector<RegionEvent>& written) {
    nlohmann::json events = nlohmann::json::array();
    for (const RegionEvent& event : written) {
        if (event.pid != 0) events.push_back({{"handle", to_hex(event.handle)}, {"pid", event.pid}});
    }
    return {{"handle", to_hex(handle.handle)},
            {"offset", handle.offset},
            {"allocation_bytes", handle.allocation_bytes},
            {"pid", handle.pid},
            {"address", handle.address},
            {"written", std::move(events)}};
}

RegionHandle region_handle_from_json(const nlohmann::json& json) {
    if (!json.is_object()) throw MalformedMessage("a region of a GPU that is not a JSON object");
    return {handle_from_hex(string_field(json, "handle")),
            static_cast<std::uint64_t>(integer_field(json, "offset", 0)),
            static_cast<std::uint64_t>(integer_field(json, "allocation_bytes", 1)),
            integer_field(json, "pid", 1), static_cast<std::uint64_t>(integer_field(json, "address", 0))};
}

std::vector<RegionEvent> region_events_from_json(const nlohmann::json& json) {
    const auto found = json.find("written");
    if (found == json.end()) return {};
    if (!found->is_array()) throw MalformedMessage("the events of a region that are not a JSON array");
    std::vector<RegionEvent> events;
    for (const nlohmann::json& event : *found) {
        if (!event.is_object()) throw MalformedMessage("an event of a region that is not a JSON object");
        events.push_back({handle_from_hex(string_field(event, "handle")), integer_field(event, "pid", 1)});
    }
    return events;
}

}  // namespace tandem::engine::messages
