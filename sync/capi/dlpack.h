// DLPack's structs, as dlpack.h 1.1 of github.com/dmlc/dlpack lays them out. The distribution's header (0.6) is from
// before the versioned ones.
#pragma once

#include <cstdint>

namespace tandem::sync::capi::dlpack {

struct Device {
    std::int32_t type = 1;  // kDLCPU
    std::int32_t id = 0;
};

struct DataType {
    std::uint8_t code = 1;  // kDLUInt
    std::uint8_t bits = 8;
    std::uint16_t lanes = 1;
};

struct Tensor {
    void* data = nullptr;
    Device device;
    std::int32_t ndim = 0;
    DataType dtype;
    std::int64_t* shape = nullptr;
    std::int64_t* strides = nullptr;
    std::uint64_t byte_offset = 0;
};

struct Managed {  // DLManagedTensor, in capsules "dltensor"
    Tensor tensor;
    void* context = nullptr;
    void (*deleter)(Managed*) = nullptr;
};

struct ManagedVersioned {  // DLManagedTensorVersioned, in capsules "dltensor_versioned"
    std::uint32_t major = 1;
    std::uint32_t minor = 1;
    void* context = nullptr;
    void (*deleter)(ManagedVersioned*) = nullptr;
    std::uint64_t flags = 0;  // writable, not a copy
    Tensor tensor;
};
static_assert(sizeof(Tensor) == 48 && sizeof(Managed) == 64 && sizeof(ManagedVersioned) == 80);

}  // namespace tandem::sync::capi::dlpack
