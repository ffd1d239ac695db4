#include "engine_adapter/http_api/weight_version.h"

#include <algorithm>
#include <charconv>
#include <exception>

#include "common/error.h"

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

}  // namespace tandem::engine
