// Names of this machine and its processor.
#pragma once

#include <string>

namespace tandem::sync {

std::string host_name();
std::string processor_name();  // from the kernel

}  // namespace tandem::sync
