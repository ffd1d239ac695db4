// The batches of a configured run, for its prediction.
#include <algorithm>
#include <utility>

#include "trainer/data/micro_batch.h"
#include "trainer/data/prompt_order.h"
#include "trainer/loss/config.h"
#include "trainer/memory/report.h"
#include "trainer/policy/pack_plan.h"

namespace tandem::trainer::memory {
namespace {

constexpr std::int64_t kSteps = 2;  // of each kind that are drawn

Sample sample_of(Tokens prompt, std::int64_t answer) {
    Sample sample;
    sample.target_mask.assign(prompt.size(), 0);
    sample.tokens = std::move(prompt);
    sample.tokens.resize(sample.tokens.size() + static_cast<std::size_t>(answer), 0);
    sample.target_mask.resize(sample.tokens.size(), 1);
    return sample;
}

class Batches {
  public:
    Batches(const RunConfig& config, const Task& task, const PolicyOptions& options)
        : config_(config),
          task_(task),
          options_(options),
          row_ranks_(options.sequence_parallel ? config.mesh.tp : 1),
          seed_(static_cast<std::uint64_t>(config.run.seed)) {}

    Workload workload() {
        for (std::int64_t step = 0; step < std::min(kSteps, config_.sft.steps); ++step)
            train(supervised(step), Lengths::exact);
        for (std::int64_t step = 0; step < std::min(kSteps, config_.grpo.steps); ++step) {
            const std::vector<Sample> samples = rollouts(step);
            pack(samples, Lengths::most, result_.scores);
            for (const Sample& sample : samples)
                score_tokens_ += static_cast<std::int64_t>(sample.tokens.size());
            result_.score_tokens = std::max(result_.score_tokens, std::exchange(score_tokens_, 0));
            const auto order = Random(seed_, Purpose::halves, static_cast<std::uint64_t>(step))
                                   .permutation(static_cast<std::int64_t>(samples.size()));
            const std::size_t part = samples.size() / static_cast<std::size_t>(config_.grpo.updates);
            std::vector<Sample> first;
            for (std::size_t i = 0; i < part; ++i)
                first.push_back(samples[static_cast<std::size_t>(order[i])]);
            train(first, Lengths::most);
        }
        result_.reference = needs_reference(config_);
        return result_;
    }

  private:
    std::vector<Sample> supervised(std::int64_t step) {
        Random random(seed_, Purpose::sft, static_cast<std::uint64_t>(step));
        PromptOrder order(task_, seed_);
        std::vector<Sample> batch;
        for (const std::int64_t index : order.take(step, config_.sft.batch, random)) {
            Lesson lesson = task_.lesson(index, random);
            const auto answer = static_cast<std::int64_t>(lesson.answer.size());
            batch.push_back(sample_of(std::move(lesson.prompt), answer));
        }
        return batch;
    }

    std::vector<Sample> rollouts(std::int64_t step) {
        Random random(seed_, Purpose::rollout_prompts, static_cast<std::uint64_t>(step));
        PromptOrder order(task_, seed_);
        std::vector<Sample> batch;
        for (const std::int64_t index : order.take(step, config_.grpo.prompts, random)) {
            const Sample sample = sample_of(task_.train_prompt(index), config_.grpo.max_new_tokens);
            batch.insert(batch.end(), static_cast<std::size_t>(config_.grpo.samples), sample);
        }
        return batch;
    }

    // Samples are as long as they will be, or as they may become.
    enum class Lengths : std::uint8_t { exact, most };

    void train(const std::vector<Sample>& samples, Lengths lengths) {
        result_.micro_batches = std::max(result_.micro_batches, pack(samples, lengths, result_.train));
    }

    // Rows that the ranks of tp do not share evenly are copied with padding before they are summed.
    bool pads(const PassShape& pass) const { return pass.rows % row_ranks_ != 0; }
    bool covers(const PassShape& a, const PassShape& b) const {
        return a.zigzag == b.zigzag && a.rows >= b.rows && a.targets >= b.targets && (pads(a) || !pads(b));
    }
    void keep_largest(std::vector<PassShape>& passes, const PassShape& pass) const {
        if (std::any_of(passes.begin(), passes.end(),
                        [&](const PassShape& other) { return covers(other, pass); }))
            return;
        std::erase_if(passes, [&](const PassShape& other) { return covers(pass, other); });
        passes.push_back(pass);
    }

    // Every rank's packs into `passes`; returns how many a rank has.
    int pack(const std::vector<Sample>& samples, Lengths lengths, std::vector<PassShape>& passes) {
        const int cp = static_cast<int>(config_.mesh.cp);
        const auto plan = pack_plan(options_, cp, static_cast<int>(config_.mesh.dp), samples);
        std::size_t most = 1;
        for (const std::vector<Pack>& packs : plan) {
            most = std::max(most, packs.size());
            for (const Pack& one : packs) {
                const bool zigzag = use_zigzag(options_, cp, one);
                for (int rank = 0; rank < cp; ++rank) {
                    const MicroBatch batch = make_micro_batch(samples, one, zigzag, cp, rank);
                    PassShape pass{static_cast<std::int64_t>(batch.tokens.size()),
                                   static_cast<std::int64_t>(batch.target_rows.size()), cp, zigzag};
                    keep_largest(passes, pass);
                    // One token less may take more.
                    --pass.rows;
                    if (lengths == Lengths::most && pads(pass)) keep_largest(passes, pass);
                }
            }
        }
        return static_cast<int>(most);
    }

    const RunConfig& config_;
    const Task& task_;
    const PolicyOptions& options_;
    std::int64_t row_ranks_;  // that share the rows of hidden states between blocks
    std::uint64_t seed_;
    std::int64_t score_tokens_ = 0;
    Workload result_;
};

}  // namespace

RankShape rank_shape(const RunConfig& c) {
    const auto shards = static_cast<int>(c.shard_ranks()), tp = static_cast<int>(c.mesh.tp);
    return {shards, static_cast<int>(c.world_size()) / (shards * tp), static_cast<int>(c.mesh.cp), tp};
}

Workload workload_of(const RunConfig& config, const Task& task, const PolicyOptions& options) {
    return Batches(config, task, options).workload();
}

}  // namespace tandem::trainer::memory
