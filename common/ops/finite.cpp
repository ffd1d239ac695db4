#include "common/ops/finite.h"

#include "common/ops/dispatch.h"
#include "common/ops/shared/magnitude.h"

namespace tandem::ops {

NonFinite find_non_finite(Stream& stream, const Tensor& values) {
    if (shared::infinity_of(values.dtype()) == 0) return {};
    return TANDEM_ROUTE_NOW(find_non_finite, values);
}

NonFinite find_non_finite(const Tensor& values) {
    Stream here = Stream::make_inline();
    return find_non_finite(here, values);
}

}  // namespace tandem::ops
