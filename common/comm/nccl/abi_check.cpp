// Where nccl.h is: our names for NCCL's ABI are what it says.
#include <nccl.h>

#include "common/comm/nccl/api.h"

namespace tandem::comm::nccl {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(static_cast<int>(Result::in_progress) == ncclInProgress);
static_assert(static_cast<int>(Result::remote_error) == ncclRemoteError);
static_assert(static_cast<int>(Result::system_error) == ncclSystemError);
static_assert(static_cast<int>(Type::uint8) == ncclUint8 && static_cast<int>(Type::int64) == ncclInt64);
static_assert(static_cast<int>(Type::float32) == ncclFloat32 &&
              static_cast<int>(Type::bfloat16) == ncclBfloat16);
static_assert(static_cast<int>(Op::sum) == ncclSum && static_cast<int>(Op::avg) == ncclAvg);
static_assert(static_cast<int>(Op::max) == ncclMax && static_cast<int>(Op::min) == ncclMin);
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(NCCL_CONFIG_UNDEF_INT == INT_MIN);

}  // namespace tandem::comm::nccl
