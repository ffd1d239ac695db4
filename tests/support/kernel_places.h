// What kernels on the host did, by where in the sources they did it.
#pragma once

#include <string>

namespace fibers::races {

// Where in the sources an address of code is, as far as addr2line knows. Asks only once.
const std::string& place_of(const void* code);

}  // namespace fibers::races
