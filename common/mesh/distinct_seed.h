// Seeds for random numbers that some axes of a mesh share and others do not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/mesh/device_mesh.h"

namespace tandem {

// seed + Σ coordinate · sizes of the axes named before, modulo 2^64, as TorchTitan's set_determinism: ranks that differ in
// a named axis get different seeds, ranks that differ in others only the same one. Throws InvalidArgument on an axis that
// the mesh lacks.
std::uint64_t distinct_seed(std::uint64_t seed, const DeviceMesh& mesh, const std::vector<std::string>& axes);

}  // namespace tandem
