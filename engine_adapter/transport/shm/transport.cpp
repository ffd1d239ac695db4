#include "engine_adapter/transport/shm/transport.h"

#include <fcntl.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "common/error.h"
#include "common/file_descriptor.h"
#include "engine_adapter/channel/messages.h"

namespace tandem::engine {
namespace {

constexpr const char* kRelay = "load all buckets";

// The same file once more, for an engine that is only to read it.
FileDescriptor read_only(int fd) {
    FileDescriptor opened(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened) throw SystemError("open of a region for reading", errno);
    return opened;
}

}  // namespace

void ShmTransport::attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) {
    require_attachable(plan);
    nlohmann::json sizes = nlohmann::json::array();
    std::vector<FileDescriptor> opened;
    std::vector<int> fds;
    for (const Region& region : regions) {
        enforce(region.fd >= 0, "{}: the shm transport needs regions with a file descriptor, not one of {}",
                peer(), to_string(region.device));
        sizes.push_back(region.memory.bytes);
        opened.push_back(read_only(region.fd));
        fds.push_back(opened.back().get());
    }
    if (relay_ != 0) connection().forget(std::exchange(relay_, 0));  // given up
    const Message reply = announce({{"regions", std::move(sizes)}}, fds, plan, deadline);
    relays_ = reply.header.contains("relays") && messages::bool_field(reply.header, "relays");
}

void ShmTransport::take(const Relay& relay, Deadline deadline) {
    start(relay, nlohmann::json::object(), deadline);
}

void ShmTransport::take_probe(const Relay& relay, const RelayProbe& probe, Deadline deadline) {
    start(relay,
          {{"buckets", probe.buckets},
           {"bucket_bytes", probe.bucket_bytes},
           {"piece_bytes", probe.piece_bytes},
           {"slots", probe.slots}},
          deadline);
}

void ShmTransport::start(const Relay& relay, nlohmann::json header, Deadline deadline) {
    require(relay_ == 0 && !any_in_flight(), "buckets are in flight already");
    header["op"] = "relay";
    header["ranks"] = relay.ranks;
    header["engines"] = relay.engines;
    header["engine"] = relay.engine;
    header["from"] = relay.from;
    header["timeout_ms"] = messages::timeout_ms(deadline);
    gone_ = nullptr;
    relay_ = connection().post(std::move(header), kRelay, deadline, {}, {&relay.words.fd, 1});
}

bool ShmTransport::answered() {
    if (relay_ == 0 || gone_) return true;
    try {
        return connection().answered(relay_, kRelay);
    } catch (const std::exception&) {
        gone_ = std::current_exception();
        return true;
    }
}

double ShmTransport::wait_taken(Deadline deadline) {
    require(relay_ != 0, "no relay is in flight");
    const std::int64_t request = std::exchange(relay_, 0);
    if (gone_) std::rethrow_exception(std::exchange(gone_, nullptr));
    return messages::number_field(connection().wait(request, kRelay, deadline).header, "ms");
}

void ShmTransport::forget_in_flight() {
    if (relay_ != 0) connection().forget(std::exchange(relay_, 0));
    Transport::forget_in_flight();
}

}  // namespace tandem::engine
