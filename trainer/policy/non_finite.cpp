#include "trainer/policy/non_finite.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "common/dtensor/block.h"
#include "common/ops/finite.h"
#include "common/tensor/host_access.h"

namespace tandem::trainer {
namespace {

constexpr std::size_t kNamedRows = 4;
constexpr std::size_t kNamedTensors = 3;
constexpr std::int64_t kElementsAtOnce = 1 << 21;  // that come over from a GPU

using NamedDTensors = std::vector<std::pair<std::string, DTensor>>;

// What a rank has of one tensor, as it travels.
struct Piece {
    std::int64_t first_row = 0,
                 first_column = 0;  // that the rank holds: ranks with the same ones are replicas
    std::int64_t elements = 0;      // infinite or NaN
};

std::vector<Piece> own_pieces(const NamedDTensors& tensors, Stream& stream) {
    std::vector<Piece> pieces;
    for (const auto& [name, tensor] : tensors) {
        const TensorBlock held = held_block(tensor);
        const Tensor& local = tensor.local();
        const std::int64_t elements = local.numel() > 0 ? ops::find_non_finite(stream, local).count : 0;
        pieces.push_back({held.first_row, held.first_column, elements});
    }
    return pieces;
}

std::vector<Piece> gather_pieces(const std::vector<Piece>& own, comm::Communicator& world) {
    std::vector<Piece> all(own.size() * static_cast<std::size_t>(world.size()));
    const auto sent = std::as_bytes(std::span(own));
    const auto received = std::as_writable_bytes(std::span(all));
    world.all_gather(ConstSpan(sent.data(), sent.size()), Span{received.data(), received.size()});
    return all;
}

// Of all ranks, for each tensor: a part of it once, whoever holds it too.
std::vector<std::int64_t> count_elements(const NamedDTensors& tensors, Stream& stream,
                                         comm::Communicator& world) {
    const std::vector<Piece> all = gather_pieces(own_pieces(tensors, stream), world);
    std::vector<std::int64_t> counts;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> parts;
        for (std::size_t at = i; at < all.size(); at += tensors.size()) {
            std::int64_t& most = parts[{all[at].first_row, all[at].first_column}];
            most = std::max(most, all[at].elements);
        }
        counts.push_back(0);
        for (const auto& [begin, elements] : parts) counts.back() += elements;
    }
    return counts;
}

// Sets the flags of this rank's rows that have any.
void look_at_rows(const DTensor& tensor, HostAccess& access, std::span<float> flags) {
    const Tensor& local = tensor.local();
    if (local.numel() == 0) return;
    const auto first_row = static_cast<std::size_t>(held_block(tensor).first_row);
    const std::int64_t at_once = std::max<std::int64_t>(1, kElementsAtOnce * local.dim(0) / local.numel());
    for (std::int64_t first = 0; first < local.dim(0); first += at_once) {
        const std::int64_t count = std::min(at_once, local.dim(0) - first);
        const Tensor rows = access.read(local.rows(first, count));
        for (std::int64_t row = 0; row < count; ++row) {
            if (ops::find_non_finite(rows.rows(row, 1)).count > 0)
                flags[first_row + static_cast<std::size_t>(first + row)] = 1;
        }
    }
}

// Notes the rows of `found`'s tensor in which any rank has some. Collective.
void name_rows(const DTensor& tensor, HostAccess& access, comm::Communicator& world, NonFiniteTensor& found) {
    std::vector<float> flags(static_cast<std::size_t>(tensor.shape()[0]));
    look_at_rows(tensor, access, flags);
    const auto bytes = std::as_writable_bytes(std::span(flags));
    world.all_reduce({bytes.data(), bytes.size()}, DType::float32, comm::ReduceOp::max);
    for (std::size_t row = 0; row < flags.size(); ++row) {
        if (flags[row] == 0) continue;
        ++found.rows;
        if (found.first_rows.size() < kNamedRows) found.first_rows.push_back(static_cast<std::int64_t>(row));
    }
}

std::string rows_text(const NonFiniteTensor& tensor) {
    std::string text = tensor.rows == 1 ? "row" : "rows";
    for (std::size_t i = 0; i < tensor.first_rows.size(); ++i)
        text += fmt::format("{} {}", i > 0 ? "," : "", tensor.first_rows[i]);
    const auto named = static_cast<std::int64_t>(tensor.first_rows.size());
    if (tensor.rows > named) text += fmt::format(" and {} more", tensor.rows - named);
    return text;
}

}  // namespace

std::vector<NonFiniteTensor> find_non_finite(const NamedDTensors& tensors, Stream& stream,
                                             comm::Communicator& world) {
    const std::vector<std::int64_t> elements = count_elements(tensors, stream, world);
    std::vector<NonFiniteTensor> result;
    HostAccess access;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (elements[i] == 0) continue;
        NonFiniteTensor found;
        found.name = tensors[i].first;
        found.elements = elements[i];
        name_rows(tensors[i].second, access, world, found);
        result.push_back(std::move(found));
    }
    return result;
}

std::string text_of(const std::vector<NonFiniteTensor>& tensors) {
    std::string text;
    for (std::size_t i = 0; i < std::min(tensors.size(), kNamedTensors); ++i) {
        const NonFiniteTensor& tensor = tensors[i];
        text += fmt::format("{}{} ({} element{} in {})", i > 0 ? ", " : "", tensor.name, tensor.elements,
                            tensor.elements == 1 ? "" : "s", rows_text(tensor));
    }
    if (tensors.size() > kNamedTensors) {
        const std::size_t more = tensors.size() - kNamedTensors;
        text += fmt::format(" and {} more tensor{}", more, more == 1 ? "" : "s");
    }
    return text;
}

}  // namespace tandem::trainer
