#include "trainer/reward/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>

#include "common/error.h"

namespace tandem::trainer {
namespace {

constexpr std::uint32_t kMatchLimit = 1'000'000;  // steps of one match
constexpr std::uint32_t kHeapLimitKib = 16 << 10;

template <auto free>
struct Free {
    template <typename T>
    void operator()(T* value) const {
        free(value);
    }
};

const unsigned char* units(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

struct Pattern::Impl {
    std::unique_ptr<pcre2_code, Free<pcre2_code_free>> code;
    std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> data;
    std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> limits;
    std::uint32_t groups = 0;
};

Pattern::Pattern(const std::string& pattern, bool ignore_case) : impl_(std::make_unique<Impl>()) {
    enforce(!pattern.empty(), "is empty; reward regex needs a pattern");
    int error = 0;
    std::size_t place = 0;
    const std::uint32_t options = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | (ignore_case ? PCRE2_CASELESS : 0);
    impl_->code.reset(pcre2_compile(units(pattern), pattern.size(), options, &error, &place, nullptr));
    if (impl_->code == nullptr) {
        unsigned char message[256];
        pcre2_get_error_message(error, message, sizeof(message));
        throw BadInput(fmt::format("'{}' is not a regular expression: {} at offset {}", pattern,
                                   reinterpret_cast<const char*>(message), place));
    }
    pcre2_pattern_info(impl_->code.get(), PCRE2_INFO_CAPTURECOUNT, &impl_->groups);
    impl_->data.reset(pcre2_match_data_create_from_pattern(impl_->code.get(), nullptr));
    impl_->limits.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(impl_->limits.get(), kMatchLimit);
    pcre2_set_heap_limit(impl_->limits.get(), kHeapLimitKib);
}

Pattern::~Pattern() = default;

bool Pattern::captures() const {
    return impl_->groups > 0;
}

std::optional<std::string> Pattern::last_match(std::string_view text) const {
    std::optional<std::string> last;
    const std::size_t group = captures() ? 1 : 0;
    const std::size_t* ends = pcre2_get_ovector_pointer(impl_->data.get());
    for (std::size_t start = 0; start <= text.size();) {
        const int found = pcre2_match(impl_->code.get(), units(text), text.size(), start, 0,
                                      impl_->data.get(), impl_->limits.get());
        if (found < 0) break;  // no match, or past a limit
        const bool taken = found > static_cast<int>(group) && ends[2 * group] != PCRE2_UNSET;
        last = taken ? std::string(text.substr(ends[2 * group], ends[2 * group + 1] - ends[2 * group])) : "";
        start = ends[1] > start ? ends[1] : start + 1;
    }
    return last;
}

}  // namespace tandem::trainer
