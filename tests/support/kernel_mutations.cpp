#include "tests/support/kernel_mutations.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "tests/support/kernel_places.h"
#include "tests/support/kernel_races.h"

namespace fibers {
namespace {

struct Mutation {
    LeftOut what = LeftOut::nothing;
    std::size_t number = 0;           // of the place, in the order in which kernels came by
    std::vector<std::string> places;  // so far
};

thread_local Mutation mutation;

std::exception_ptr report_of(const std::function<void()>& run) {
    try {
        run();
    } catch (const std::exception&) {
        return std::current_exception();
    }
    return nullptr;
}

}  // namespace

bool left_out(LeftOut what, const void* site) {
    if (mutation.what != what) return false;
    // By its name: compilers of the host may make several places of one.
    const std::string& place = races::place_of(site);
    const auto found = std::find(mutation.places.begin(), mutation.places.end(), place);
    const auto number = static_cast<std::size_t>(found - mutation.places.begin());
    if (found == mutation.places.end()) mutation.places.push_back(place);
    return number == mutation.number;
}

bool leaving_out() {
    return mutation.what != LeftOut::nothing;
}

Survivors leave_out(LeftOut what, const std::function<void()>& run) {
    Survivors result;
    for (;; ++result.places) {
        mutation = {what, result.places, {}};
        const std::exception_ptr report = report_of(run);
        const Mutation done = std::exchange(mutation, {});
        if (done.places.size() <= result.places) {  // nothing was left out
            if (report) std::rethrow_exception(report);
            return result;
        }
        if (!report) result.survived.push_back(done.places[result.places]);
    }
}

}  // namespace fibers
