#include "trainer/memory/predict.h"

#include <utility>

#include "common/comm/launch.h"
#include "common/device/counting.h"
#include "trainer/policy/policy.h"
#include "trainer/policy/token_buffer.h"

namespace tandem::trainer::memory {
namespace {

constexpr const char* kPassing = "speed of light";  // measured once, and not kept

class Rank {
  public:
    Rank(const model::ModelConfig& model, const PolicyOptions& options, const DeviceMesh& mesh,
         const Work& work)
        : work_(work),
          sleep_(options.deepest_sleep),
          policy_(DeviceMesh::create(comm::silent(mesh.rank(), mesh.size()), mesh.sizes(), mesh.names()),
                  model, walking(options)) {
        if (work.reference) policy_.set_reference();
    }

    void run() {
        reset_memory_peaks();
        if (!work_.sync.empty()) connect();
        for (const Work::Step& step : work_.steps) {
            walk(step);
            publish();
        }
    }

  private:
    PolicyOptions walking(PolicyOptions options) {
        options.packs = [this] { return *packs_; };
        if (options.offload.directory.empty()) options.offload.directory = ".";  // nothing is written
        return options;
    }

    // Before the first step: what the sync holds from then on.
    void connect() {
        const Policy::OnloadScope onloaded(policy_);
        const MemoryPhase phase("connect");
        for (const auto& [tag, bytes] : work_.sync) {
            if (tag != kPassing) sync_.emplace_back(static_cast<std::size_t>(bytes), tag);
        }
        const auto passing = work_.sync.find(kPassing);
        if (passing != work_.sync.end())
            const Buffer gone(static_cast<std::size_t>(passing->second), kPassing);
    }

    void walk(const Work::Step& step) {
        for (const auto& [batch, options] : step.scores) {
            const Buffer others = begin(batch, TokenBuffer::kScores);
            policy_.score(*batch.samples, options);
        }
        for (const auto& [batch, loss] : step.updates) {
            {
                const Buffer others = begin(batch, loss.on_policy ? TokenBuffer::kFoundByAnUpdate : 0);
                policy_.accumulate(*batch.samples, loss);
            }
            policy_.apply(/*lr=*/1e-6);
        }
    }

    // Returns the room for numbers of the samples that are left out, so many a token.
    Buffer begin(const Batch& batch, std::size_t kinds) {
        packs_ = &batch.packs;
        const auto bytes = kinds * static_cast<std::size_t>(batch.other_tokens) * sizeof(float);
        return bytes > 0 ? Buffer(bytes, "logprobs") : Buffer();
    }

    void publish() {
        if (!work_.sync.empty()) {
            const MemoryPhase phase("sync");
            const Policy::OnloadScope onloaded(policy_);
        }
        policy_.sleep(sleep_);
    }

    const Work& work_;
    PolicyOptions::Sleep sleep_;
    const std::vector<Pack>* packs_ = nullptr;  // of the batch that is worked on
    Policy policy_;
    std::vector<Buffer> sync_;
};

}  // namespace

Prediction predict(const model::ModelConfig& model, const PolicyOptions& options, const DeviceMesh& mesh,
                   const Work& work) {
    Prediction result;
    run_counting([&] {
        Rank(model, options, mesh, work).run();
        result.phases = memory_phase_peaks();
    });
    result.phases.erase("other");
    for (const auto& [name, peak] : result.phases) {
        if (result.phase.empty() || peak.bytes > result.peak().bytes) result.phase = name;
    }
    return result;
}

}  // namespace tandem::trainer::memory
