// A libnccl.so.2 that can be loaded and does nothing: who asks it for a communicator is refused.

namespace {

constexpr int kInternalError = 3;

}  // namespace

extern "C" {
int ncclGetVersion(int* version) {
    *version = 22809;
    return 0;
}
const char* ncclGetErrorString(int) {
    return "the stand-in was asked";
}
const char* ncclGetLastError(void*) {
    return "";
}
#define TANDEM_REFUSED(name)   \
    int name() {               \
        return kInternalError; \
    }
TANDEM_REFUSED(ncclGetUniqueId)
TANDEM_REFUSED(ncclCommInitRankConfig)
TANDEM_REFUSED(ncclCommFinalize)
TANDEM_REFUSED(ncclCommDestroy)
TANDEM_REFUSED(ncclCommAbort)
TANDEM_REFUSED(ncclCommGetAsyncError)
TANDEM_REFUSED(ncclGroupStart)
TANDEM_REFUSED(ncclGroupEnd)
TANDEM_REFUSED(ncclAllGather)
TANDEM_REFUSED(ncclReduceScatter)
TANDEM_REFUSED(ncclAllReduce)
TANDEM_REFUSED(ncclBroadcast)
TANDEM_REFUSED(ncclSend)
TANDEM_REFUSED(ncclRecv)
}
