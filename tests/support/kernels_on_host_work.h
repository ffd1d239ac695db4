// What the ops of kernels on the host have done so far.
#pragma once

#include <cstdint>

namespace tandem::ops::on_host {

std::uint64_t uploads();  // from the host to a device, with bytes in them

}  // namespace tandem::ops::on_host
