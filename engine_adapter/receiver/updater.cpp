#include "engine_adapter/receiver/updater.h"

#include <chrono>

#include "common/error.h"
#include "common/log.h"

namespace tandem::engine {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

constexpr auto kWritten = std::chrono::seconds(10);  // for what the trainer says lies there

std::vector<TensorInfo> infos_of(const std::vector<WeightSlot>& weights) {
    std::vector<TensorInfo> infos;
    for (const WeightSlot& weight : weights) infos.push_back(weight.info);
    return infos;
}

}  // namespace

Updater::Updater(WeightTarget& target, int copy_threads, double link_bytes_per_s)
    : target_(target),
      tensors_(infos_of(target.weights())),
      copier_(target.device(), copy_threads, link_bytes_per_s) {}

Capabilities Updater::capabilities(const std::string& engine, int depth) const {
    return {engine, tensors_, target_.version(), depth, target_.can_alias(), copier_.device()};
}

Held Updater::held() const {
    if (broken_) return {};
    const std::int64_t version = target_.version();
    // A manifest is told only for what lies in the engine's own memory: nothing else can be changed by a
    // delta.
    if (version == held_.version && elsewhere_.empty()) return held_;
    return {version, {}};
}

MappedRegion Updater::map(const RegionHandle& handle, std::size_t bytes,
                          const std::vector<RegionEvent>& written) {
    if (copier_.device().type != DeviceType::cuda)
        throw ProtocolError("the regions are on a GPU, the engine's weights on the CPU");
    MappedRegion region = handles_.map(copier_.device(), handle, bytes);
    region.written = handles_.open(copier_.device(), written);
    return region;
}

void Updater::attach(std::vector<MappedRegion> regions, TransferPlan plan) {
    require_idle("attach");
    auto attached = std::make_unique<Attachment>(std::move(regions), std::move(plan), target_.weights());
    update_.emplace(tensors_, attached->plan());
    attached_ = std::move(attached);
}

void Updater::detach() {
    update_.reset();
    attached_.reset();
    handles_.clear();
    probe_memory_ = {};
}

void Updater::lose_trainer(const std::string& reason) {
    const auto attempt = [](const char* what, const auto& work) {
        try {
            work();
        } catch (const std::exception& error) {
            log_error("receiver: {} failed: {}", what, error.what());
        }
    };
    attempt("abort", [&] { abort(reason); });
    if (!elsewhere_.empty() && copier_.device().type == DeviceType::cuda) {
        const std::string why =
            fmt::format("version {} lay in the GPU memory of a trainer that is gone ({}): publish a version",
                        target_.version(), reason);
        log_error("{}", why);
        broken_ = true;
        elsewhere_.clear();
        attempt("letting go of its memory", [&] { target_.lose_weights(why); });
    }
    detach();
}

void Updater::release() {
    require_idle("release");
    if (!elsewhere_.empty() && copier_.device().type == DeviceType::cuda) copy_home();
    detach();
}

void Updater::require_open(const char* what) const {
    if (open_) return;
    throw ProtocolError(fmt::format("{} without an open version{}", what,
                                    last_abort_.empty() ? "" : " (it was aborted: " + last_abort_ + ")"));
}

void Updater::require_idle(const char* what) const {
    if (open_) throw ProtocolError(fmt::format("{} while version {} is open", what, update_->version()));
}

void Updater::require_own_weights(const char* what) const {
    if (elsewhere_.empty()) return;
    throw ProtocolError(fmt::format(
        "{}: the engine reads its weights in a trainer's memory and holds none of its own", what));
}

// Before the first byte of a version is written. The trainer's memory is never written: the engine turns away
// from it, and what its own memory holds is no whole version until commit.
void Updater::write_own_memory() {
    dirty_ = true;
    if (!elsewhere_.empty()) point_home();
}

void Updater::point_home() {
    std::vector<Span> own;
    for (const WeightSlot& weight : target_.weights()) own.push_back(weight.memory);
    target_.point_weights(own, nullptr);
    elsewhere_.clear();
}

// Runs a part of the open version; when it fails the version is aborted.
template <typename Work>
double Updater::attempt(Work&& work) {
    const auto start = Clock::now();
    try {
        work();
    } catch (const std::exception& error) {
        abort(error.what());
        throw;
    }
    return milliseconds_since(start);
}

void Updater::begin(std::int64_t version) {
    require_idle(fmt::format("begin of version {}", version).c_str());
    if (!attached_) throw ProtocolError(fmt::format("begin of version {} before attach", version));
    has_base_ = held().version != 0 && elsewhere_.empty();
    target_.begin_update(version);
    update_->start(version);
    open_ = true;
    dirty_ = false;
    adopted_.clear();
    last_abort_.clear();
    probe_memory_ = {};
}

double Updater::load(std::int64_t index, std::span<const ops::Checksum> checksums, Incoming* incoming) {
    require_open("a bucket");
    return attempt([&] {
        update_->admit(index, checksums);
        copy_and_verify(index, checksums, incoming);
    });
}

double Updater::load_delta(std::int64_t index, std::span<const DeltaEntry> entries) {
    require_open("a delta");
    return attempt([&] {
        require(attached_->device().type == DeviceType::cpu,
                "changes are read by the CPU, and the regions are on {}", to_string(attached_->device()));
        for (const DeltaEntry& entry : entries) check_delta(index, entry);
        update_->admit_changes(index, entries);
        apply_and_verify(index, entries);
    });
}

double Updater::verify(std::span<const ops::Checksum> checksums) {
    require_open("verify");
    return attempt([&] {
        require_own_weights("verify");
        update_->admit_all("verify", checksums);
        compare_own(checksums);
    });
}

void Updater::adopt(std::uint64_t shift, std::span<const ops::Checksum> checksums) {
    require_open("adopt");
    attempt([&] {
        require(target_.can_alias(), "this engine cannot read weights in place");
        require(attached_->device() == copier_.device(),
                "the engine's weights are on {}: it cannot read them in place on {}",
                to_string(copier_.device()), to_string(attached_->device()));
        if (update_->started()) {
            throw ProtocolError(
                fmt::format("adopt after parts of version {} were loaded", update_->version()));
        }
        update_->admit_all("adopt", checksums);
        adopted_ = attached_->in_place(shift);
        for (const SharedEvent& event : attached_->written()) event.wait(Deadline::after(kWritten));
    });
}

void Updater::commit(std::int64_t version, const ops::Checksum& manifest) {
    require_open("commit");
    attempt([&] {
        if (version != update_->version()) {
            throw ProtocolError(
                fmt::format("commit of version {} while {} is open", version, update_->version()));
        }
        update_->require_whole();
        if (const ops::Checksum mine = update_->manifest(); mine != manifest) {
            throw ProtocolError(fmt::format("the manifest of version {} is {}, the trainer's {}", version,
                                            ops::to_hex(mine), ops::to_hex(manifest)));
        }
        if (!adopted_.empty()) {
            target_.point_weights(adopted_, attached_->regions());
            elsewhere_ = std::move(adopted_);
            dirty_ = true;  // no way back from here
        }
        target_.commit_update(version);
    });
    open_ = broken_ = false;
    held_ = {version, manifest};
}

void Updater::abort(const std::string& reason) {
    if (!open_) return;
    log_warn("update to version {} aborted: {}", update_->version(), reason);
    open_ = false;
    last_abort_ = reason;
    broken_ = broken_ || dirty_;
    target_.abort_update(reason, dirty_);
}

}  // namespace tandem::engine
