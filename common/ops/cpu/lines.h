// Memory of whole cache lines, zero at first: what kernels read and write fastest.
#pragma once

#include <cstddef>
#include <vector>

namespace tandem::ops::detail {

class Lines {
  public:
    Lines() = default;
    explicit Lines(std::size_t bytes) : bytes_(bytes), lines_((bytes + kLine - 1) / kLine) {}

    std::byte* data() { return lines_.empty() ? nullptr : lines_.front().bytes; }
    const std::byte* data() const { return lines_.empty() ? nullptr : lines_.front().bytes; }
    std::size_t bytes() const { return bytes_; }
    // Room for so many bytes; what was there may be lost.
    void reserve(std::size_t bytes) {
        if (bytes > bytes_) *this = Lines(bytes);
    }

  private:
    static constexpr std::size_t kLine = 64;
    struct alignas(kLine) Line {
        std::byte bytes[kLine];
    };
    std::size_t bytes_ = 0;
    std::vector<Line> lines_;
};

}  // namespace tandem::ops::detail
