#include "common/http/resolve.h"

#include <boost/asio/io_context.hpp>
#include <future>
#include <map>
#include <mutex>

#include "common/thread.h"

#include "common/host_port.h"

namespace tandem::http {
namespace {

namespace asio = boost::asio;

struct Lookups {
    std::mutex mutex;
    std::map<std::string, std::shared_future<Addresses>> under_way;  // host:port
};

Lookups& lookups() {
    static auto* const kAll = new Lookups;  // a thread may outlive static objects
    return *kAll;
}

}  // namespace

Addresses look_up(const std::string& host, const std::string& port) {
    asio::io_context context;
    Addresses all;
    for (const auto& found : asio::ip::tcp::resolver(context).resolve(host, port))
        all.push_back(found.endpoint());
    return all;
}

Addresses resolve(const std::string& host, const std::string& port, Deadline deadline, const Lookup& lookup) {
    boost::system::error_code not_an_address;
    const auto address = asio::ip::make_address(host, not_an_address);
    if (!not_an_address) return {{address, static_cast<unsigned short>(std::stoi(port))}};

    std::shared_future<Addresses> result;
    {
        const std::string name = to_host_port(host, port);
        const std::lock_guard lock(lookups().mutex);
        const auto found = lookups().under_way.find(name);
        if (found != lookups().under_way.end()) {
            result = found->second;
        } else {
            std::packaged_task<Addresses()> task([lookup, host, port] { return lookup(host, port); });
            result = task.get_future().share();
            lookups().under_way.emplace(name, result);
            try {
                Thread("that looks " + host + " up", [task = std::move(task), name]() mutable {
                    task();
                    const std::lock_guard ended(lookups().mutex);
                    lookups().under_way.erase(name);
                }).detach();
            } catch (...) {
                lookups().under_way.erase(name);  // the next one tries again
                throw;
            }
        }
    }
    if (result.wait_until(deadline.at()) != std::future_status::ready)
        throw boost::system::system_error(asio::error::timed_out);
    return result.get();
}

}  // namespace tandem::http
