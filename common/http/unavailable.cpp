#include "common/http/unavailable.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace tandem::http {

Response ask_until_available(const std::function<Response()>& ask, Deadline deadline,
                             const std::atomic<bool>* stop) {
    constexpr std::chrono::milliseconds kLongest{200};  // of many clients at once, too
    std::chrono::milliseconds wait{10};                 // a pause may be as short
    while (true) {
        Response response = ask();
        if (response.status != kUnavailable || deadline.left() <= wait) return response;
        std::this_thread::sleep_for(wait);
        if (stop != nullptr && *stop) return response;
        wait = std::min(2 * wait, kLongest);
    }
}

}  // namespace tandem::http
