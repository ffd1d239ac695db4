// float16 in rows: what checkpoints and servers hold, and nothing computes in.
#pragma once

#include <cstdint>

namespace tandem::ops::detail {

void widen_half(const std::uint16_t* from, float* to, std::int64_t count);
// Round to nearest even; what is too large becomes infinite (ops::first_beyond_float16 finds it).
void narrow_half(const float* from, std::uint16_t* to, std::int64_t count);

}  // namespace tandem::ops::detail
