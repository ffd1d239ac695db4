// The checks that hold on every device, then the way to the backend.
#include "common/ops/delta.h"

#include "common/ops/dispatch.h"

namespace tandem::ops {

std::size_t delta_capacity(std::int64_t elements, std::size_t width) {
    return static_cast<std::size_t>(elements) * width;
}

// For TANDEM_ROUTE_NOW.
static DeltaSource aliased(DeltaSource source) {
    source.data = host_alias(source.data);
    return source;
}

DeltaResult delta_encode(Stream& stream, const DeltaSource& wanted, Span base, Span to) {
    DeltaSource source = wanted;
    if (source.from_dtype == DType::float16 && source.to_dtype == DType::float16)
        source.from_dtype = source.to_dtype = DType::bfloat16;  // bits of the same width
    const bool known = (source.from_dtype == DType::float32 || source.from_dtype == DType::bfloat16) &&
                       (source.to_dtype == DType::float32 || source.to_dtype == DType::bfloat16);
    require(known, "delta_encode: elements of {} as {}: changes are cast between float32 and bfloat16 only",
            dtype_name(source.from_dtype), dtype_name(source.to_dtype));
    const std::size_t width = dtype_size(source.to_dtype);
    require(source.rows >= 0 && source.row_elements >= 0, "delta_encode: {} rows of {} elements", source.rows,
            source.row_elements);
    const auto elements = static_cast<std::size_t>(source.rows * source.row_elements);
    require(elements <= UINT32_MAX, "delta_encode: {} elements are too many for one run", elements);
    require(base.bytes == elements * width, "delta_encode: {} bytes of base for {} elements of {}",
            base.bytes, elements, dtype_name(source.to_dtype));
    require(to.bytes >= delta_capacity(source.rows * source.row_elements, width),
            "delta_encode: room for {} bytes, {} may be needed", to.bytes, elements * width);
    return TANDEM_ROUTE_NOW(delta_encode, source, base, to);
}

DeltaResult delta_encode(const DeltaSource& source, Span base, Span to) {
    Stream here = Stream::make_inline();
    return delta_encode(here, source, base, to);
}

void delta_apply(Stream& stream, DeltaCodec codec, ConstSpan encoded, std::size_t width, std::int64_t rows,
                 std::int64_t row_elements, std::byte* to, std::size_t stride) {
    require(width == 2 || width == 4, "delta_apply: elements of {} bytes", width);
    require(rows >= 0 && row_elements >= 0, "delta_apply: {} rows of {} elements", rows, row_elements);
    const std::size_t row_bytes = static_cast<std::size_t>(row_elements) * width;
    require(rows <= 1 || stride >= row_bytes, "delta_apply: rows of {} bytes lie {} bytes apart", row_bytes,
            stride);
    TANDEM_ROUTE_NOW(delta_apply, codec, encoded, width, rows, row_elements, to, stride);
}

void delta_apply(DeltaCodec codec, ConstSpan encoded, std::size_t width, std::int64_t rows,
                 std::int64_t row_elements, std::byte* to, std::size_t stride) {
    Stream here = Stream::make_inline();
    delta_apply(here, codec, encoded, width, rows, row_elements, to, stride);
}

}  // namespace tandem::ops
