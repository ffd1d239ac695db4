#include "common/comm/nccl/api.h"

#include <mutex>

#include "common/device/cpu_kernels.h"
#include "common/device/cuda/native.h"
#include "common/device/devices.h"
#include "common/error.h"
#include "common/log.h"
#include "common/shared_library.h"

namespace tandem::comm::nccl {
namespace {

constexpr int kOldest = 21800;

const Api& (*g_registered)() = nullptr;

std::string version_text(int version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

class Library {
  public:
    explicit Library(const std::string& file) : library_(file) {
        if (library_.loaded()) return;
        throw DeviceUnavailable(fmt::format(
            "NCCL cannot be loaded: {}; install it (libnccl.so.2, 2.18 or newer), or name the file in "
            "TANDEM_NCCL, or use TANDEM_COMM=ipc on one host",
            library_.why_not()));
    }
    template <typename Function>
    void find(const char* name, Function& function, bool needed = true) const {
        if (!library_.find(name, function) && needed)
            throw DeviceUnavailable(
                fmt::format("{} has no {}: NCCL 2.18 or newer is needed", library_.file(), name));
    }

  private:
    const SharedLibrary library_;
};

Api load() {
    const Library library(library_file("TANDEM_NCCL", "libnccl.so.2"));
    Api api;
    library.find("ncclGetVersion", api.get_version);
    library.find("ncclGetUniqueId", api.get_unique_id);
    library.find("ncclCommInitRankConfig", api.comm_init_rank_config);
    library.find("ncclCommFinalize", api.comm_finalize);
    library.find("ncclCommDestroy", api.comm_destroy);
    library.find("ncclCommAbort", api.comm_abort);
    library.find("ncclCommGetAsyncError", api.comm_get_async_error);
    library.find("ncclCommRegister", api.comm_register, false);
    library.find("ncclCommDeregister", api.comm_deregister, false);
    library.find("ncclGetErrorString", api.get_error_string);
    library.find("ncclGetLastError", api.get_last_error);
    library.find("ncclGroupStart", api.group_start);
    library.find("ncclGroupEnd", api.group_end);
    library.find("ncclAllGather", api.all_gather);
    library.find("ncclReduceScatter", api.reduce_scatter);
    library.find("ncclAllReduce", api.all_reduce);
    library.find("ncclBroadcast", api.broadcast);
    library.find("ncclSend", api.send);
    library.find("ncclRecv", api.recv);
    api.native_stream = [](Stream& stream) -> NativeStream { return cuda::native(stream); };
    int version = 0;
    if (api.get_version(&version) != Result::success || version < kOldest)
        throw DeviceUnavailable(fmt::format("NCCL is {}; 2.18 or newer is needed", version_text(version)));
    log_info("NCCL {}", version_text(version));
    return api;
}

}  // namespace

const Api& loaded() {
    static const Api api = load();  // again at the next call when it throws
    return api;
}

const Api& api_for(Device device) {
    return g_registered != nullptr && computes_on_cpu(device) ? g_registered() : loaded();
}

void register_api(const Api& (*api)()) {
    g_registered = api;
}

}  // namespace tandem::comm::nccl
