#include "engine_adapter/transport/shm/transport.h"

#include <fcntl.h>

#include <cerrno>

#include "common/error.h"
#include "common/file_descriptor.h"

namespace tandem::engine {
namespace {

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
    announce({{"regions", std::move(sizes)}}, fds, plan, deadline);
}

}  // namespace tandem::engine
