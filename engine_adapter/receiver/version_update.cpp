#include "engine_adapter/receiver/version_update.h"

#include <chrono>

#include "common/error.h"
#include "common/log.h"
#include "common/stopwatch.h"
#include "common/trace.h"

namespace tandem::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kWritten = std::chrono::seconds(10);  // for the trainer's writes to end

std::vector<TensorInfo> infos_of(const std::vector<WeightSlot>& weights) {
    std::vector<TensorInfo> infos;
    for (const WeightSlot& weight : weights) infos.push_back(weight.info);
    return infos;
}

}  // namespace

VersionUpdate::VersionUpdate(WeightTarget& target, int copy_threads)
    : target_(target),
      tensors_(infos_of(target.weights())),
      writer_(target.device(), copy_threads),
      changes_(target.weights(), writer_),
      newest_(target.version()) {}

Capabilities VersionUpdate::capabilities(const std::string& engine, int depth) const {
    Capabilities all{engine, tensors_, target_.version(), depth, target_.can_alias(), writer_.device()};
    all.architecture = target_.architecture();
    all.context_length = target_.context_length();
    all.newest = newest_;
    return all;
}

Held VersionUpdate::held() const {
    if (broken_) return {};
    const std::int64_t version = target_.version();
    // Only weights in the engine's own memory have a manifest: a delta cannot change any others.
    if (version == held_.version && in_place_.empty()) return held_;
    return {version, {}};
}

MappedRegion VersionUpdate::map(const RegionHandle& handle, std::size_t bytes,
                                const std::vector<RegionEvent>& written) {
    if (writer_.device().type != DeviceType::cuda)
        throw ProtocolError("the regions are on a GPU, the engine's weights on the CPU");
    MappedRegion region = handles_.map(writer_.device(), handle, bytes);
    region.written = handles_.open(writer_.device(), written);
    return region;
}

void VersionUpdate::attach(std::vector<MappedRegion> regions, TransferPlan plan) {
    push_.require_idle("attach");
    auto attached = std::make_unique<Attachment>(std::move(regions), std::move(plan), target_.weights());
    progress_.emplace(tensors_, attached->plan());
    attached_ = std::move(attached);
}

void VersionUpdate::detach() {
    progress_.reset();
    attached_.reset();
    handles_.clear();
    probe_.free_memory();
}

void VersionUpdate::lose_trainer(const std::string& reason) {
    const auto attempt = [](const char* what, const auto& work) {
        try {
            work();
        } catch (const std::exception& error) {
            log_error("receiver: {} failed: {}", what, error.what());
        }
    };
    attempt("abort", [&] { abort(reason); });
    if (!in_place_.empty() && writer_.device().type == DeviceType::cuda) {
        const std::string why =
            fmt::format("version {} lay in the GPU memory of a trainer that is gone ({}): publish a version",
                        target_.version(), reason);
        log_error("{}", why);
        broken_ = true;
        in_place_.clear();
        attempt("letting go of its memory", [&] { target_.lose_weights(why); });
    }
    detach();
}

void VersionUpdate::release() {
    push_.require_idle("release");
    if (!in_place_.empty() && writer_.device().type == DeviceType::cuda) copy_to_own_memory();
    detach();
}

void VersionUpdate::require_open(const char* what) const {
    if (push_.open()) return;
    throw ProtocolError(fmt::format("{} without an open version{}", what,
                                    last_abort_.empty() ? "" : " (it was aborted: " + last_abort_ + ")"));
}

void VersionUpdate::require_own_weights(const char* what) const {
    if (in_place_.empty()) return;
    throw ProtocolError(fmt::format(
        "{}: the engine reads its weights in a trainer's memory and holds none of its own", what));
}

// Empty: the engine's own memory holds a whole version, which can be changed.
std::string VersionUpdate::why_no_base() const {
    if (!in_place_.empty())
        return "is changed, but the engine reads its weights in a trainer's memory and holds none of its own";
    return has_base_ ? "" : "is changed, but the engine holds no whole version";
}

// Call before the first byte of a version is written. The trainer's memory is never written: an engine that
// reads in place goes back to its own memory, which holds no whole version until commit.
void VersionUpdate::write_own_memory() {
    push_.write();
    if (!in_place_.empty()) point_to_own_memory();
}

void VersionUpdate::point_to_own_memory() {
    std::vector<Span> own;
    for (const WeightSlot& weight : target_.weights()) own.push_back(weight.memory);
    target_.point_weights(own, nullptr);
    in_place_.clear();
}

// Runs a part of the open version; when it fails the version is aborted.
template <typename Work>
double VersionUpdate::attempt(Work&& work) {
    const auto start = Clock::now();
    try {
        work();
    } catch (const std::exception& error) {
        abort(error.what());
        throw;
    }
    return ms_since(start);
}

void VersionUpdate::pause(Deadline deadline) {
    push_.require_idle("pause");
    target_.pause(deadline);
    push_.pause();
}

void VersionUpdate::resume() {
    push_.resume();
    target_.resume();
}

void VersionUpdate::begin(std::int64_t version, bool rollback) {
    push_.require_idle(fmt::format("begin of version {}", version).c_str());
    if (!attached_) throw ProtocolError(fmt::format("begin of version {} before attach", version));
    if (version <= newest_ && !rollback) {
        throw ProtocolError(fmt::format(
            "version {} is not above {}, which this engine has had already: say rollback to go back", version,
            newest_));
    }
    if (version <= newest_) log_warn("the trainer goes back to version {} from {}", version, newest_);
    has_base_ = held().version != 0 && in_place_.empty();
    target_.begin_update(version);
    progress_->start(version);
    push_.begin(version);
    adopted_.clear();
    relayed_.clear();
    last_abort_.clear();
    probe_.free_memory();
}

double VersionUpdate::load(std::int64_t index, std::span<const ops::Checksum> checksums,
                           BucketReceiver* receiver) {
    require_open("a bucket");
    return attempt([&] {
        progress_->add_bucket(index, checksums);
        relayed_.clear();
        const trace::Scope scope("copy bucket " + std::to_string(index), "copy");
        if (checksums.empty()) return;
        if (receiver != nullptr) receiver->receive(static_cast<int>(index));
        write_own_memory();
        attached_->load(static_cast<std::size_t>(index), checksums, writer_, receiver);
    });
}

bool VersionUpdate::relays() {
    return attached_ && writer_.can_relay(attached_->relay_cores());
}

void VersionUpdate::require_relays(const RelayOrder& order) {
    if (!relays() || order.words.ranks() != plan().cores.size() || order.engine >= order.words.engines())
        throw ProtocolError("a relay of a plan that does not say on which cores its ranks write");
}

double VersionUpdate::relay(const RelayOrder& order) {
    require_open("a relay");
    return attempt([&] {
        require_relays(order);
        progress_->add_unverified("a relay");
        const trace::Scope scope("copy all buckets", "copy");
        write_own_memory();
        std::vector<ops::Checksum> found;
        attached_->relay(order, writer_, found);
        relayed_ = std::move(found);
    });
}

double VersionUpdate::probe_relay(const RelayOrder& order, const RelayProbe& probe) {
    push_.require_idle("probe");
    require_relays(order);
    return probe_.relay_ms(order, probe, *attached_, writer_);
}

double VersionUpdate::load_delta(std::int64_t index, std::span<const DeltaEntry> entries,
                                 ChangesReceiver* receiver) {
    require_open("a delta");
    return attempt([&] {
        enforce(attached_->device().type == DeviceType::cpu,
                "changes are read by the CPU, and the regions are on {}", to_string(attached_->device()));
        const std::string no_base = why_no_base();
        for (const DeltaEntry& entry : entries) changes_.check(index, entry, *attached_, no_base);
        progress_->add_changes(index, entries);
        relayed_.clear();
        const trace::Scope scope("apply bucket " + std::to_string(index), "copy");
        if (entries.empty()) return;
        if (receiver != nullptr) receiver->receive();
        changes_.take(index, entries, *attached_, receiver);
        write_own_memory();
        changes_.apply();
    });
}

double VersionUpdate::verify(std::span<const ops::Checksum> checksums) {
    require_open("verify");
    return attempt([&] {
        require_own_weights("verify");
        progress_->add_all("verify", checksums);
        const trace::Scope scope("verify", "copy");
        relayed_.empty() ? attached_->verify(checksums, writer_) : attached_->compare(relayed_, checksums);
    });
}

void VersionUpdate::adopt(std::uint64_t shift, std::span<const ops::Checksum> checksums) {
    require_open("adopt");
    attempt([&] {
        enforce(target_.can_alias(), "this engine cannot read weights in place");
        enforce(attached_->device() == writer_.device(),
                "the engine's weights are on {}: it cannot read them in place on {}",
                to_string(writer_.device()), to_string(attached_->device()));
        if (progress_->started()) {
            throw ProtocolError(
                fmt::format("adopt after parts of version {} were loaded", progress_->version()));
        }
        progress_->add_all("adopt", checksums);
        adopted_ = attached_->in_place(shift);
        for (const SharedEvent& event : attached_->written()) event.wait(Deadline::after(kWritten));
    });
}

void VersionUpdate::commit(std::int64_t version, const ops::Checksum& manifest, bool resume) {
    require_open("commit");
    attempt([&] {
        if (resume && attached_->plan().ranks != 1) {
            throw ProtocolError(fmt::format("version {} would be served before all {} ranks have it", version,
                                            attached_->plan().ranks));
        }
        PushState committed = push_;
        committed.commit(version);
        progress_->require_whole(manifest);
        if (!adopted_.empty()) {
            target_.point_weights(adopted_, attached_->regions());
            in_place_ = std::move(adopted_);
            push_.write();  // cannot be undone from here on
        }
        target_.commit_update(version);
        push_ = committed;
    });
    broken_ = false;
    held_ = {version, manifest};
    newest_ = version;
}

void VersionUpdate::abort(const std::string& reason) {
    const bool was_held = push_.held();
    const bool was_open = push_.open();
    const bool only_rank = !attached_ || attached_->plan().ranks == 1;
    // A trainer whose commit was not answered writes its next version to where this one lies; and it may live, also
    // when its connection is gone.
    const PushState::End end = push_.end(only_rank && in_place_.empty());
    if (was_open) {
        log_warn("update to version {} aborted: {}", push_.version(), reason);
        last_abort_ = reason;
        target_.abort_update(reason, end == PushState::End::broken);
    }
    if (end == PushState::End::withheld) {
        const std::string why = fmt::format(
            "version {} is whole, but its trainer left before every rank of this engine had it: publish a "
            "version ({})",
            held_.version, reason);
        log_error("{}", why);
        target_.withhold(why);
    }
    broken_ = broken_ || end == PushState::End::broken || end == PushState::End::withheld;
    if (!was_held) return;
    target_.resume();
    if (!was_open && end != PushState::End::withheld)
        log_warn("the push ended while generation was paused for it: {}", reason);
}

double VersionUpdate::probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes) {
    push_.require_idle("probe");
    if (!attached_) throw ProtocolError("probe before attach");
    enforce(attached_->device().type == DeviceType::cpu,
            "probe: only copies of the CPU's memory are calibrated");
    return probe_.measure_ms(attached_->bytes_of(0, offset, bytes), piece_bytes, writer_, plan().cores);
}

std::vector<ops::Checksum> VersionUpdate::checksums() {
    const auto& weights = target_.weights();
    return writer_.checksums(weights.size(), [&](std::size_t i) {
        ops::CopyItem item;
        item.from = in_place_.empty() ? weights[i].memory : in_place_[i];
        item.to = {nullptr, item.from.bytes};
        return item;
    });
}

// Copies the version that the engine reads in a trainer's memory into its own.
void VersionUpdate::copy_to_own_memory() {
    const auto& weights = target_.weights();
    const std::int64_t version = target_.version();
    target_.begin_update(version);
    try {
        writer_.copy_on_gpu(weights.size(), [&](std::size_t i) {
            ops::CopyItem item;
            item.from = in_place_[i];
            item.to = weights[i].memory;
            return item;
        });
        point_to_own_memory();
        target_.commit_update(version);
    } catch (const std::exception& error) {
        broken_ = true;
        target_.abort_update(error.what(), true);
        throw;
    }
}

}  // namespace tandem::engine
