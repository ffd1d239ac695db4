#include "common/rare_warnings.h"

#include "common/log.h"

namespace tandem {

void RareWarnings::say(std::string_view what) {
    const auto now = std::chrono::steady_clock::now();
    if (last_ && now - *last_ < std::chrono::seconds(1)) {
        ++left_out_;
        return;
    }
    log_warn("{}: {}{}", who_, what, left_out_ == 0 ? "" : fmt::format(" ({} more before it)", left_out_));
    last_ = now;
    left_out_ = 0;
}

}  // namespace tandem
