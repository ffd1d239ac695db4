// What the updater does to bytes: copies, applies and hashes them with its team of threads.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "common/error.h"
#include "common/ops/delta.h"
#include "common/trace.h"
#include "engine_adapter/receiver/updater.h"

namespace tandem::engine {
namespace {

// What a probe copies to: larger than a cache, so that it is memory that is measured.
constexpr std::uint64_t kProbeMemory = 64u << 20;
constexpr std::uint64_t kMaxProbePiece = 256u << 20;

}  // namespace

void Updater::copy_and_verify(std::int64_t index, std::span<const ops::Checksum> checksums,
                              Incoming* incoming) {
    const trace::Scope scope("copy bucket " + std::to_string(index), "copy");
    const std::span<const Transfer> transfers = attached_->bucket(static_cast<int>(index));
    if (transfers.empty()) return;
    if (incoming != nullptr) incoming->bring(static_cast<int>(index));
    write_own_memory();
    copier_.wait_for(attached_->written());
    const auto copy_of = [&](std::size_t i) {
        return attached_->copy_of(transfers[i], incoming != nullptr ? incoming->at(transfers[i]) : nullptr);
    };
    const auto& found = copier_.copy(attached_->device(), transfers.size(), copy_of, incoming);
    for (std::size_t i = 0; i < transfers.size(); ++i) {
        if (found[i] == checksums[i]) continue;
        throw ProtocolError(
            fmt::format("bucket {}: {} is corrupted: its checksum is {}, the rank announced {}", index,
                        attached_->describe(transfers[i]), ops::to_hex(found[i]), ops::to_hex(checksums[i])));
    }
}

void Updater::check_delta(std::int64_t index, const DeltaEntry& entry) const {
    const TransferPlan& plan = attached_->plan();
    if (entry.transfer >= plan.transfers.size()) return;  // admit_changes says so
    const Transfer& transfer = plan.transfers[entry.transfer];
    const auto refuse = [&](const std::string& why) {
        throw ProtocolError(fmt::format("bucket {}: {} {}", index, attached_->describe(transfer), why));
    };
    if (entry.codec > static_cast<std::uint32_t>(ops::DeltaCodec::dense)) {
        refuse(fmt::format("is changed by codec number {}", entry.codec));
    }
    // All elements anew need nothing to be there; everything else does.
    if (entry.codec != static_cast<std::uint32_t>(ops::DeltaCodec::dense)) {
        require_own_weights("a delta");
        if (!has_base_) refuse("is changed, but the engine holds no whole version");
    }
    const DType dtype = tensors_[transfer.tensor].dtype;
    if (dtype != DType::float32 && dtype != DType::bfloat16) {
        refuse(fmt::format("is {}, which a delta cannot change", dtype_name(dtype)));
    }
    try {
        attached_->bytes_of(0, entry.offset, entry.bytes);
    } catch (const ProtocolError& error) {
        refuse(std::string("is changed by what cannot be read: ") + error.what());
    }
}

// The whole bucket is verified before any of it is applied: a bucket that is corrupted leaves no trace.
void Updater::apply_and_verify(std::int64_t index, std::span<const DeltaEntry> entries) {
    const trace::Scope scope("apply bucket " + std::to_string(index), "copy");
    if (entries.empty()) return;
    std::vector<ops::Checksum> found(entries.size());
    copier_.share(entries.size(), [&](std::size_t i) {
        copier_.link().take(entries[i].bytes);
        found[i] = ops::checksum(attached_->bytes_of(0, entries[i].offset, entries[i].bytes));
    });
    const auto transfer_of = [&](std::size_t i) -> const Transfer& {
        return attached_->plan().transfers[entries[i].transfer];
    };
    for (std::size_t i = 0; i < entries.size(); ++i) {
        if (found[i] == entries[i].checksum) continue;
        throw ProtocolError(fmt::format(
            "bucket {}: {} is corrupted: the checksum of its changes is {}, the rank announced {}", index,
            attached_->describe(transfer_of(i)), ops::to_hex(found[i]), ops::to_hex(entries[i].checksum)));
    }
    write_own_memory();
    copier_.share(entries.size(), [&](std::size_t i) {
        const Transfer& t = transfer_of(i);
        const std::size_t width = dtype_size(tensors_[t.tensor].dtype);
        const ConstSpan encoded = attached_->bytes_of(0, entries[i].offset, entries[i].bytes);
        try {
            copier_.access().apply(
                static_cast<ops::DeltaCodec>(entries[i].codec), encoded,
                {target_.weights()[t.tensor].memory.data + t.to, t.to_stride,
                 static_cast<std::int64_t>(t.rows), static_cast<std::int64_t>(t.row_elements), width});
        } catch (const ProtocolError& error) {
            throw ProtocolError(
                fmt::format("bucket {}: {}: {}", index, attached_->describe(t), error.what()));
        }
    });
}

void Updater::compare_own(std::span<const ops::Checksum> checksums) {
    const trace::Scope scope("verify", "copy");
    const std::vector<Transfer>& transfers = attached_->plan().transfers;
    const auto& found =
        copier_.read(transfers.size(), [&](std::size_t i) { return attached_->reading_of(transfers[i]); });
    for (std::size_t i = 0; i < transfers.size(); ++i) {
        if (found[i] == checksums[i]) continue;
        throw ProtocolError(fmt::format("{} differs: the engine holds {}, the trainer {}",
                                        attached_->describe(transfers[i]), ops::to_hex(found[i]),
                                        ops::to_hex(checksums[i])));
    }
}

double Updater::probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes) {
    require_idle("probe");
    if (!attached_) throw ProtocolError("probe before attach");
    require(attached_->device().type == DeviceType::cpu,
            "probe: only copies of the CPU's memory are calibrated");
    const ConstSpan from = attached_->bytes_of(0, offset, bytes);
    require(bytes > 0 && piece_bytes > 0 && piece_bytes <= kMaxProbePiece,
            "probe of {} bytes in pieces of {}", bytes, piece_bytes);
    const std::uint64_t piece = std::min(piece_bytes, bytes);
    const std::uint64_t room = std::max(piece, kProbeMemory / piece * piece);
    if (probe_memory_.bytes() < room) {
        probe_memory_ = {};
        probe_memory_ = Buffer(room, "receiver.probe");
        std::memset(probe_memory_.data(), 0, room);  // first touch is not what is measured
    }
    const std::size_t count = (bytes + piece - 1) / piece;
    const std::uint64_t begin = probed_;  // goes on, so that small probes do not stay in a cache
    probed_ += count * piece;
    const auto start = std::chrono::steady_clock::now();
    std::vector<ops::Checksum> found(count);
    copier_.share(count, [&](std::size_t i) {
        const std::uint64_t at = i * piece;
        ops::CopyItem item;
        item.from = from.subspan(at, std::min(piece, bytes - at));
        item.to = probe_memory_.span().subspan((begin + at) / piece * piece % room, item.from.bytes);
        item.checksum = &found[i];
        copier_.link().take(item.from.bytes);
        Stream here = Stream::make_inline();
        ops::batched_copy(here, {&item, 1});
    });
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::vector<ops::Checksum> Updater::checksums() {
    const auto& weights = target_.weights();
    return copier_.read(weights.size(), [&](std::size_t i) {
        ops::CopyItem item;
        item.from = elsewhere_.empty() ? weights[i].memory : elsewhere_[i];
        item.to = {nullptr, item.from.bytes};
        return item;
    });
}

// The version that the engine reads in a trainer's memory, into its own.
void Updater::copy_home() {
    const auto& weights = target_.weights();
    const std::int64_t version = target_.version();
    target_.begin_update(version);
    try {
        copier_.take_home(weights.size(), [&](std::size_t i) {
            ops::CopyItem item;
            item.from = elsewhere_[i];
            item.to = weights[i].memory;
            return item;
        });
        point_home();
        target_.commit_update(version);
    } catch (const std::exception& error) {
        broken_ = true;
        target_.abort_update(error.what(), true);
        throw;
    }
}

}  // namespace tandem::engine
