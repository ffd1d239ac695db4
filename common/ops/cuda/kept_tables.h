// Small tables that ops send from the host (positions, segments of attention), as they lie on a stream's
// device: all layers of a pass ask for the same ones, and an upload takes microseconds of the stream. They
// are known by their bytes; a few are kept with the stream, whose order their memory follows.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace tandem {
class Stream;
}

namespace tandem::ops {

class KeptTables {
  public:
    using Memory = std::shared_ptr<const std::byte>;
    static constexpr std::size_t kMost = 64;                         // a ring of eight asks for some forty
    static constexpr std::size_t kMostBytes = std::size_t{4} << 20;  // of all together

    static KeptTables& of(Stream& stream);

    KeptTables();
    ~KeptTables();
    KeptTables(const KeptTables&) = delete;
    KeptTables& operator=(const KeptTables&) = delete;

    // The memory with these bytes, which `make` uploads unless they are kept. The caller holds it until its
    // kernels are launched. The least recently used goes first; a table larger than kMostBytes is not kept.
    // Thread-safe.
    Memory find(std::span<const std::byte> bytes, const std::function<Memory()>& make);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace tandem::ops
