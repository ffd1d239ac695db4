// Tells apart what shared memory cannot join: machines, and containers that do not see each other's processes
// or have networks of their own.
#pragma once

#include <string>

namespace tandem {

std::string host_identity();

}  // namespace tandem
