// Streams and events of a real GPU.
#pragma once

#include <memory>
#include <string>

#include "common/device/stream_backend.h"

namespace tandem::cuda {

std::shared_ptr<detail::StreamBackend> make_stream(Device device, std::string name);

}  // namespace tandem::cuda
