#include "engine_adapter/hf_directory/staging_engine.h"

#include "common/error.h"

namespace tandem::engine {
namespace {

[[noreturn]] void refuse(const std::string& peer, const char* what) {
    throw BadInput(fmt::format("{} {}", peer, what));
}

}  // namespace

void StagingEngine::attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline) {
    stager().attach(regions, plan);
}

void StagingEngine::release(Deadline) {
    stager().release();
}

double StagingEngine::probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes, Deadline) {
    return stager().probe(offset, bytes, piece_bytes);
}

Held StagingEngine::held(Deadline deadline) {
    if (held_.version == 0 || weight_version(deadline) != std::to_string(held_.version)) return {};
    return held_;
}

void StagingEngine::begin(std::int64_t version, Deadline) {
    const std::int64_t newest = capabilities_.version;
    if (version <= newest && !rollback_) {
        throw ProtocolError(fmt::format("version {} is not above {}, which {} has", version, newest, peer()));
    }
    stager().begin(version);
}

void StagingEngine::committed(std::int64_t version, const ops::Checksum& manifest) {
    capabilities_.version = version;
    held_ = {version, manifest};
    rollback_ = false;
}

double StagingEngine::verify(std::span<const ops::Checksum>, Deadline) {
    refuse(peer(), "cannot tell which bytes it holds: compare its log-probs");
}

void StagingEngine::adopt(std::uint64_t, std::span<const ops::Checksum>, Deadline) {
    refuse(peer(), "does not read weights in place: use mode gather");
}

std::vector<ops::Checksum> StagingEngine::checksums(Deadline) {
    refuse(peer(), "cannot tell which bytes it holds: compare its log-probs");
}

}  // namespace tandem::engine
