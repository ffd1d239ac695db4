#include "common/dtensor/runs_copy.h"

#include <cstdint>
#include <cstring>

namespace tandem {
namespace {

// Calls move(offset in the tensor, offset in the block, bytes) for every contiguous piece.
template <typename Move>
std::size_t for_each_piece(const Shape& shape, int dim, const std::vector<Run>& runs,
                           std::size_t element_bytes, const Move& move) {
    const auto at = static_cast<std::size_t>(dim);
    std::size_t outer = 1;
    for (std::size_t i = 0; i < at; ++i) outer *= static_cast<std::size_t>(shape[i]);
    std::size_t inner_bytes = element_bytes;
    for (std::size_t i = at + 1; i < shape.size(); ++i) inner_bytes *= static_cast<std::size_t>(shape[i]);
    const std::size_t outer_bytes = static_cast<std::size_t>(shape[at]) * inner_bytes;
    std::size_t packed = 0;
    if (inner_bytes == 0) return 0;
    for (std::size_t o = 0; o < outer; ++o) {
        for (const auto& [start, stop] : runs) {
            const std::size_t bytes = static_cast<std::size_t>(stop - start) * inner_bytes;
            move(o * outer_bytes + static_cast<std::size_t>(start) * inner_bytes, packed, bytes);
            packed += bytes;
        }
    }
    return packed;
}

}  // namespace

std::size_t take_runs(const std::byte* from, const Shape& shape, int dim, const std::vector<Run>& runs,
                      std::size_t element_bytes, std::byte* to) {
    return for_each_piece(shape, dim, runs, element_bytes,
                          [&](std::size_t whole, std::size_t packed, std::size_t bytes) {
                              std::memcpy(to + packed, from + whole, bytes);
                          });
}

std::size_t put_runs(const std::byte* from, const Shape& shape, int dim, const std::vector<Run>& runs,
                     std::size_t element_bytes, std::byte* to) {
    return for_each_piece(shape, dim, runs, element_bytes,
                          [&](std::size_t whole, std::size_t packed, std::size_t bytes) {
                              std::memcpy(to + whole, from + packed, bytes);
                          });
}

}  // namespace tandem
