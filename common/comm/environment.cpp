// This process as a rank: who it is, from the environment, and how it finds the job's memory. A launched rank
// inherits it (TANDEM_JOB_FD). Under torchrun, Slurm and the like rank 0 makes it and says through a TCP
// store at MASTER_ADDR:MASTER_PORT where the others can open it: /proc/PID/fd/FD, which works within one host
// and one user.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "common/comm/ipc/communicator.h"
#include "common/comm/ipc/job.h"
#include "common/comm/launch.h"
#include "common/comm/store.h"
#include "common/error.h"

namespace tandem::comm {
namespace {

std::optional<std::string> variable(const char* name) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
}

int integer(const char* name, int lowest, int highest) {
    const std::string text = variable(name).value_or("");
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < lowest || value > highest) {
        throw ConfigError("environment", name,
                          fmt::format("'{}' is not an integer from {} to {}", text, lowest, highest));
    }
    return value;
}

// Tells hosts apart: /proc/PID/fd means nothing on another one.
std::string host_identity() {
    std::string id;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
    return id;
}

// torchrun's own store listens on MASTER_PORT and speaks another language: ours then takes the next port.
int store_port() {
    if (variable("TANDEM_STORE_PORT")) return integer("TANDEM_STORE_PORT", 1, 65535);
    const int port = integer("MASTER_PORT", 1, 65534);
    return variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True" ? port + 1 : port;
}

std::string rank_key(int rank) {
    return "tandem/attached/" + std::to_string(rank);
}

std::shared_ptr<ipc::Job> publish_job(const std::string& host, int port, const RankEnvironment& self,
                                      Deadline deadline) {
    const TcpStoreServer server(host, port);
    const auto store = connect_tcp_store(host, port, deadline);
    const auto job = ipc::Job::create(self.world_size);
    store->set("tandem/job", fmt::format("{} {} {}", ::getpid(), job->fd(), host_identity()));
    // The server stays until everybody has what it came for.
    std::string late;
    for (int rank = 1; rank < self.world_size; ++rank) {
        try {
            store->get(rank_key(rank), deadline);
        } catch (const DeadlineExceeded&) {
            late += (late.empty() ? "rank " : ", rank ") + std::to_string(rank);
        }
    }
    if (!late.empty()) throw DeadlineExceeded(late, "rendezvous", "not there within the deadline");
    return job;
}

std::shared_ptr<ipc::Job> find_job(const std::string& host, int port, const RankEnvironment& self,
                                   Deadline deadline) {
    const auto store = connect_tcp_store(host, port, deadline);
    const std::string text = store->get("tandem/job", deadline);
    const std::size_t first = text.find(' ');
    const std::size_t second = text.find(' ', first + 1);
    if (second == std::string::npos) throw ProtocolError("rendezvous: rank 0 published '" + text + "'");
    const std::string pid = text.substr(0, first);
    require(text.substr(second + 1) == host_identity(),
            "rank {} and rank 0 are on different hosts; the ipc backend joins ranks of one host", self.rank);
    const std::string path = "/proc/" + pid + "/fd/" + text.substr(first + 1, second - first - 1);
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        throw TransportError("rank 0", "rendezvous",
                             fmt::format("{}: {}; ranks must share one user and one process namespace", path,
                                         std::strerror(errno)));
    }
    auto job = ipc::Job::open(fd);
    store->set(rank_key(self.rank), "1");
    return job;
}

std::shared_ptr<ipc::Job> inherited_job() {
    const int fd = integer("TANDEM_JOB_FD", 0, 1 << 20);
    // The inherited descriptor stays, but goes no further than this process.
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0) {
        throw ConfigError("environment", "TANDEM_JOB_FD",
                          fmt::format("{} is not open here; it is for ranks started by the launcher", fd));
    }
    return ipc::Job::open(own);
}

}  // namespace

bool launched_as_rank() {
    return variable("RANK") && variable("WORLD_SIZE");
}

RankEnvironment rank_environment() {
    RankEnvironment self;
    self.world_size = integer("WORLD_SIZE", 1, ipc::kMaxRanks);
    self.rank = integer("RANK", 0, self.world_size - 1);
    self.local_rank = variable("LOCAL_RANK") ? integer("LOCAL_RANK", 0, self.world_size - 1) : self.rank;
    return self;
}

std::shared_ptr<Communicator> connect_from_environment(Deadline deadline) {
    const RankEnvironment self = rank_environment();
    if (variable("TANDEM_JOB_FD")) {
        auto job = inherited_job();
        require(job->world_size() == self.world_size, "WORLD_SIZE is {}, the job was made for {} ranks",
                self.world_size, job->world_size());
        return ipc::make_world(std::move(job), self.rank);
    }
    if (self.world_size == 1) return solo();
    const auto host = variable("MASTER_ADDR");
    if (!host) throw ConfigError("environment", "MASTER_ADDR", "not set; it says where rank 0 listens");
    const int port = store_port();
    auto job =
        self.rank == 0 ? publish_job(*host, port, self, deadline) : find_job(*host, port, self, deadline);
    return ipc::make_world(std::move(job), self.rank);
}

}  // namespace tandem::comm
