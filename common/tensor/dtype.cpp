#include "common/tensor/dtype.h"

#include "common/error.h"

namespace tandem {

std::size_t dtype_size(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return 4;
        case DType::bfloat16:
            return 2;
        case DType::int32:
            return 4;
        case DType::int64:
            return 8;
        case DType::uint8:
            return 1;
        case DType::float8_e4m3fn:
            return 1;
        case DType::int8:
            return 1;
        case DType::float16:
            return 2;
    }
    return 0;
}

std::string_view dtype_name(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return "float32";
        case DType::bfloat16:
            return "bfloat16";
        case DType::int32:
            return "int32";
        case DType::int64:
            return "int64";
        case DType::uint8:
            return "uint8";
        case DType::float8_e4m3fn:
            return "float8_e4m3fn";
        case DType::int8:
            return "int8";
        case DType::float16:
            return "float16";
    }
    return "?";
}

DType dtype_from_name(std::string_view name) {
    if (name == "float32" || name == "fp32" || name == "F32") return DType::float32;
    if (name == "bfloat16" || name == "bf16" || name == "BF16") return DType::bfloat16;
    if (name == "int32" || name == "I32") return DType::int32;
    if (name == "int64" || name == "I64") return DType::int64;
    if (name == "uint8" || name == "U8") return DType::uint8;
    if (name == "float8_e4m3fn" || name == "fp8" || name == "F8_E4M3") return DType::float8_e4m3fn;
    if (name == "int8" || name == "I8") return DType::int8;
    if (name == "float16" || name == "fp16" || name == "F16") return DType::float16;
    throw BadInput(
        fmt::format("unknown dtype '{}'; known: float32 (fp32), bfloat16 (bf16), int32, int64, uint8, "
                    "float8_e4m3fn (fp8), int8, float16 (fp16)",
                    name));
}

std::string_view safetensors_dtype_name(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return "F32";
        case DType::bfloat16:
            return "BF16";
        case DType::int32:
            return "I32";
        case DType::int64:
            return "I64";
        case DType::uint8:
            return "U8";
        case DType::float8_e4m3fn:
            return "F8_E4M3";
        case DType::int8:
            return "I8";
        case DType::float16:
            return "F16";
    }
    return "?";
}

}  // namespace tandem
