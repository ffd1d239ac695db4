#include "trainer/loop/loop.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "common/device/memory.h"
#include "common/error.h"
#include "common/log.h"
#include "common/stopwatch.h"
#include "common/trace.h"
#include "trainer/data/prompt_order.h"
#include "trainer/loop/checked_update.h"
#include "trainer/loop/flops.h"
#include "trainer/loop/metrics.h"
#include "trainer/loop/update.h"
#include "trainer/loss/loss_options.h"
#include "trainer/optim/schedule.h"
#include "trainer/rollout/evaluation.h"
#include "trainer/rollout/rollout.h"
#include "trainer/rollout/statistics.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostInARow = 10;  // steps that train.non_finite = skip leaves out

ordered_json memory_peaks() {
    auto result = ordered_json::object();
    for (const auto& [tag, stats] : all_memory_stats()) result[tag] = stats.peak_bytes;
    return result;
}

ordered_json to_json(const SyncTimes& t) {
    return {{"total", t.total},   {"prepare", t.prepare}, {"pause", t.pause},
            {"gather", t.gather}, {"copy", t.copy},       {"load", t.load},
            {"resume", t.resume}, {"finish", t.finish},   {"pack", t.pack}};
}

class Loop {
  public:
    Loop(const RunConfig& config, const LoopParts& parts, const LoopState& start)
        : config_(config),
          parts_(parts),
          seed_(static_cast<std::uint64_t>(config.run.seed)),
          sft_order_(parts.task, seed_),
          rollout_order_(parts.task, seed_),
          updater_(config, parts.learner),
          state_(start),
          seconds_before_(start.result.seconds) {}

    LoopResult run();

  private:
    void step_done();
    void warm_start();
    void warm_start_step(std::int64_t step);
    void reinforce();
    void reinforce_step(std::int64_t step);
    SyncTimes sync();

    void take_note(const std::string& step, const std::vector<std::string>& left_out);
    std::vector<std::string> places_of(const Rollout& rollout) const;
    Rollout generate(std::int64_t step);
    HeldOutResult evaluation(std::int64_t step);
    double flops_of(const Rollout& rollout, const UpdateResult& update) const;
    void keep_samples(const std::string& phase, std::int64_t step, const Rollout& rollout);

    const RunConfig& config_;
    const LoopParts& parts_;
    std::uint64_t seed_;
    PromptOrder sft_order_;
    PromptOrder rollout_order_;
    Updater updater_;
    LoopState state_;
    LoopResult& result_ = state_.result;
    double seconds_before_;  // of the part of the run that was stopped
    Stopwatch watch_;
};

LoopResult Loop::run() {
    result_.task = parts_.task.name();
    if (state_.phase == LoopState::Phase::sft) {
        warm_start();
        sync();
        result_.first = evaluation(0);
        result_.last = result_.first;
        state_.phase = LoopState::Phase::grpo;
        state_.step = 0;
    } else {  // again, to an engine that has not seen it: no sync of the run
        parts_.host.publish(result_.weight_version);
    }
    reinforce();
    result_.weights_match = parts_.host.weights_match();
    result_.seconds = seconds_before_ + watch_.seconds();
    result_.product_rate = parts_.product_rate;
    return result_;
}

void Loop::step_done() {
    ++state_.step;
    const std::int64_t every = config_.checkpoint.every;
    // The last one too, so that a finished run can be given more steps.
    const bool last = state_.phase == LoopState::Phase::grpo && state_.step == config_.grpo.steps;
    if (every == 0 || (!last && state_.total_steps() % every != 0)) return;
    const trace::Scope scope("checkpoint", "checkpoint");
    result_.seconds = seconds_before_ + watch_.seconds();
    parts_.host.write_checkpoint(state_);
}

// --- supervised warm start -------------------------------------------------------------------------------

void Loop::warm_start() {
    while (state_.step < config_.sft.steps) {
        warm_start_step(state_.step);
        step_done();
    }
    result_.sft_steps = config_.sft.steps;
    parts_.learner.reset_optimizer();
}

void Loop::warm_start_step(std::int64_t step) {
    const trace::Scope scope("sft step", "train");
    const Stopwatch watch;
    Random random(seed_, Purpose::sft, static_cast<std::uint64_t>(step));
    const auto indices = sft_order_.take(step, config_.sft.batch, random);
    std::vector<Tokens> lists = parts_.rollouts.lists_on_every_rank([&] {  // prompt, answer, prompt, …
        std::vector<Tokens> lessons;
        for (const std::int64_t index : indices) {
            Lesson lesson = parts_.task.lesson(index, random);
            lessons.push_back(std::move(lesson.prompt));
            lessons.push_back(std::move(lesson.answer));
        }
        return lessons;
    });
    std::vector<Sample> batch;
    for (std::size_t i = 0; i < lists.size(); i += 2)
        batch.push_back(sample_of(std::move(lists[i]), std::move(lists[i + 1])));
    std::vector<std::string> places;
    for (const std::int64_t index : indices)
        places.push_back(parts_.task.place({PromptId::Split::train, index}));
    const Schedule schedule{Schedule::Decay::cosine, config_.sft.warmup, config_.sft.steps,
                            config_.sft.floor};
    const double lr = learning_rate(schedule, config_.sft.lr, step);
    parts_.host.before_training();
    const auto [stats, fault] = checked_update(parts_.learner, batch, places, supervised_loss(), lr);
    ordered_json line{{"loss", stats.loss},
                      {"grad_norm", stats.grad_norm},
                      {"lr", lr},
                      {"tokens", stats.tokens},
                      {"ms", watch.ms()}};
    take_note(fmt::format("step {} of the warm start", step + 1),
              fault.empty() ? std::vector<std::string>() : std::vector{fault});
    if (!fault.empty()) line.update({{"skipped", 1}, {"non_finite", fault}});

    result_.trained_tokens += fault.empty() ? stats.tokens : 0;
    result_.train_seconds += watch.seconds();
    parts_.recorder.step("sft", step + 1, config_.sft.steps, line);
}

// --- what is infinite or NaN ------------------------------------------------------------------------------

// Ends the run, or counts the step: of which these updates were left out, for these reasons.
void Loop::take_note(const std::string& step, const std::vector<std::string>& left_out) {
    if (left_out.empty()) {
        result_.skipped_in_a_row = 0;
        return;
    }
    const std::string what = fmt::format("{} is not finite: {}", step, left_out.back());
    if (config_.train.non_finite == "stop") {
        throw Error(fmt::format(
            "{}. Nothing of it was applied, saved or published; {}train.non_finite = skip "
            "leaves such steps out",
            what,
            config_.checkpoint.every > 0 ? "--resume goes on from the newest checkpoint, and there " : ""));
    }
    ++result_.skipped_steps;
    ++result_.skipped_in_a_row;
    if (result_.skipped_in_a_row >= kMostInARow) {
        throw Error(fmt::format("{} steps in a row were left out (train.non_finite = skip); the last: {}",
                                result_.skipped_in_a_row, what));
    }
    if (!parts_.recorder.silent())
        log_warn("{}. It is left out (train.non_finite = skip), as {} so far", what, result_.skipped_steps);
}

std::vector<std::string> Loop::places_of(const Rollout& rollout) const {
    std::vector<std::string> places;
    for (const PromptId id : rollout.ids) places.push_back(parts_.task.place(id));
    return places;
}

// --- reinforcement ---------------------------------------------------------------------------------------

void Loop::reinforce() {
    if (config_.grpo.steps > 0) updater_.begin();
    while (state_.step < config_.grpo.steps) {
        reinforce_step(state_.step);
        const std::int64_t done = state_.step + 1;
        const bool last = done == config_.grpo.steps;
        const bool due = config_.grpo.evaluate_every > 0 && done % config_.grpo.evaluate_every == 0;
        if (last || due) result_.last = evaluation(done);
        step_done();
    }
    result_.grpo_steps = config_.grpo.steps;
}

void Loop::reinforce_step(std::int64_t step) {
    const trace::Scope scope("grpo step", "train");
    const Stopwatch watch;
    const Rollout rollout = generate(step);
    const double generate_ms = watch.ms();  // with the rewards
    parts_.host.before_training();
    const UpdateResult update = updater_.step(step, rollout, places_of(rollout));
    take_note(fmt::format("step {}", step + 1), update.left_out);
    result_.logprob_max_abs_diff = std::max(update.logprob_max_abs_diff, result_.logprob_max_abs_diff);
    result_.trained_tokens += update.tokens;
    const RolloutStatistics figures = statistics_of(rollout, config_.grpo.samples, result_.weight_version);
    const double train_ms = watch.ms() - generate_ms;
    const double flops = flops_of(rollout, update);
    const SyncTimes times = sync();

    result_.generate_seconds += generate_ms / 1e3;
    result_.train_seconds += train_ms / 1e3;
    result_.reinforce_flops += flops;
    result_.reinforce_seconds += train_ms / 1e3;
    ordered_json line = metrics_of(figures);
    line.update(metrics_of(update, config_));
    line.update({{"weight_version", result_.weight_version},
                 {"tokens", update.stats.tokens},
                 {"generate_ms", generate_ms},
                 {"reward_ms", rollout.reward_seconds * 1e3},
                 {"train_ms", train_ms},
                 {"sync_ms", to_json(times)},
                 {"ms", watch.ms()},
                 {"memory_peak_bytes", memory_peaks()}});
    line["generate_tokens_per_second"] =
        static_cast<double>(rollout.generated_tokens()) / std::max(rollout.generate_seconds, 1e-9);
    line["train_tokens_per_second"] = static_cast<double>(update.tokens) / std::max(train_ms / 1e3, 1e-9);
    if (parts_.product_rate > 0) line["mfu"] = flops / (train_ms / 1e3) / parts_.product_rate;
    parts_.recorder.step("grpo", step + 1, config_.grpo.steps, line);
    keep_samples("grpo", step + 1, rollout);
}

Rollout Loop::generate(std::int64_t step) {
    Random prompts(seed_, Purpose::rollout_prompts, static_cast<std::uint64_t>(step));
    Random seeds(seed_, Purpose::rollout_seeds, static_cast<std::uint64_t>(step));
    RolloutRequest request;
    for (const std::int64_t index : rollout_order_.take(step, config_.grpo.prompts, prompts)) {
        for (std::int64_t i = 0; i < config_.grpo.samples; ++i) {
            request.ids.push_back({PromptId::Split::train, index});
            request.seeds.push_back(seeds.bits());
        }
    }
    request.sampling = {config_.grpo.temperature, config_.grpo.max_new_tokens, parts_.task.stop_tokens()};
    request.version = result_.weight_version;
    Rollout rollout = roll_out(parts_.rollouts, parts_.task, request);
    result_.generated_tokens += rollout.generated_tokens();
    return rollout;
}

// Model FLOPs of the update: every sequence as often as it was trained on.
double Loop::flops_of(const Rollout& rollout, const UpdateResult& update) const {
    if (parts_.model == nullptr) return 0;
    std::vector<std::int64_t> lengths;
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < rollout.prompts.size(); ++i) {
        lengths.push_back(
            static_cast<std::int64_t>(rollout.prompts[i].size() + rollout.completions[i].tokens.size()));
        tokens += lengths.back();
    }
    return training_flops(*parts_.model, lengths) * static_cast<double>(update.tokens) /
           static_cast<double>(tokens);
}

void Loop::keep_samples(const std::string& phase, std::int64_t step, const Rollout& rollout) {
    if (parts_.recorder.silent()) return;
    parts_.recorder.samples(phase, step, readable_samples(parts_.task, rollout, config_.data.keep_samples));
}

SyncTimes Loop::sync() {
    const trace::Scope scope("sync", "sync");
    const SyncTimes times = parts_.host.publish(result_.weight_version + 1);
    ++result_.weight_version;
    result_.syncs.push_back(times);
    return times;
}

// --- evaluation ------------------------------------------------------------------------------------------

HeldOutResult Loop::evaluation(std::int64_t step) {
    const trace::Scope scope("evaluate", "rollout");
    const Evaluation now =
        evaluate(parts_.rollouts, parts_.task,
                 {seed_, config_.grpo.temperature, config_.grpo.max_new_tokens, result_.weight_version,
                  config_.data.held_out_samples, config_.data.pass_score});
    ordered_json scores = metrics_of(now.result, config_.data.held_out_samples);
    if (!now.faults.empty()) {
        const std::string what =
            with_weights(fmt::format("the evaluation after {} steps is not finite: samples: {}", step,
                                     text_of(now.faults)),
                         parts_.learner);
        if (config_.train.non_finite == "stop")
            throw Error(what + ". With train.non_finite = skip their prompts are left out of its figures");
        if (!parts_.recorder.silent()) log_warn("{}. Their prompts are left out of its figures", what);
        scores.update({{"left_out", now.faults.size()}, {"non_finite", text_of(now.faults)}});
    }
    scores["weight_version"] = result_.weight_version;
    parts_.recorder.step("eval", step, config_.grpo.steps, scores);
    keep_samples("eval", step, now.greedy);
    return now.result;
}

}  // namespace

LoopResult run_loop(const RunConfig& config, const LoopParts& parts, const LoopState& start) {
    return Loop(config, parts, start).run();
}

}  // namespace tandem::trainer
