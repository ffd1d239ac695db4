#include "engine_adapter/checkpoint_engine/socket_folder.h"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "common/deadline.h"
#include "common/error.h"
#include "common/log.h"
#include "engine_adapter/checkpoint_engine/dismissal.h"
#include "engine_adapter/checkpoint_engine/messages.h"

namespace tandem::engine::checkpoint_engine {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr const char* kName = "tandem-ce-";
constexpr const char* kServer = "server";
constexpr std::string_view kWaits = ".waits";
constexpr const char* kSocket = ".sock";
constexpr std::string_view kWhy = "the process that sent the weights has ended";
constexpr milliseconds kToConnect{500};  // and to answer; ZeroMQ tries again every 100 ms
constexpr std::int64_t kKept = 600;      // seconds

std::string_view address_of(std::string_view url) {
    const auto scheme = url.find("://");
    return scheme == std::string_view::npos ? url : url.substr(scheme + 3);
}

// Where its sender was when it was killed is not known.
bool dismiss(zmq::RequestSocket& socket, Deadline deadline) {
    const std::string message = failure_message(kWhy);
    Dismissal dismissal(socket, false);
    zmq::RequestSocket* const sockets[] = {&socket};
    while (!dismissal.step(message) && !deadline.passed())
        zmq::RequestSocket::wait_any(sockets, milliseconds(50));
    return dismissal.told();
}

void free_workers_in(const LeftFolder& folder) {
    const zmq::Context context;
    std::vector<std::string> waiting;
    for (const std::string& name : folder.names()) {
        if (name.ends_with(kWaits)) waiting.push_back(name);
    }
    std::size_t told = 0;
    for (const std::string& name : waiting) {
        const std::string worker = name.substr(0, name.size() - kWaits.size());
        zmq::RequestSocket socket(context, folder.path() / (worker + kSocket));
        if (!dismiss(socket, Deadline::after(kToConnect))) continue;
        folder.remove(name);
        ++told;
    }
    if (told > 0) log_info("{} workers waited for a push that was killed; they have been told", told);
    if (told == waiting.size() || folder.age_s() > kKept) folder.remove_all();
}

}  // namespace

SocketFolder::SocketFolder(const fs::path& root, std::string_view server, std::size_t workers)
    : folder_(root, kName) {
    folder_.write(kServer, address_of(server));
    for (std::size_t i = 0; i < workers; ++i) {
        folder_.write(fmt::format("{}{}", i, kWaits), "");
        waiting_.insert(i);
    }
}

SocketFolder::~SocketFolder() {
    if (!waiting_.empty()) folder_.leave();
}

fs::path SocketFolder::socket_file(std::size_t worker) const {
    return folder_.path() / (std::to_string(worker) + kSocket);
}

void SocketFolder::told(std::size_t worker) noexcept {
    waiting_.erase(worker);
    folder_.remove(fmt::format("{}{}", worker, kWaits));
}

void free_waiting_workers(std::string_view server, const fs::path& root) {
    for (const LeftFolder& folder : left_folders(root, kName)) {
        try {
            if (folder.read(kServer) == address_of(server)) free_workers_in(folder);
        } catch (const std::exception& error) {
            log_warn("{}: {}", folder.path().string(), error.what());
        }
    }
}

}  // namespace tandem::engine::checkpoint_engine
