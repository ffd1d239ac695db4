#include "engine_adapter/checkpoint_engine/socket_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
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
constexpr const char* kLock = "lock";
constexpr const char* kWaits = ".waits";
constexpr const char* kSocket = ".sock";
constexpr std::string_view kWhy = "the process that sent the weights has ended";
constexpr milliseconds kToConnect{500};  // and to answer; ZeroMQ tries again every 100 ms
constexpr std::chrono::minutes kKept{10};

std::string_view address_of(std::string_view url) {
    const auto scheme = url.find("://");
    return scheme == std::string_view::npos ? url : url.substr(scheme + 3);
}

bool is_of(const fs::path& folder, std::string_view server) {
    std::string whose;
    std::getline(std::ifstream(folder / kLock), whose);
    return whose == address_of(server);
}

// Its lock, where it is a folder that a process of ours has left.
FileDescriptor lock_of_the_dead(const fs::path& folder) {
    struct stat status {};
    if (::lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() ||
        (status.st_mode & 077) != 0)
        return {};
    FileDescriptor lock(::open((folder / kLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) lock.reset();
    return lock;
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

void free_workers_in(const fs::path& folder) {
    const zmq::Context context;
    std::vector<fs::path> waiting;
    for (const auto& entry : fs::directory_iterator(folder)) {
        if (entry.path().extension() == kWaits) waiting.push_back(entry.path());
    }
    std::size_t told = 0;
    for (const fs::path& one : waiting) {
        zmq::RequestSocket socket(context, folder / (one.stem().string() + kSocket));
        if (!dismiss(socket, Deadline::after(kToConnect))) continue;
        fs::remove(one);
        ++told;
    }
    if (told > 0) log_info("{} workers waited for a push that was killed; they have been told", told);
    if (told == waiting.size() ||
        fs::last_write_time(folder / kLock) + kKept < fs::file_time_type::clock::now())
        fs::remove_all(folder);
}

}  // namespace

SocketFolder::SocketFolder(const fs::path& root, std::string_view server, std::size_t workers) {
    std::string name = fmt::format("{}/{}XXXXXX", root.string(), kName);
    if (::mkdtemp(name.data()) == nullptr)
        throw SystemError(fmt::format("a folder for sockets in {}", root.string()), errno);
    folder_ = name;
    lock_.reset(::open((folder_ / kLock).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!lock_ || ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
        throw SystemError(fmt::format("locking {}", folder_.string()), errno);
    std::ofstream(folder_ / kLock) << address_of(server);
    for (std::size_t i = 0; i < workers; ++i) std::ofstream(folder_ / (std::to_string(i) + kWaits));
}

SocketFolder::~SocketFolder() {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
        if (entry.path().extension() == kWaits) return;
    }
    fs::remove_all(folder_, ignored);
}

fs::path SocketFolder::socket_file(std::size_t worker) const {
    return folder_ / (std::to_string(worker) + kSocket);
}

void SocketFolder::told(std::size_t worker) noexcept {
    std::error_code ignored;
    fs::remove(folder_ / (std::to_string(worker) + kWaits), ignored);
}

void free_waiting_workers(std::string_view server, const fs::path& root) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(root, ignored)) {
        if (!entry.path().filename().string().starts_with(kName)) continue;
        try {
            const FileDescriptor lock = lock_of_the_dead(entry.path());
            if (lock && is_of(entry.path(), server)) free_workers_in(entry.path());
        } catch (const std::exception& error) {
            log_warn("{}: {}", entry.path().string(), error.what());
        }
    }
}

}  // namespace tandem::engine::checkpoint_engine
