#include "engine_adapter/http_api/weight_version.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <string>

#include "common/error.h"
#include "common/log.h"

namespace tandem::engine {

std::int64_t number_of(std::string_view version) {
    if (version.starts_with(kLoading))
        return std::max<std::int64_t>(0, number_of(version.substr(kLoading.size())) - 1);
    std::int64_t number = 0;
    const char* end = version.data() + version.size();
    const auto parsed = std::from_chars(version.data(), end, number);
    return parsed.ec == std::errc() && parsed.ptr == end && number > 0 ? number : 0;
}

void resume_as_before(const std::function<void()>& tell_version, const std::function<void()>& resume) {
    std::exception_ptr untold;
    try {
        tell_version();
    } catch (const Error&) {
        untold = std::current_exception();
    }
    resume();
    if (untold) std::rethrow_exception(untold);
}

void require_said(const std::string& server, const std::string& says, std::int64_t version) {
    if (says == std::to_string(version)) return;
    throw ProtocolError(fmt::format("{} says that its weights are of version {} after it was told {}", server,
                                    says, version));
}

void log_left_paused(const std::string& server, const std::string& reason) {
    log_error(
        "{} is left paused: it was told to load weights and has not said that it did ({}); the next push "
        "heals it, or, where it has ended, one after it was started again",
        server, reason);
}

}  // namespace tandem::engine
