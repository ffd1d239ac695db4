#include "common/resolve.h"

#include <netdb.h>
#include <strings.h>

#include <algorithm>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "common/error.h"
#include "common/thread.h"

namespace tandem {
namespace {

// A value on both ways: an exception would be destroyed by one thread while another still reads it.
struct Outcome {
    Addresses found;
    std::optional<std::string> refused;  // why
};

struct Lookups {
    std::mutex mutex;
    std::map<std::string, std::shared_future<Outcome>> under_way;  // by host
};

Lookups& lookups() {
    static auto* const kAll = new Lookups;  // a thread may outlive static objects
    return *kAll;
}

// Returns getaddrinfo's error, 0: none.
int ask_system(const std::string& host, int flags, Addresses& all) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
        const SocketAddress one(at->ai_addr, at->ai_addrlen);
        if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
    }
    return error;
}

// Who waits is told when it is under way no more: a call that follows asks anew.
void run_lookup(const std::string& host, const Lookup& lookup, std::promise<Outcome>& result) {
    Outcome outcome;
    try {
        outcome.found = lookup(host);
    } catch (const std::exception& error) {
        outcome.refused = error.what();
    }
    {
        const std::lock_guard lock(lookups().mutex);
        lookups().under_way.erase(host);
    }
    result.set_value(std::move(outcome));
}

// The one under way for this name, or a new one.
std::shared_future<Outcome> start_lookup(const std::string& host, const Lookup& lookup) {
    const std::lock_guard lock(lookups().mutex);
    auto& under_way = lookups().under_way;
    if (const auto found = under_way.find(host); found != under_way.end()) return found->second;
    std::promise<Outcome> promise;
    const auto result = promise.get_future().share();
    under_way.emplace(host, result);
    try {
        Thread("that looks " + host + " up", [host, lookup, promise = std::move(promise)]() mutable {
            run_lookup(host, lookup, promise);
        }).detach();
    } catch (...) {
        under_way.erase(host);  // the next one tries again
        throw;
    }
    return result;
}

}  // namespace

Addresses look_up(const std::string& host) {
    Addresses all;
    if (const int error = ask_system(host, 0, all); error != 0) throw BadInput(::gai_strerror(error));
    if (all.empty()) throw BadInput("it has no address");
    return all;
}

Addresses resolve(const std::string& host, int port, Deadline deadline, const Lookup& lookup) {
    Addresses all;
    if (::strcasecmp(host.c_str(), "localhost") == 0) {
        for (const char* loopback : {"127.0.0.1", "::1"}) ask_system(loopback, AI_NUMERICHOST, all);
    } else if (ask_system(host, AI_NUMERICHOST, all) != 0) {
        const std::shared_future<Outcome> result = start_lookup(host, lookup);
        if (result.wait_until(deadline.at()) != std::future_status::ready)
            throw DeadlineExceeded("the system's resolver", "look-up of '" + host + "'",
                                   "no answer before the deadline", true);
        const Outcome& outcome = result.get();
        if (outcome.refused) throw BadInput(*outcome.refused);
        all = outcome.found;
    }
    for (SocketAddress& one : all) one.set_port(port);
    return all;
}

}  // namespace tandem
