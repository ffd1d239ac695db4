#include "engine_adapter/receiver/updater.h"

#include <chrono>

#include "common/error.h"
#include "common/log.h"
#include "common/trace.h"

namespace tandem::engine {

Updater::Updater(WeightTarget& target, int copy_threads) : target_(target), team_(copy_threads) {}

Capabilities Updater::capabilities(const std::string& engine, int depth) const {
    Capabilities result{engine, {}, target_.version(), depth};
    for (const WeightSlot& weight : target_.weights()) result.tensors.push_back(weight.info);
    return result;
}

void Updater::attach(SharedArena arena, int slots, std::size_t slot_bytes) {
    if (open_) throw ProtocolError("attach while a version is open");
    arena_ = std::move(arena);
    slots_ = slots;
    slot_bytes_ = slot_bytes;
}

void Updater::detach() {
    arena_ = {};
    slots_ = 0;
}

Update& Updater::require_open(const char* what) {
    if (!open_) {
        throw ProtocolError(fmt::format("{} without an open version{}", what,
                                        last_abort_.empty() ? "" : " (it was aborted: " + last_abort_ + ")"));
    }
    return *open_;
}

void Updater::begin(std::int64_t version) {
    if (open_)
        throw ProtocolError(fmt::format("begin of version {} while {} is open", version, open_->version()));
    target_.begin_update(version);
    open_.emplace(target_.weights(), version);
    dirty_ = false;
    last_abort_.clear();
}

double Updater::bucket(int index, std::int64_t slot, std::span<const wire::Entry> entries) {
    Update& update = require_open("a bucket");
    const auto start = std::chrono::steady_clock::now();
    try {
        if (slot < 0 || slot >= slots_) {
            throw ProtocolError(fmt::format("bucket {}: slot {} of {}", index, slot, slots_));
        }
        update.admit(index, entries, slot_bytes_);
        dirty_ = dirty_ || !entries.empty();
        copy_verified(index, arena_.span().subspan(static_cast<std::size_t>(slot) * slot_bytes_, slot_bytes_),
                      entries);
    } catch (const std::exception& error) {
        abort(error.what());
        throw;
    }
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void Updater::copy_verified(int index, ConstSpan slot, std::span<const wire::Entry> entries) {
    const trace::Scope scope("copy bucket " + std::to_string(index), "copy");
    const auto& weights = target_.weights();
    std::vector<ops::Checksum> found(entries.size());
    team_.run(entries.size(), [&](std::size_t i) {
        const wire::Entry& entry = entries[i];
        ops::CopyItem item;
        item.from = slot.subspan(entry.bucket_offset, entry.bytes);
        item.to = weights[entry.tensor].memory.subspan(entry.tensor_offset, entry.bytes);
        item.checksum = &found[i];
        Stream here = Stream::make_inline();
        ops::batched_copy(here, {&item, 1});
    });
    for (std::size_t i = 0; i < entries.size(); ++i) {
        if (found[i] == entries[i].checksum) continue;
        throw ProtocolError(fmt::format("{} is corrupted: its checksum is {}, the rank announced {}",
                                        open_->describe(index, entries[i]), ops::to_hex(found[i]),
                                        ops::to_hex(entries[i].checksum)));
    }
}

void Updater::commit(std::int64_t version, const ops::Checksum& manifest) {
    Update& update = require_open("commit");
    try {
        if (version != update.version()) {
            throw ProtocolError(
                fmt::format("commit of version {} while {} is open", version, update.version()));
        }
        update.require_whole();
        if (const ops::Checksum mine = update.manifest(); mine != manifest) {
            throw ProtocolError(fmt::format("the manifest of version {} is {}, the trainer's {}", version,
                                            ops::to_hex(mine), ops::to_hex(manifest)));
        }
        target_.commit_update(version);
    } catch (const std::exception& error) {
        abort(error.what());
        throw;
    }
    open_.reset();
}

void Updater::abort(const std::string& reason) {
    if (!open_) return;
    spdlog::warn("update to version {} aborted: {}", open_->version(), reason);
    open_.reset();
    last_abort_ = reason;
    target_.abort_update(reason, dirty_);
}

std::vector<ops::Checksum> Updater::checksums() {
    const auto& weights = target_.weights();
    std::vector<ops::Checksum> result(weights.size());
    team_.run(weights.size(), [&](std::size_t i) { result[i] = ops::checksum(weights[i].memory); });
    return result;
}

}  // namespace tandem::engine
