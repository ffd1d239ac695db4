// The meeting of ranks that another library has joined already (torch.distributed, MPI): all they need of it is one
// all-gather of texts.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "common/comm/gloo/communicator.h"
#include "common/comm/ipc/communicator.h"
#include "common/comm/ipc/job.h"
#include "common/comm/rendezvous.h"
#include "common/device/announced_memory.h"
#include "common/error.h"
#include "common/host_port.h"
#include "common/identity/host_identity.h"
#include "common/store/store.h"

namespace tandem::comm {
namespace {

// One step that each rank takes and tells the others of, who need its text, or its failure.
class Steps {
  public:
    Steps(const AllGather& all_gather, int size) : all_gather_(all_gather), size_(size) {}

    template <typename Step>
    std::vector<std::string> all(const Step& step) {
        std::string mine = "!";
        try {
            mine = "=" + step();
        } catch (const std::exception& error) {
            mine += error.what();
        }
        std::vector<std::string> texts = all_gather_(mine);
        enforce(texts.size() == static_cast<std::size_t>(size_), "rendezvous: {} ranks answered, of {}",
                texts.size(), size_);
        for (std::size_t rank = 0; rank < texts.size(); ++rank) {
            if (texts[rank].starts_with('!'))
                throw TransportError(fmt::format("rank {}", rank), "rendezvous", texts[rank].substr(1));
            enforce(texts[rank].starts_with('='), "rendezvous: rank {} speaks another protocol", rank);
            texts[rank].erase(0, 1);
        }
        return texts;
    }

  private:
    const AllGather& all_gather_;
    const int size_;
};

std::shared_ptr<Communicator> meet_on_host(Steps& steps, int rank, int size) {
    std::shared_ptr<ipc::Job> job;
    const std::vector<std::string> announced = steps.all([&]() -> std::string {
        if (rank != 0) return "";
        job = ipc::Job::create(size);
        return announced_path(job->fd());
    });
    steps.all([&] {
        if (rank != 0) job = ipc::Job::open(open_announced(announced.front()), size);
        return std::string();
    });
    return ipc::make_world(std::move(job), rank);
}

// Where rank 0 listens.
std::string address_of_rank_0(bool one_host) {
    if (one_host) return "127.0.0.1";
    const char* given = std::getenv("MASTER_ADDR");
    if (given != nullptr && *given != '\0') return parse_host(given);
    char name[256] = {};
    if (::gethostname(name, sizeof name - 1) != 0) throw SystemError("gethostname", errno);
    return name;
}

std::shared_ptr<Communicator> meet_over_network(Steps& steps, int rank, int size, bool one_host,
                                                Deadline deadline) {
    std::optional<TcpStoreServer> server;  // stays until every rank has read what it needs
    const std::string said = steps.all([&]() -> std::string {
        if (rank != 0) return "";
        StoreServerOptions options;
        const std::string secret = random_hex();
        options.secret = JobSecret(secret);
        const auto ranks = static_cast<std::size_t>(size);
        options.max_bytes += ranks * ranks * 256;
        const std::string host = address_of_rank_0(one_host);
        server.emplace(host, 0, options);
        return fmt::format("{} {} {}", secret, server->port(), host);
    })[0];
    const std::size_t port = said.find(' ') + 1;
    const std::size_t host = said.find(' ', port) + 1;
    std::shared_ptr<Communicator> world;
    steps.all([&] {
        const std::string name = said.substr(host);
        const auto store = connect_tcp_store(name, std::stoi(said.substr(port)), deadline,
                                             JobSecret(said.substr(0, port - 1)));
        world = gloo::make_world(*store, rank, size, gloo::listen_address(name, deadline), deadline);
        return std::string();
    });
    return world;
}

}  // namespace

std::shared_ptr<Communicator> meet(const AllGather& all_gather, int rank, int size, Deadline deadline) {
    enforce(size >= 1 && rank >= 0 && rank < size, "rank {} of {} ranks", rank, size);
    if (size == 1) return ipc::make_world(ipc::Job::create(1), 0);  // its memory can be shared with engines
    Steps steps(all_gather, size);
    const std::vector<std::string> hosts = steps.all([] { return host_identity(); });
    const bool one_host =
        std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host == hosts[0]; });
    const char* backend = std::getenv("TANDEM_COMM");
    const bool network = !one_host || (backend != nullptr && std::string_view(backend) == "gloo");
    return network ? meet_over_network(steps, rank, size, one_host, deadline)
                   : meet_on_host(steps, rank, size);
}

}  // namespace tandem::comm
