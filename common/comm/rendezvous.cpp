#include "common/comm/rendezvous.h"

#include <optional>
#include <set>
#include <vector>

#include "common/comm/gloo/communicator.h"
#include "common/comm/ipc/communicator.h"
#include "common/comm/ipc/job.h"
#include "common/device/announced_memory.h"
#include "common/error.h"
#include "common/host_port.h"
#include "common/identity/host_identity.h"
#include "common/log.h"
#include "common/store/store.h"

namespace tandem::comm {
namespace {

std::string attached_key(int rank) {
    return "tandem/attached/" + std::to_string(rank);
}
std::string met_key(int rank) {
    return "tandem/met/" + std::to_string(rank);
}
std::string host_key(int rank) {
    return "tandem/host/" + std::to_string(rank);
}

// The value of each rank's key, once all are there.
template <typename Key>
std::vector<std::string> from_all(Store& store, int size, const Key& key, Deadline deadline) {
    std::vector<std::string> values;
    std::string late;
    for (int rank = 0; rank < size; ++rank) {
        try {
            values.push_back(store.get(key(rank), deadline));
        } catch (const DeadlineExceeded&) {
            late += (late.empty() ? "rank " : ", rank ") + std::to_string(rank);
        }
    }
    if (!late.empty()) throw DeadlineExceeded(late, "rendezvous", "not there within the deadline");
    return values;
}

// Rank 0's memory is opened by the others as /proc/PID/fd/FD, which works within one host and one user.
int open_job_of_rank_0(const std::string& path) {
    try {
        return open_announced(path);
    } catch (const SystemError& error) {
        throw TransportError(
            "rank 0", "rendezvous",
            fmt::format("{}; ranks must share one user and one process namespace", error.what()));
    } catch (const BadInput& error) {
        throw ProtocolError(fmt::format(
            "rendezvous with rank 0: {}; somebody else may have written to the store", error.what()));
    }
}

std::shared_ptr<ipc::Job> find_job(Store& store, const RankEnvironment& self, Deadline deadline) {
    auto job = ipc::Job::open(open_job_of_rank_0(store.get("tandem/job", deadline)), self.world_size);
    store.set(attached_key(self.rank), "1");
    return job;
}

std::shared_ptr<ipc::Job> publish_job(Store& store, int size, Deadline deadline) {
    auto job = ipc::Job::create(size);
    store.set("tandem/job", announced_path(job->fd()));
    store.set(attached_key(0), "1");
    from_all(store, size, attached_key, deadline);
    return job;
}

std::shared_ptr<Communicator> meet_over_network(Store& store, const Rendezvous& r, std::size_t hosts,
                                                Deadline deadline) {
    const gloo::ListenAddress address = gloo::listen_address(r.host, deadline);
    if (address.loopback && hosts > 1) {
        throw ConfigError(
            "environment", "TANDEM_IFACE",
            fmt::format("rank {} would listen on {} (interface {}, from {}), which the other {} hosts cannot "
                        "reach; name the interface that joins them, or an address of it in MASTER_ADDR",
                        r.self.rank, address.ip, address.interface, address.reason, hosts - 1));
    }
    log_info("rank {} of {} on {} hosts listens on {} (interface {}, from {})", r.self.rank,
             r.self.world_size, hosts, address.ip, address.interface, address.reason);
    return gloo::make_world(store, r.self.rank, r.self.world_size, address, deadline);
}

void serve(std::optional<TcpStoreServer>& server, const Rendezvous& r) {
    StoreServerOptions options;
    options.secret = r.secret;
    const auto ranks = static_cast<std::size_t>(r.self.world_size);
    // Over the network each rank publishes an address for each other.
    options.max_bytes += ranks * ranks * 256;
    server.emplace(r.host, r.port, options);
    if (r.secret || server->loopback()) return;
    log_warn(
        "whoever reaches {} can take part in this job: TANDEM_JOB_SECRET is not set (at least {} random "
        "bytes, the same on all ranks)",
        to_host_port(r.host, r.port), JobSecret::kShortest);
}

}  // namespace

std::shared_ptr<Communicator> meet(const Rendezvous& r, Deadline deadline) {
    const RankEnvironment& self = r.self;
    std::optional<TcpStoreServer> server;  // stays until every rank has read what it needs
    if (self.rank == 0) serve(server, r);
    const auto store = connect_tcp_store(r.host, r.port, deadline, r.secret);
    store->set(host_key(self.rank), fmt::format("{} {}", r.backend, host_identity()));
    const std::vector<std::string> all = from_all(*store, self.world_size, host_key, deadline);
    // Rank 0 keeps the store for the others also when what they learnt from it is an error.
    store->set(met_key(self.rank), "1");
    if (self.rank == 0) from_all(*store, self.world_size, met_key, deadline);
    std::set<std::string> hosts;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const std::size_t space = all[rank].find(' ');
        const std::string backend = all[rank].substr(0, space);
        if (backend != r.backend) {
            throw ConfigError(
                "environment", "TANDEM_COMM",
                fmt::format("'{}' on rank {}, '{}' on rank {}; it must be the same on all ranks", r.backend,
                            self.rank, backend, rank));
        }
        hosts.insert(all[rank].substr(space + 1));
    }
    if (r.backend == "gloo" || (r.backend == "auto" && hosts.size() > 1))
        return meet_over_network(*store, r, hosts.size(), deadline);
    if (hosts.size() > 1) {
        throw ConfigError("environment", "TANDEM_COMM",
                          fmt::format("'ipc' joins ranks of one host, and there are {}; 'gloo' joins several",
                                      hosts.size()));
    }
    auto job =
        self.rank == 0 ? publish_job(*store, self.world_size, deadline) : find_job(*store, self, deadline);
    return ipc::make_world(std::move(job), self.rank);
}

}  // namespace tandem::comm
