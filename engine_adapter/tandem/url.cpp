#include "engine_adapter/tandem/url.h"

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "common/error.h"

namespace tandem::engine {
namespace {

constexpr int kMostConnections = 64;

int parse_connections(const std::string& name, std::string_view value) {
    int count = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
    enforce(
        error == std::errc{} && end == value.data() + value.size() && count >= 1 && count <= kMostConnections,
        "'{}': connections={} is not a number from 1 to {}", name, value, kMostConnections);
    return count;
}

double parse_pace(const std::string& name, std::string_view value) {
    constexpr std::array<std::pair<std::string_view, double>, 3> kUnits{
        {{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}}};
    for (const auto& [unit, factor] : kUnits) {
        if (!value.ends_with(unit)) continue;
        const std::string_view digits = value.substr(0, value.size() - unit.size());
        double number = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        if (error == std::errc{} && end == digits.data() + digits.size() && number > 0 &&
            number * factor < 1e15)
            return number * factor;
    }
    throw BadInput(fmt::format("'{}': pace={} is not bytes a second like 500MB (KB, MB, GB)", name, value));
}

}  // namespace

EngineUrl parse_engine_url(const std::string& name) {
    const auto question = name.find('?');
    EngineUrl url;
    url.base = name.substr(0, question);
    url.options = question != std::string::npos;
    std::string_view rest = question == std::string::npos ? "" : std::string_view(name).substr(question + 1);
    while (!rest.empty()) {
        const auto end = rest.find('&');
        const std::string_view option = rest.substr(0, end);
        rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
        const auto equals = option.find('=');
        const std::string_view key = option.substr(0, equals);
        const std::string_view value = equals == std::string_view::npos ? "" : option.substr(equals + 1);
        if (key == "transport") {
            enforce(value == "tcp" || value == "auto", "'{}': transport={}; there are auto, tcp", name,
                    value);
            url.tcp = value == "tcp";
        } else if (key == "connections") {
            url.tcp_options.connections = parse_connections(name, value);
        } else if (key == "pace") {
            url.tcp_options.pace_bytes_per_s = parse_pace(name, value);
        } else if (key == "unauthenticated") {
            enforce(value == "1" || value == "0", "'{}': unauthenticated={}; there are 0, 1", name, value);
            url.tcp_options.unauthenticated = value == "1";
        } else {
            throw BadInput(fmt::format(
                "'{}': no option '{}'; there are transport, connections, pace, unauthenticated", name, key));
        }
    }
    return url;
}

}  // namespace tandem::engine
