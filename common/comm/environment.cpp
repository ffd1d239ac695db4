// This process as a rank: its number, from the environment, and how it finds the others. A launched rank
// inherits the job's memory (TANDEM_JOB_FD); under torchrun, Slurm and the like the ranks meet
// (rendezvous.h).
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <optional>

#include "common/comm/ipc/communicator.h"
#include "common/comm/ipc/job.h"
#include "common/comm/launch.h"
#include "common/comm/rendezvous.h"
#include "common/error.h"
#include "common/host_port.h"

namespace tandem::comm {
namespace {

constexpr int kMaxWorld = 4096;

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

// torchrun's own store listens on MASTER_PORT and speaks another language: ours then takes the next port.
int store_port() {
    if (variable("TANDEM_STORE_PORT")) return integer("TANDEM_STORE_PORT", 1, 65535);
    const int port = integer("MASTER_PORT", 1, 65534);
    return variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True" ? port + 1 : port;
}

std::string wanted_backend() {
    const std::string wanted = variable("TANDEM_COMM").value_or("auto");
    if (wanted == "nccl") return "auto";  // of GPUs (for_device); on the host's part it stands on ipc or gloo
    if (wanted == "auto" || wanted == "ipc" || wanted == "gloo") return wanted;
    throw ConfigError(
        "environment", "TANDEM_COMM",
        fmt::format("'{}' is none of auto, ipc (ranks of one host), gloo (several hosts), nccl (a GPU "
                    "a rank)",
                    wanted));
}

std::shared_ptr<ipc::Job> inherited_job(int world_size) {
    const int fd = integer("TANDEM_JOB_FD", 0, 1 << 20);
    // The inherited descriptor stays, but goes no further than this process.
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0) {
        throw ConfigError("environment", "TANDEM_JOB_FD",
                          fmt::format("{} is not open here; it is for ranks started by the launcher", fd));
    }
    return ipc::Job::open(own, world_size);
}

}  // namespace

bool launched_as_rank() {
    return variable("RANK") && variable("WORLD_SIZE");
}

RankEnvironment rank_environment() {
    RankEnvironment self;
    self.world_size = integer("WORLD_SIZE", 1, kMaxWorld);
    self.rank = integer("RANK", 0, self.world_size - 1);
    self.local_rank = variable("LOCAL_RANK") ? integer("LOCAL_RANK", 0, self.world_size - 1) : self.rank;
    return self;
}

std::shared_ptr<Communicator> connect_from_environment(Deadline deadline) {
    const RankEnvironment self = rank_environment();
    const std::string backend = wanted_backend();
    if (variable("TANDEM_JOB_FD")) {
        if (backend == "gloo") {
            throw ConfigError("environment", "TANDEM_COMM",
                              "'gloo' is for ranks started by torchrun, Slurm or the like; those that tandem "
                              "starts itself are on one host and use ipc");
        }
        return ipc::make_world(inherited_job(self.world_size), self.rank);
    }
    if (self.world_size == 1) return solo();
    const auto host = variable("MASTER_ADDR");
    if (!host) throw ConfigError("environment", "MASTER_ADDR", "not set; it says where rank 0 listens");
    return meet({self, parse_host(*host), store_port(), backend, JobSecret::from_environment()}, deadline);
}

}  // namespace tandem::comm
