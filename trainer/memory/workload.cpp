#include "trainer/memory/workload.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "trainer/config/pipeline.h"
#include "trainer/data/micro_batch.h"
#include "trainer/data/prompt_order.h"
#include "trainer/loss/config.h"
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

std::int64_t tokens_of(const std::vector<Sample>& samples) {
    std::int64_t tokens = 0;
    for (const Sample& sample : samples) tokens += std::ssize(sample.tokens);
    return tokens;
}

void cut_last(Sample& sample) {
    sample.tokens.pop_back();
    sample.target_mask.pop_back();
    for (std::vector<float>* values : {&sample.rollout_logprobs, &sample.old_logprobs,
                                       &sample.reference_logprobs, &sample.values, &sample.returns}) {
        if (!values->empty()) values->pop_back();
    }
}

// Zeros for what the loss cannot do without.
void add_scores(std::vector<Sample>& samples, const LossOptions& loss) {
    for (Sample& sample : samples) {
        const std::vector<float> zeros(sample.tokens.size());
        if (loss.truncation != LossOptions::Truncation::off)
            sample.rollout_logprobs = sample.old_logprobs = zeros;
        if (loss.kl_coef != 0) sample.reference_logprobs = zeros;
        if (loss.value_coef != 0) sample.values = sample.returns = zeros;
    }
}

// The packs, and of the samples theirs alone.
Batch batch_of(const std::vector<Sample>& all, std::vector<Pack> packs, const LossOptions& loss) {
    std::map<int, int> kept;  // sample -> place in the batch, in the same order
    for (const Pack& pack : packs) {
        for (const int sample : pack.samples) kept[sample] = 0;
    }
    std::vector<Sample> samples;
    for (auto& [sample, place] : kept) {
        place = static_cast<int>(samples.size());
        samples.push_back(all[static_cast<std::size_t>(sample)]);
    }
    add_scores(samples, loss);
    for (Pack& pack : packs) {
        for (int& sample : pack.samples) sample = kept.at(sample);
    }
    const std::int64_t others = tokens_of(all) - tokens_of(samples);
    return {std::make_shared<const std::vector<Sample>>(std::move(samples)), std::move(packs), others};
}

// The packs of one rank, and the largest of them.
struct Passes {
    PassShape shape;
    Batch batch;
};

class Batches {
  public:
    Batches(const RunConfig& config, const Task& task, const PolicyOptions& options,
            const model::ModelConfig& model)
        : config_(config),
          task_(task),
          options_(options),
          plan_(pipeline_plan(config, model)),
          row_ranks_(options.sequence_parallel ? config.mesh.tp : 1),
          seed_(static_cast<std::uint64_t>(config.run.seed)) {}

    // Twice what leaves something behind: the updates of a warm start, and steps, where they do not sleep so deeply that
    // nothing is left but what an update leaves for the next one.
    Workload workload() {
        std::vector<Work::Step>& steps = result_.work.steps;
        result_.work.reference = needs_reference(config_);
        steps.push_back(warm_start());
        if (config_.grpo.steps == 0) return std::move(result_);
        const Work::Step step = reinforcement();
        steps.push_back(step);
        const bool forgets = options_.deepest_sleep == PolicyOptions::Sleep::all;
        if (!forgets) steps.push_back(step);
        if (forgets && config_.grpo.updates * config_.grpo.epochs > 1) repeat(steps.back().updates);
        return std::move(result_);
    }

  private:
    static void repeat(std::vector<Work::Update>& updates) {
        const std::vector<Work::Update> first = updates;
        updates.insert(updates.end(), first.begin(), first.end());
    }

    // Nothing, if there is none, but the first sync.
    Work::Step warm_start() {
        std::vector<Passes> passes;
        for (std::int64_t step = 0; step < std::min(kSteps, config_.sft.steps); ++step)
            pack(supervised(step), supervised_loss(), Lengths::exact, true, passes);
        Work::Step all{{}, updates(passes, supervised_loss())};
        repeat(all.updates);
        return all;
    }

    Work::Step reinforcement() {
        const bool own = scores_before_update(config_), reference = needs_reference(config_);
        LossOptions loss = loss_options(config_);
        loss.on_policy = !own;
        std::vector<Passes> scored, trained;
        for (std::int64_t step = 0; step < std::min(kSteps, config_.grpo.steps); ++step) {
            const std::vector<Sample> samples = rollouts(step);
            if (own || reference) pack(samples, {}, Lengths::most, false, scored);
            pack(first_part(samples, step), loss, Lengths::most, true, trained);
        }
        Work::Step step;
        for (const Passes& passes : scored) {
            if (own) step.scores.push_back({passes.batch, {.values = loss.value_coef != 0}});
            if (reference) step.scores.push_back({passes.batch, {.reference = true}});
        }
        step.updates = updates(trained, loss);
        return step;
    }

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

    // The samples of a step's first update.
    std::vector<Sample> first_part(const std::vector<Sample>& samples, std::int64_t step) const {
        const auto order = Random(seed_, Purpose::halves, static_cast<std::uint64_t>(step))
                               .permutation(static_cast<std::int64_t>(samples.size()));
        std::vector<Sample> first;
        for (std::size_t i = 0; i < samples.size() / static_cast<std::size_t>(config_.grpo.updates); ++i)
            first.push_back(samples[static_cast<std::size_t>(order[i])]);
        return first;
    }

    std::vector<Work::Update> updates(const std::vector<Passes>& all, const LossOptions& loss) {
        std::vector<Work::Update> result;
        for (const Passes& passes : all) {
            keep_largest_shape(passes.shape);
            result.push_back({passes.batch, loss});
        }
        return result;
    }

    // Rows that the ranks of tp do not share evenly are copied with padding before they are summed.
    bool pads(const PassShape& pass) const { return pass.rows % row_ranks_ != 0; }
    bool covers(const PassShape& a, const PassShape& b) const {
        return a.zigzag == b.zigzag && a.rows >= b.rows && a.targets >= b.targets && (pads(a) || !pads(b));
    }
    void keep_largest_shape(const PassShape& shape) {
        std::erase_if(result_.largest, [&](const PassShape& other) { return covers(shape, other); });
        const bool covered = std::any_of(result_.largest.begin(), result_.largest.end(),
                                         [&](const PassShape& other) { return covers(other, shape); });
        if (!covered) result_.largest.push_back(shape);
    }
    bool is_covered(const std::vector<Passes>& all, const PassShape& shape) const {
        return std::any_of(all.begin(), all.end(),
                           [&](const Passes& other) { return covers(other.shape, shape); });
    }
    void keep(std::vector<Passes>& all, Passes one) const {
        std::erase_if(all, [&](const Passes& other) { return covers(one.shape, other.shape); });
        all.push_back(std::move(one));
    }

    // Samples are as long as they will be, or as they may become.
    enum class Lengths : std::uint8_t { exact, most };

    void pack(const std::vector<Sample>& samples, const LossOptions& loss, Lengths lengths, bool training,
              std::vector<Passes>& all) {
        const auto packs_of = pack_plan(options_, cp(), static_cast<int>(config_.mesh.dp), samples,
                                        admitted_packs(plan_ ? &*plan_ : nullptr, training));
        for (const std::vector<Pack>& packs : packs_of) {
            if (training)
                result_.micro_batches = std::max(result_.micro_batches, static_cast<int>(packs.size()));
            for (std::vector<Pack>& walked : walks(packs, training)) {
                const PassShape shape = shape_of(samples, walked.front());
                if (is_covered(all, shape)) continue;
                const Batch batch = batch_of(samples, std::move(walked), loss);
                const bool may_pad = lengths == Lengths::most && row_ranks_ > 1 && !pads(shape);
                const bool padded = may_pad && keep_shorter(all, batch);
                // Of a pipeline's many micro-batches not both: a row is less than what padding takes.
                if (!padded || !plan_) keep(all, {shape, batch});
            }
        }
    }

    // What is walked of a rank's packs: each by itself, and a second time if others follow it, which finds what the first
    // one leaves. Of a pipeline all together, as several are there at once: the largest, as many as that takes.
    std::vector<std::vector<Pack>> walks(std::vector<Pack> packs, bool training) const {
        std::vector<std::vector<Pack>> result;
        if (!plan_) {
            const std::size_t times = training ? std::min<std::size_t>(packs.size(), 2) : 1;
            for (const Pack& pack : packs) result.emplace_back(times, pack);
            return result;
        }
        const int all = static_cast<int>(packs.size());
        const int count = training ? enough_micro_batches(*plan_, all) : std::min(all, 2 * plan_->ranks());
        std::stable_sort(packs.begin(), packs.end(),
                         [](const Pack& a, const Pack& b) { return a.tokens > b.tokens; });
        packs.resize(static_cast<std::size_t>(count));
        result.push_back(std::move(packs));
        return result;
    }

    // On the rank of cp that has the most targets.
    PassShape shape_of(const std::vector<Sample>& samples, const Pack& pack) {
        PassShape most{0, -1, use_zigzag(options_, cp(), pack)};
        for (int rank = 0; rank < cp(); ++rank) {
            const MicroBatch here = make_micro_batch(samples, pack, most.zigzag, cp(), rank);
            const std::int64_t targets = std::ssize(here.target_rows);
            if (targets > most.targets) most = {std::ssize(here.tokens), targets, most.zigzag};
            if (targets > std::exchange(most_targets_, std::max(most_targets_, targets)))
                result_.cp_rank = rank;
        }
        return most;
    }

    // With fewer rows, by some tokens of each pack, than tp shares evenly: that may take more. False where there is none such.
    bool keep_shorter(std::vector<Passes>& all, Batch batch) {
        std::set<int> lasts;  // of each pack
        for (const Pack& pack : batch.packs) {
            if (!pack.samples.empty()) lasts.insert(pack.samples.back());
        }
        std::vector<Sample> samples = *batch.samples;
        for (int removed = 1; removed <= 2 * cp(); ++removed) {
            for (Pack& pack : batch.packs) pack.tokens -= pack.samples.empty() ? 0 : 1;
            for (const int last : lasts) {
                if (samples[static_cast<std::size_t>(last)].tokens.size() < 3) return false;
                cut_last(samples[static_cast<std::size_t>(last)]);
            }
            batch.other_tokens += std::ssize(lasts);
            const PassShape shape = shape_of(samples, batch.packs.front());
            if (!pads(shape)) continue;
            batch.samples = std::make_shared<const std::vector<Sample>>(std::move(samples));
            if (!is_covered(all, shape)) keep(all, {shape, std::move(batch)});
            return true;
        }
        return false;
    }

    int cp() const { return static_cast<int>(config_.mesh.cp); }

    const RunConfig& config_;
    const Task& task_;
    const PolicyOptions& options_;
    std::optional<pipeline::Plan> plan_;
    std::int64_t row_ranks_;  // that share the rows of hidden states between blocks
    std::uint64_t seed_;
    std::int64_t most_targets_ = -1;
    Workload result_;
};

// What a rank holds, action by action: micro-batches of each stage whose gradients are still to be computed, of the inputs and
// of the weights.
std::set<std::vector<int>> states_of(const pipeline::Schedule& schedule) {
    using pipeline::ActionKind;
    const std::size_t stages = schedule.rank_of_stage.size();
    std::set<std::vector<int>> states;
    for (const pipeline::ActionList& list : schedule.ranks) {
        std::vector<int> held(2 * stages);
        for (const pipeline::Action& action : list) {
            for (const pipeline::Action& part : parts_of(action)) {
                const auto stage = static_cast<std::size_t>(part.stage);
                if (part.kind == ActionKind::forward) ++held[stage];
                if (is_backward(part.kind)) --held[stage];
                if (part.kind == ActionKind::backward_input) ++held[stages + stage];
                if (part.kind == ActionKind::backward_weight) --held[stages + stage];
                states.insert(held);
            }
        }
    }
    return states;
}

}  // namespace

int enough_micro_batches(const pipeline::Plan& plan, int all) {
    const std::set<std::vector<int>> wanted = states_of(plan.compute(all));
    for (int count = plan.microbatches(1); count < all; count = plan.microbatches(count + 1)) {
        const std::set<std::vector<int>> states = states_of(plan.compute(count));
        if (std::includes(states.begin(), states.end(), wanted.begin(), wanted.end())) return count;
    }
    return all;
}

Workload workload_of(const RunConfig& config, const Task& task, const PolicyOptions& options,
                     const model::ModelConfig& model) {
    return Batches(config, task, options, model).workload();
}

}  // namespace tandem::trainer::memory
