// A flat tensor of training state that lives in memory or in the tier below. Its address never changes, so
// views of it (a DTensor, a peer's mapping) are right again whenever it is back.
//
//   resident   tensor() may be read and written
//   parked     its bytes are in the tier and its pages with the system; read() and write() go to the tier
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/device/tier.h"
#include "common/tensor/tensor.h"

namespace tandem::trainer {

class FlatState {
  public:
    // Zeros, resident, filled in the stream's order; the pool is of its device.
    FlatState(Stream& stream, std::int64_t numel, DType dtype, std::string tag, MemoryPool& pool);
    // Zeros that are parked from the start in a file of `directory`: no page is ever touched before fetch().
    static FlatState parked_zeros(std::int64_t numel, DType dtype, std::string tag, MemoryPool& pool,
                                  const std::string& directory);

    const Tensor& tensor() const { return tensor_; }
    std::int64_t numel() const { return tensor_.numel(); }
    bool resident() const { return !released_; }
    // The first park makes the file. Nothing happens when it is there already. Blocking; throw SystemError.
    void park(const std::string& directory);
    void fetch();
    void zero(Stream& stream);

    // Elements [first, first + part.numel()) of the parked state, in the stream's order.
    void read(Stream& stream, std::int64_t first, const Tensor& part) const;
    void write(Stream& stream, std::int64_t first, const Tensor& part);

  private:
    FlatState(Tensor tensor, std::string tag) : tensor_(std::move(tensor)), tag_(std::move(tag)) {}
    std::uint64_t offset(std::int64_t first) const;

    Tensor tensor_;
    std::string tag_;
    std::unique_ptr<Tier> tier_;
    std::unique_ptr<ReleasedPages> released_;  // last: it counts the memory again before that goes
};

}  // namespace tandem::trainer
