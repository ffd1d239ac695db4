#include "trainer/policy/non_finite.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>

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
    std::int64_t first_row = 0;  // that the rank holds: ranks with the same ones are replicas
    std::int64_t elements = 0;
    std::int64_t rows = 0;
    std::array<std::int64_t, kNamedRows> named{};  // the first of `rows`
};

// Row by row; called where there is something to be found.
void look_at_rows(const Tensor& local, HostAccess& access, Piece& piece) {
    const std::int64_t at_once = std::max<std::int64_t>(1, kElementsAtOnce * local.dim(0) / local.numel());
    for (std::int64_t first = 0; first < local.dim(0); first += at_once) {
        const std::int64_t count = std::min(at_once, local.dim(0) - first);
        const Tensor rows = access.read(local.rows(first, count));
        for (std::int64_t row = 0; row < count; ++row) {
            const ops::NonFinite found = ops::find_non_finite(rows.rows(row, 1));
            if (found.count == 0) continue;
            if (piece.rows < static_cast<std::int64_t>(kNamedRows))
                piece.named[static_cast<std::size_t>(piece.rows)] = piece.first_row + first + row;
            ++piece.rows;
            piece.elements += found.count;
        }
    }
}

std::vector<Piece> own_pieces(const NamedDTensors& tensors, Stream& stream) {
    std::vector<Piece> pieces;
    HostAccess access;
    for (const auto& [name, tensor] : tensors) {
        Piece piece;
        piece.first_row = tensor.layout().offsets[0];
        const Tensor& local = tensor.local();
        if (local.numel() > 0 && ops::find_non_finite(stream, local).count > 0)
            look_at_rows(local, access, piece);
        pieces.push_back(piece);
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
    const std::vector<Piece> all = gather_pieces(own_pieces(tensors, stream), world);
    std::vector<NonFiniteTensor> result;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        std::map<std::int64_t, const Piece*> parts;  // one a part, in the order of rows
        for (std::size_t at = i; at < all.size(); at += tensors.size()) {
            if (all[at].elements > 0) parts[all[at].first_row] = &all[at];
        }
        if (parts.empty()) continue;
        NonFiniteTensor found;
        found.name = tensors[i].first;
        for (const auto& [first_row, part] : parts) {
            found.elements += part->elements;
            found.rows += part->rows;
            const auto named = std::min(static_cast<std::size_t>(part->rows), kNamedRows);
            found.first_rows.insert(found.first_rows.end(), part->named.begin(),
                                    part->named.begin() + static_cast<std::ptrdiff_t>(named));
        }
        found.first_rows.resize(std::min(found.first_rows.size(), kNamedRows));
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
