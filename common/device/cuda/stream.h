// Streams and events of a real GPU.
#pragma once

#include <memory>
#include <string>

#include "common/device/stream_backend.h"

namespace tandem::detail {

std::shared_ptr<StreamBackend> make_cuda_stream(Device device, std::string name);

}  // namespace tandem::detail
