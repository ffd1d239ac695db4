// This backend's functions, declared: see common/ops/backend_functions.inl.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/ops/backends.h"
#include "common/ops/cuda/portable.cuh"

#if defined(TANDEM_KERNELS_ON_HOST)
namespace tandem::ops::on_host {
#include "common/ops/backend_functions.inl"
}
#endif
