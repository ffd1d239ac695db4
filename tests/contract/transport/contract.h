// What every transport must do. A backend joins with a factory that gives one connected transport, memory to
// stage, and the weights at the other end.
#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/error.h"
#include "engine_adapter/transport/transport.h"

namespace tandem::engine {

// One end to end set-up. The engine at the other end holds TransportRig::tensors(), the staging
// area is staged, and a version is open.
class TransportRig {
  public:
    static constexpr std::size_t kTensorBytes = 1 << 20;
    static std::vector<TensorInfo> tensors() {
        return {{"a", {kTensorBytes}, DType::uint8}, {"b", {kTensorBytes}, DType::uint8}};
    }
    static constexpr int kSlots = 3;
    static constexpr std::size_t kSlotBytes = 256 << 10;

    virtual ~TransportRig() = default;
    virtual Transport& transport() = 0;
    virtual const StagingArea& staging() = 0;  // kSlots × kSlotBytes
    virtual ConstSpan weights(int tensor) = 0;
    virtual void stop_engine() = 0;
};

using RigFactory = std::function<std::unique_ptr<TransportRig>()>;
struct Backend {
    std::string name;
    RigFactory make;
};
inline void PrintTo(const Backend& backend, std::ostream* out) {
    *out << backend.name;
}

class TransportContract : public testing::TestWithParam<Backend> {
  protected:
    static Deadline soon() { return Deadline::after_ms(5000); }

    // Fills part of a slot and describes it truly.
    BucketEntry fill(const char* tensor, std::size_t offset, std::size_t bytes, int slot, std::size_t at,
                     int value) {
        const Span to = rig_->staging().slot(slot).subspan(at, bytes);
        for (std::size_t i = 0; i < bytes; ++i)
            to.data[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(value)) & 255);
        return {tensor, offset, at, bytes, ops::checksum(to), 0};
    }
    void expect(int tensor, std::size_t offset, std::size_t bytes, int value) {
        for (std::size_t i = 0; i < bytes; ++i) {
            ASSERT_EQ(std::to_integer<std::size_t>(rig_->weights(tensor).data[offset + i]),
                      (i * 7 + static_cast<std::size_t>(value)) & 255)
                << i;
        }
    }

    std::unique_ptr<TransportRig> rig_ = GetParam().make();
    Transport& transport_ = rig_->transport();
};

}  // namespace tandem::engine
