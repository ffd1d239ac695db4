#include "tests/support/kernel_mutations.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "tests/support/kernel_races.h"

namespace fibers {
namespace {

struct Mutation {
    LeftOut what = LeftOut::nothing;
    std::size_t number = 0;           // of the place, in the order in which kernels came by
    std::vector<std::string> places;  // so far
};

thread_local Mutation mutation;

bool reports(const std::function<void()>& run) {
    try {
        run();
    } catch (const std::exception&) {
        return true;
    }
    return false;
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

Survivors leave_out(LeftOut what, const std::function<void()>& run) {
    Survivors result;
    for (;; ++result.places) {
        mutation = {what, result.places, {}};
        const bool reported = reports(run);
        const Mutation done = std::exchange(mutation, {});
        if (done.places.size() <= result.places) return result;
        if (!reported) result.survived.push_back(done.places[result.places]);
    }
}

}  // namespace fibers
