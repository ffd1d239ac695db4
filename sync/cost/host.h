// Which machine this is.
#pragma once

#include <string>

namespace tandem::sync {

std::string host_name();
std::string processor_name();  // as the kernel tells

}  // namespace tandem::sync
