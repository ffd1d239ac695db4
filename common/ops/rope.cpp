// The checks that hold on every device, then the way to the backend.
#include "common/ops/rope.h"

#include "common/ops/check.h"
#include "common/ops/dispatch.h"

namespace tandem::ops {
namespace {

void check_rope(const char* op, const Tensor& x, const RopeTable& table) {
    detail::check_floating(op, "x", x);
    detail::check_ndim(op, "x", x, 3);
    require(x.dim(2) % 2 == 0 && x.dim(2) > 0,
            [&] { return fmt::format("{}: head_dim of x {} must be even", op, to_string(x.shape())); });
    require(table.head_dim() == x.dim(2), [&] {
        return fmt::format("{}: a table of head_dim {} for x {}", op, table.head_dim(), to_string(x.shape()));
    });
}

void check_positions(const char* op, const Tensor& x, std::span<const std::int32_t> positions) {
    require(static_cast<std::int64_t>(positions.size()) == x.dim(0), [&] {
        return fmt::format("{}: {} positions for x {}", op, positions.size(), to_string(x.shape()));
    });
    for (const std::int32_t position : positions)
        require(position >= 0, "{}: negative position {}", op, position);
}

}  // namespace

void rope(Stream& stream, Tensor x, std::span<const std::int32_t> positions, const RopeTable& table) {
    check_rope("rope", x, table);
    check_positions("rope", x, positions);
    TANDEM_ROUTE(rope, x, positions, table);
}

void rope(Stream& stream, Tensor x, const Tensor& positions, std::int64_t limit, const RopeTable& table) {
    check_rope("rope", x, table);
    detail::check_shape("rope", "positions", positions, {x.dim(0)});
    detail::check_dtype("rope", "positions", positions, DType::int32);
    require(limit > 0, "rope: positions below {}", limit);
    TANDEM_ROUTE(rope, x, positions, limit, table);
}

void rope_backward(Stream& stream, Tensor dx, std::span<const std::int32_t> positions,
                   const RopeTable& table) {
    check_rope("rope_backward", dx, table);
    check_positions("rope_backward", dx, positions);
    TANDEM_ROUTE(rope_backward, dx, positions, table);
}

}  // namespace tandem::ops
