// The peak that a run really had.
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/device/memory.h"
#include "common/device/process_memory.h"
#include "trainer/memory/report.h"

namespace tandem::trainer::memory {
namespace {

using nlohmann::ordered_json;

Prediction found() {
    Prediction result{memory_phase_peaks(), ""};
    for (const auto& [phase, peak] : result.phases) {
        if (result.phase.empty() || peak.bytes > result.peak().bytes) result.phase = phase;
    }
    return result;
}

}  // namespace

ordered_json measured(comm::Communicator& world, const std::optional<Prediction>& prediction) {
    const Prediction mine = found();
    const ProcessMemory process = process_memory();
    using Numbers = std::array<std::uint64_t, 3>;
    const Numbers own{mine.peak().bytes, process.peak_bytes, process.shared_bytes};
    std::vector<Numbers> all(static_cast<std::size_t>(world.size()));
    const auto sent = std::as_bytes(std::span(own));
    const auto received = std::as_writable_bytes(std::span(all));
    world.all_gather(ConstSpan(sent.data(), sent.size()), Span{received.data(), received.size()});
    ordered_json ranks = ordered_json::array();
    for (const Numbers& of_rank : all) {
        ranks.push_back({{"peak_bytes", of_rank[0]},
                         {"peak_resident_bytes", of_rank[1]},
                         {"shared_resident_bytes", of_rank[2]}});
    }
    ordered_json result;
    if (prediction) result["predicted"] = to_json(*prediction);
    result["measured"] = to_json(mine);
    if (prediction)
        result["ratio"] =
            static_cast<double>(mine.peak().bytes) / static_cast<double>(prediction->peak().bytes);
    result["ranks"] = std::move(ranks);
    return result;
}

}  // namespace tandem::trainer::memory
