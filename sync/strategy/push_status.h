// Whether a push has failed so far, and how.
#pragma once

#include <string>
#include <utility>

namespace tandem::sync {

struct PushStatus {
    bool failed = false;  // here or, after an exchange, on any rank
    bool failed_here = false;
    std::string phase;  // of the failure here
    std::string peer;
    std::string message;
    int bucket = -1;

    void fail(std::string at_phase, std::string with_peer, int at_bucket, const std::string& what) {
        failed = true;
        if (failed_here) return;  // the first counts
        failed_here = true;
        phase = std::move(at_phase);
        peer = std::move(with_peer);
        bucket = at_bucket;
        message = what;
    }
};

}  // namespace tandem::sync
