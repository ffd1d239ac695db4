#include "sync/codec/quantizer.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"
#include "common/trace.h"

namespace tandem::sync {
namespace {

using ops::WeightBox;

// The replicas of a shard in its mesh: how many there are, and which one this rank is.
struct Replica {
    std::int64_t number = 0, count = 1;
};

Replica replica_of(const DTensor& tensor) {
    Replica replica;
    for (std::size_t axis = 0; axis < tensor.placements().size(); ++axis) {
        if (!tensor.placements()[axis].is_replicate()) continue;
        const auto size = tensor.mesh().sizes()[axis];
        replica = {replica.number * size + tensor.mesh().coordinates()[axis], replica.count * size};
    }
    return replica;
}

// Calls body(local start, global start, size) for the parts of [start, stop) in each run of global indices.
template <typename Body>
void for_runs(const std::vector<Run>& runs, std::int64_t start, std::int64_t stop, const Body& body) {
    std::int64_t at = 0;
    for (const auto& [first, last] : runs) {
        const std::int64_t from = std::max(start, at);
        const std::int64_t to = std::min(stop, at + last - first);
        if (from < to) body(from, first + from - at, to - from);
        at += last - first;
    }
}

// A box of a shard, in the shard's indices, as boxes of the whole weight, row run by row run.
template <typename Body>
void for_boxes(const Tensor& shard, const LocalLayout& layout, const WeightBox& box, const Body& body) {
    const auto width = dtype_size(shard.dtype());
    const std::int64_t columns = layout.shape[1];
    for_runs(layout.runs[0], box.row, box.row + box.rows, [&](auto row, auto global_row, auto rows) {
        for_runs(layout.runs[1], box.column, box.column + box.columns,
                 [&](auto column, auto global_column, auto count) {
                     body(WeightBox{shard.raw() + static_cast<std::size_t>(row * columns + column) * width,
                                    static_cast<std::size_t>(columns) * width, shard.dtype(), global_row,
                                    global_column, rows, count});
                 });
    });
}

// Elements [first, first + count) of a shard as boxes of it whose bytes follow each other: a row's end, whole
// rows, a row's beginning. None spans a gap between the shard's columns: in the engine's tensor there is one
// too, so no move does.
template <typename Body>
void for_boxes_of_run(const LocalLayout& layout, std::int64_t first, std::int64_t count, const Body& body) {
    const std::int64_t columns = layout.shape[1];
    while (count > 0) {
        WeightBox box;
        box.row = first / columns;
        box.column = first % columns;
        box.rows = 1;
        box.columns = std::min(count, columns - box.column);
        if (box.columns == columns) box.rows = count / columns;
        body(box);
        first += box.rows * box.columns;
        count -= box.rows * box.columns;
    }
}

}  // namespace

Quantizer::Quantizer(comm::Communicator& world, const WeightSource& source,
                     const std::vector<QuantizedTensor>& tensors, const std::vector<int>& local)
    : source_(source), entries_(local.size()) {
    std::size_t total = 0;
    for (const QuantizedTensor& one : tensors) {
        total += static_cast<std::size_t>(one.grid.scale_rows() * one.grid.scale_columns());
    }
    if (total == 0) return;
    table_ = Buffer(total * sizeof(float), "scales", world.memory());
    std::size_t at = 0;
    for (const QuantizedTensor& one : tensors) {
        Weight weight;
        weight.info = one;
        weight.local = local[static_cast<std::size_t>(one.values)];
        const Shape shape{one.grid.scale_rows(), one.grid.scale_columns()};
        const std::size_t bytes = static_cast<std::size_t>(numel(shape)) * sizeof(float);
        weight.scales = Tensor::borrow(table_.span().subspan(at, bytes), shape, DType::float32);
        at += bytes;
        if (weight.local >= 0) {
            const DTensor& tensor = source.tensors()[static_cast<std::size_t>(weight.local)].tensor;
            const Replica replica = replica_of(tensor);
            weight.layout = tensor.layout();
            weight.columns = weight.layout.shape[1];
            weight.first_row = weight.layout.shape[0] * replica.number / replica.count;
            weight.end_row = weight.layout.shape[0] * (replica.number + 1) / replica.count;
        }
        entries_[static_cast<std::size_t>(one.values)] = {Role::values, weights_.size()};
        entries_[static_cast<std::size_t>(one.scales)] = {Role::scales, weights_.size()};
        weights_.push_back(std::move(weight));
    }
}

const Quantizer::Weight* Quantizer::weight_of(int source_tensor) const {
    const Entry& entry = entries_[static_cast<std::size_t>(source_tensor)];
    return entry.role == Role::values ? &weights_[entry.weight] : nullptr;
}

const Tensor* Quantizer::scales(int source_tensor) const {
    const Entry& entry = entries_[static_cast<std::size_t>(source_tensor)];
    return entry.role == Role::scales ? &weights_[entry.weight].scales : nullptr;
}

const Tensor& Quantizer::shard(const Weight& weight) const {
    return source_.tensors()[static_cast<std::size_t>(weight.local)].tensor.local();
}

void Quantizer::scan() {
    const trace::Scope scope("look for magnitudes", "prepare");
    std::memset(table_.data(), 0, table_.bytes());
    for (const Weight& weight : weights_) {
        if (weight.local < 0) continue;
        const Tensor& shard = this->shard(weight);
        const std::string& name = source_.tensors()[static_cast<std::size_t>(weight.local)].name;
        enforce(shard.dtype() == weight.info.held && shard.shape() == weight.layout.shape,
                "tensor '{}' changed its dtype or layout since the session began", name);
        WeightBox part;
        part.row = weight.first_row;
        part.rows = weight.end_row - weight.first_row;
        part.columns = weight.columns;
        try {
            for_boxes(shard, weight.layout, part, [&](const WeightBox& box) {
                ops::accumulate_amax(box, weight.info.grid, values_of(weight));
            });
        } catch (const InvalidArgument& error) {
            throw BadInput(fmt::format("tensor '{}' cannot be quantised: {}", name, error.what()));
        }
    }
}

void Quantizer::agree_on_scales(comm::Communicator& world) {
    world.all_reduce(table_.span(), DType::float32, comm::ReduceOp::max);
    for (const Weight& weight : weights_) ops::amax_to_scale(weight.info.grid, values_of(weight));
}

ops::Checksum Quantizer::copy(const Move& move, std::byte* to, std::size_t to_stride) const {
    const Weight& weight = *weight_of(move.source_tensor);
    const Tensor& shard = this->shard(weight);
    const auto row_bytes = static_cast<std::size_t>(move.row_elements);  // a byte each
    ops::Checksum checksum;
    int boxes = 0;
    std::byte* at = to;
    const auto write = [&](const WeightBox& part) {
        for_boxes(shard, weight.layout, part, [&](const WeightBox& box) {
            const auto bytes = static_cast<std::size_t>(box.rows * box.columns);
            checksum = ops::quantize(box, weight.info.grid, values_of(weight), {at, bytes});
            at += bytes;
            ++boxes;
        });
    };
    WeightBox slice;  // all of it, when it is the same columns of rows that follow each other
    slice.row = move.source_offset / weight.columns;
    slice.column = move.source_offset % weight.columns;
    slice.rows = move.rows;
    slice.columns = move.row_elements;
    const bool one_slice = move.rows > 1 && to_stride == row_bytes && move.source_stride == weight.columns &&
                           slice.column + slice.columns <= weight.columns;
    if (one_slice) write(slice);
    for (std::int64_t row = 0; row < move.rows && !one_slice; ++row) {
        at = to + static_cast<std::size_t>(row) * to_stride;
        for_boxes_of_run(weight.layout, move.source_offset + row * move.source_stride, move.row_elements,
                         write);
    }
    if (boxes == 1) return checksum;
    ops::CopyItem written;  // still in the cache
    written.from = {to, row_bytes};
    written.to = {nullptr, row_bytes};
    written.rows = move.rows;
    written.from_stride = to_stride;
    written.to_stride = row_bytes;
    return ops::copy_checksum(written);
}

}  // namespace tandem::sync
