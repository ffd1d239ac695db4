#include "common/dtensor/conversions.h"

#include <cstring>
#include <utility>

#include "common/dtensor/runs_copy.h"
#include "common/error.h"

namespace tandem {
namespace {

using Kind = RedistributeStep::Kind;
using RunLists = std::vector<std::vector<Run>>;  // one list for each rank of the axis

constexpr const char* kTag = "dtensor";

// The sizes of a conversion along one axis, worked out once.
struct Axis {
    comm::Communicator* comm;
    int size;
    int rank;
    std::int64_t n;  // indices of the sharded dim that the axis cuts
};

Tensor fresh(const DeviceMesh& mesh, Shape shape, DType dtype) {
    return Tensor::empty(std::move(shape), dtype, kTag, mesh.memory());
}

RunLists all_runs(const Placement& placement, const Axis& axis) {
    RunLists result;
    for (int r = 0; r < axis.size; ++r) result.push_back(axis_runs(placement, axis.n, axis.size, r));
    return result;
}

// Pieces along `dim` of a tensor of this shape follow one another in memory, rank after rank.
bool pieces_are_slices(const Placement& placement, const Shape& shape) {
    if (placement.kind != Placement::Kind::shard) return false;
    for (int i = 0; i < placement.dim; ++i) {
        if (shape[static_cast<std::size_t>(i)] != 1) return false;
    }
    return true;
}

// Elements of rank 0's piece, the largest, when `shape` is some rank's piece.
std::int64_t slot_numel(const Placement& placement, Shape shape, const Axis& axis) {
    shape[static_cast<std::size_t>(placement.dim)] = axis_numel(placement, axis.n, axis.size, 0);
    return numel(shape);
}

// The queue holds on to tensors until the work before this point is done. An inline stream's is.
template <typename... Tensors>
void keep(Stream& stream, const Tensors&... tensors) {
    if (stream.is_inline()) return;
    stream.enqueue([tensors...] { ((void)tensors, ...); });
}

Tensor all_gather(const RedistributeStep& step, const Tensor& local, const DeviceMesh& mesh, const Axis& axis,
                  Stream& stream) {
    const std::int64_t slot = slot_numel(step.from, step.local_before, axis);
    const std::size_t slot_bytes = static_cast<std::size_t>(slot) * dtype_size(local.dtype());
    const Tensor slots = fresh(mesh, {slot * axis.size}, local.dtype());
    comm::GatherItem item{local.span(), slots.span()};
    if (local.bytes() < slot_bytes) {  // a short piece: sent from its slot, which has the room
        item.send = slots.span().subspan(static_cast<std::size_t>(axis.rank) * slot_bytes, slot_bytes);
        stream.enqueue([local, slots, to = item.recv.data + static_cast<std::size_t>(axis.rank) * slot_bytes,
                        slot_bytes] {
            if (local.bytes() > 0) std::memcpy(to, local.raw(), local.bytes());
            std::memset(to + local.bytes(), 0, slot_bytes - local.bytes());
        });
    }
    axis.comm->all_gather(std::span(&item, 1), stream);
    keep(stream, local, slots);
    if (pieces_are_slices(step.from,
                          step.local_after)) {  // only the last pieces are short: the slots are the result
        return slots.rows(0, numel(step.local_after)).reshape(step.local_after);
    }
    const Tensor result = fresh(mesh, step.local_after, local.dtype());
    stream.enqueue([slots, result, slot_bytes, dim = step.from.dim, runs = all_runs(step.from, axis)] {
        for (std::size_t r = 0; r < runs.size(); ++r) {
            put_runs(slots.raw() + r * slot_bytes, result.shape(), dim, runs[r], dtype_size(result.dtype()),
                     result.raw());
        }
    });
    return result;
}

Tensor reduce_scatter(const RedistributeStep& step, const Tensor& local, const DeviceMesh& mesh,
                      const Axis& axis, Stream& stream) {
    const std::int64_t slot = slot_numel(step.to, step.local_after, axis);
    const std::size_t slot_bytes = static_cast<std::size_t>(slot) * dtype_size(local.dtype());
    const Tensor mine = fresh(mesh, {slot}, local.dtype());
    Tensor slots = local;
    if (!pieces_are_slices(step.to, step.local_before) || axis.n % axis.size != 0) {
        slots = fresh(mesh, {slot * axis.size}, local.dtype());
        stream.enqueue([local, slots, slot_bytes, dim = step.to.dim, runs = all_runs(step.to, axis)] {
            for (std::size_t r = 0; r < runs.size(); ++r) {
                std::byte* to = slots.raw() + r * slot_bytes;
                const std::size_t taken =
                    take_runs(local.raw(), local.shape(), dim, runs[r], dtype_size(local.dtype()), to);
                std::memset(to + taken, 0, slot_bytes - taken);
            }
        });
    }
    const comm::ReduceScatterItem item{slots.span(), mine.span(), local.dtype(), false};
    axis.comm->reduce_scatter(std::span(&item, 1), step.from.reduce_op, stream);
    keep(stream, slots, mine);
    return mine.rows(0, numel(step.local_after)).reshape(step.local_after);
}

Tensor all_reduce(const RedistributeStep& step, const Tensor& local, const DeviceMesh& mesh, const Axis& axis,
                  Stream& stream) {
    const Tensor result = fresh(mesh, step.local_after, local.dtype());
    stream.enqueue([local, result] { std::memcpy(result.raw(), local.raw(), local.bytes()); });
    axis.comm->all_reduce(result.span(), local.dtype(), step.from.reduce_op, stream);
    keep(stream, result);
    return result;
}

// The data that moves between every two ranks: along the old dim the sender's piece, along the new one the
// receiver's; on one dim what both hold. Blocks have their real sizes: nothing is padded.
Tensor all_to_all(const RedistributeStep& step, const Tensor& local, const DeviceMesh& mesh, const Axis& axis,
                  const Axis& to_axis, Stream& stream) {
    RunLists take = all_runs(step.to, to_axis);  // of the local piece, for each receiver
    RunLists put = all_runs(step.from, axis);    // of the result, from each sender
    const bool one_dim = step.from.dim == step.to.dim;
    if (one_dim) {
        const std::vector<Run> old_piece = put[static_cast<std::size_t>(axis.rank)];
        const std::vector<Run> new_piece = take[static_cast<std::size_t>(axis.rank)];
        for (auto& runs : take) runs = positions_in(old_piece, common_runs(old_piece, runs));
        for (auto& runs : put) runs = positions_in(new_piece, common_runs(new_piece, runs));
    }
    const std::size_t element_bytes = dtype_size(local.dtype());
    const auto block_bytes = [&](Shape shape, int dim, const std::vector<Run>& runs) {
        shape[static_cast<std::size_t>(dim)] = total_size(runs);
        return static_cast<std::size_t>(numel(shape)) * element_bytes;
    };
    comm::AllToAllItem item;
    for (const auto& runs : take)
        item.send_bytes.push_back(block_bytes(step.local_before, step.to.dim, runs));
    for (const auto& runs : put)
        item.recv_bytes.push_back(block_bytes(step.local_after, step.from.dim, runs));

    const Tensor result = fresh(mesh, step.local_after, local.dtype());
    const bool send_in_place = !one_dim && pieces_are_slices(step.to, step.local_before);
    const bool recv_in_place = !one_dim && pieces_are_slices(step.from, step.local_after);
    const Tensor send = send_in_place ? local : fresh(mesh, step.local_before, local.dtype());
    const Tensor recv = recv_in_place ? result : fresh(mesh, step.local_after, local.dtype());
    if (!send_in_place) {
        stream.enqueue([local, send, take, dim = step.to.dim, element_bytes] {
            std::byte* to = send.raw();
            for (const auto& runs : take)
                to += take_runs(local.raw(), local.shape(), dim, runs, element_bytes, to);
        });
    }
    item.send = send.span();
    item.recv = recv.span();
    axis.comm->all_to_all(item, stream);
    keep(stream, send, recv);
    if (!recv_in_place) {
        stream.enqueue([recv, result, put, dim = step.from.dim, element_bytes] {
            const std::byte* from = recv.raw();
            for (const auto& runs : put) {
                from += put_runs(from, result.shape(), dim, runs, element_bytes, result.raw());
            }
        });
    }
    return result;
}

Tensor local_chunk(const RedistributeStep& step, const Tensor& local, const DeviceMesh& mesh,
                   const Axis& axis, Stream& stream) {
    const Tensor result = fresh(mesh, step.local_after, local.dtype());
    stream.enqueue(
        [local, result, dim = step.to.dim, runs = axis_runs(step.to, axis.n, axis.size, axis.rank)] {
            take_runs(local.raw(), local.shape(), dim, runs, dtype_size(local.dtype()), result.raw());
        });
    return result;
}

Tensor partition(const RedistributeStep& step, const Tensor& local, const DeviceMesh& mesh, const Axis& axis,
                 Stream& stream) {
    const Tensor result = fresh(mesh, step.local_after, local.dtype());
    stream.enqueue([local, result, parts = static_cast<float>(axis.size)] {
        for (std::int64_t i = 0; i < local.numel(); ++i) {
            if (local.dtype() == DType::float32) {
                result.data<float>()[i] = local.data<float>()[i] / parts;
            } else {
                result.data<bfloat16>()[i] = bfloat16(static_cast<float>(local.data<bfloat16>()[i]) / parts);
            }
        }
    });
    return result;
}

void check_dtype(Kind kind, DType dtype) {
    if (kind != Kind::all_reduce && kind != Kind::reduce_scatter && kind != Kind::partition) return;
    require(dtype == DType::float32 || dtype == DType::bfloat16 ||
                (dtype == DType::int64 && kind == Kind::all_reduce),
            "{} of a {} DTensor: Partial conversions take float32 and bfloat16, all_reduce int64 too",
            to_string(kind), dtype_name(dtype));
}

}  // namespace

Tensor convert(const RedistributeStep& step, const Tensor& local, const DeviceMesh& mesh, Stream& stream) {
    if (step.kind == Kind::none) return local;
    check_dtype(step.kind, local.dtype());
    const auto axis_of = [&](const Placement& shard) {
        const std::int64_t n = shard.is_shard() ? step.logical_shape[static_cast<std::size_t>(shard.dim)] : 0;
        return Axis{nullptr, mesh.size(step.axis), mesh.coordinate(step.axis), n};
    };
    Axis from = axis_of(step.from);
    Axis to = axis_of(step.to);
    if (step.kind == Kind::local_chunk) return local_chunk(step, local, mesh, to, stream);
    if (step.kind == Kind::partition) return partition(step, local, mesh, to, stream);
    Shape whole = step.local_before;
    if (step.from.is_shard()) whole[static_cast<std::size_t>(step.from.dim)] = from.n;
    if (numel(whole) == 0) return fresh(mesh, step.local_after, local.dtype());  // the whole group sees that
    from.comm = to.comm = &mesh.communicator(step.axis);
    switch (step.kind) {
        case Kind::all_gather:
            return all_gather(step, local, mesh, from, stream);
        case Kind::all_to_all:
            return all_to_all(step, local, mesh, from, to, stream);
        case Kind::all_reduce:
            return all_reduce(step, local, mesh, from, stream);
        default:
            return reduce_scatter(step, local, mesh, to, stream);
    }
}

}  // namespace tandem
