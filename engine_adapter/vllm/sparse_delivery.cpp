#include "engine_adapter/vllm/sparse_delivery.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "common/align.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "common/log.h"
#include "engine_adapter/vllm/backend_update.h"

namespace tandem::engine {
namespace {

constexpr const char* kTag = "engine.changes";
constexpr std::uint64_t kAlign = 16;  // of a tensor's indices and of its elements, in a chunk

std::uint64_t elements_in(std::vector<ChangedRun>::const_iterator first,
                          std::vector<ChangedRun>::const_iterator last) {
    return std::accumulate(first, last, std::uint64_t{0},
                           [](std::uint64_t sum, const ChangedRun& run) { return sum + run.count; });
}

Buffer count_from(std::uint64_t first, std::uint64_t count) {
    Buffer indices(count * sizeof(std::int32_t), kTag, pinned_pool());
    auto* const to = reinterpret_cast<std::int32_t*>(indices.data());
    std::iota(to, to + count, static_cast<std::int32_t>(first));
    return indices;
}

ChangedRuns changed_runs(const std::string& server, const GpuStager& stager, std::uint64_t run_bytes) {
    try {
        return {stager.tensors(), stager.layout(), run_bytes};
    } catch (const BadInput& error) {
        throw BadInput(
            fmt::format("{} cannot be sent its weights by its backend \"sparse_nccl\": {}; start it with "
                        "--weight-transfer-config '{{\"backend\":\"nccl\"}}'",
                        server, error.what()));
    }
}

}  // namespace

SparseDelivery::SparseDelivery(VllmServer& server, const VllmInfo& info, const std::string& key,
                               Device device, const ConnectOptions& options, Deadline deadline)
    : stager_(info.tensors, server.name(), device, packed_bytes(options)),
      model_(info.model.directory),
      staging_(options.staging),
      packed_bytes_(packed_bytes(options)),
      changed_(changed_runs(server.name(), stager_, packed_bytes(options))),
      group_(server, key, options, deadline) {}

void SparseDelivery::note(const std::string& server, std::int64_t version) {
    stager_.note(server, staging_, model_, version);
}

bool SparseDelivery::server_holds_delivered(VllmServer& server, Deadline deadline) const {
    return delivered_version_ != 0 && delivered_.device() == stager_.device() &&
           server.weight_version(deadline) == std::to_string(delivered_version_);
}

// Where the server holds something else, who knows whether it is still the process whose workers joined.
void SparseDelivery::finish(VllmServer& server, std::int64_t version, const ops::Checksum& manifest,
                            Deadline deadline) {
    stager_.finish(version, manifest);
    const bool known = server_holds_delivered(server, deadline);
    delivered_version_ = 0;  // until this one is delivered
    find_changes(known);
    if (!group_.formed() || !known) group_.form(stager_.device(), nlohmann::json::object(), deadline);
}

void SparseDelivery::find_changes(bool known) {
    runs_.clear();
    const std::uint64_t bytes = stager_.layout().bytes;
    if (delivered_.bytes() < bytes || delivered_.device() != stager_.device())
        delivered_ = ExportArena::create(stager_.device(), bytes, "engine.delivered");
    Stream stream = Stream::make_compute(stager_.device());
    const ConstSpan staged = stager_.memory().subspan(0, bytes);
    const Span base = delivered_.span().subspan(0, bytes);
    runs_ = known ? changed_.since(stream, staged, base) : changed_.all(stream, staged, base);
}

void SparseDelivery::deliver(VllmServer& server, std::int64_t version, bool broken, Deadline deadline) {
    if (!runs_.empty()) {
        open_update(server, broken, deadline);
        for (Run first = runs_.begin(); first != runs_.end();) {
            const Run last = end_of_call(first);
            send(first, last, deadline);
            first = last;
        }
        close_update(server, deadline);
    }
    log_debug("{}: {} elements were sent", server.name(), elements_in(runs_.begin(), runs_.end()));
    runs_.clear();
    delivered_version_ = version;
}

std::uint64_t SparseDelivery::bytes_of(const ChangedRun& run) const {
    return run.bytes(dtype_size(stager_.tensors()[run.tensor].dtype));
}

// Without chunks: a tensor.
SparseDelivery::Run SparseDelivery::end_of_call(Run first) const {
    std::uint64_t bytes = bytes_of(*first);
    Run last = first + 1;
    while (last != runs_.end() && bytes + bytes_of(*last) <= packed_bytes_) bytes += bytes_of(*last++);
    return last;
}

void SparseDelivery::send(Run first, Run last, Deadline deadline) {
    std::uint64_t bytes = 0;
    for (Run run = first; run != last; ++run) bytes += bytes_of(*run) + 2 * kAlign;
    if (chunk_.bytes() < bytes || chunk_.device() != stager_.device()) {
        chunk_ = {};
        chunk_ = ExportArena::create(stager_.device(), bytes, kTag);
    }
    std::vector<const TensorInfo*> tensors;
    std::vector<std::uint64_t> counts;
    std::vector<Span> pieces;
    std::vector<Buffer> in_flight;
    std::uint64_t at = 0;
    for (Run run = first; run != last;) {
        const Run end =
            std::find_if(run, last, [&](const ChangedRun& one) { return one.tensor != run->tensor; });
        tensors.push_back(&stager_.tensors()[run->tensor]);
        counts.push_back(elements_in(run, end));
        for (const Span piece : place(run, end, at, in_flight)) pieces.push_back(piece);
        run = end;
    }
    group_.update(sparse_update_info(tensors, counts), pieces, deadline);
}

std::vector<Span> SparseDelivery::place(Run first, Run last, std::uint64_t& at,
                                        std::vector<Buffer>& in_flight) {
    const std::size_t width = dtype_size(stager_.tensors()[first->tensor].dtype);
    const std::uint64_t count = elements_in(first, last);
    const Span indices = chunk_.span().subspan(round_up(at, kAlign), count * sizeof(std::int32_t));
    at = round_up(at, kAlign) + indices.bytes;
    const Span values = chunk_.span().subspan(round_up(at, kAlign), count * width);
    at = round_up(at, kAlign) + values.bytes;
    std::uint64_t done = 0;
    for (Run run = first; run != last; ++run) {
        ConstSpan listed = run->indices.span();
        if (!run->listed()) listed = in_flight.emplace_back(count_from(run->first, run->count)).span();
        const std::uint64_t begin = stager_.layout().begin[run->tensor] + run->first * width;
        const ConstSpan fresh =
            run->listed() ? run->values.span() : stager_.memory().subspan(begin, run->count * width);
        copy(group_.stream(), listed, indices.subspan(done * sizeof(std::int32_t), listed.bytes));
        copy(group_.stream(), fresh, values.subspan(done * width, fresh.bytes));
        done += run->count;
    }
    return {indices, values};
}

}  // namespace tandem::engine
