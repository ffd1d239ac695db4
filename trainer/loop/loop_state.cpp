#include "trainer/loop/loop_state.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;

// The one list of what is kept: visit(name, field) of every field of a result, to write and to read.
template <typename Result, typename Visit>
void for_each_field(Result& r, const Visit& visit) {
    visit("sft_steps", r.sft_steps);
    visit("grpo_steps", r.grpo_steps);
    visit("weight_version", r.weight_version);
    visit("logprob_max_abs_diff", r.logprob_max_abs_diff);
    visit("trained_tokens", r.trained_tokens);
    visit("generated_tokens", r.generated_tokens);
    visit("train_seconds", r.train_seconds);
    visit("generate_seconds", r.generate_seconds);
    visit("reinforce_flops", r.reinforce_flops);
    visit("reinforce_seconds", r.reinforce_seconds);
    visit("seconds", r.seconds);
    visit("skipped_steps", r.skipped_steps);
    visit("skipped_in_a_row", r.skipped_in_a_row);
}

// Fields that checkpoints of earlier versions do not have.
bool may_be_missing(std::string_view name) {
    return name.starts_with("skipped_");
}

constexpr double HeldOutScores::*kScoreFields[] = {&HeldOutScores::reward, &HeldOutScores::pass_at_1,
                                                   &HeldOutScores::pass_at_k, &HeldOutScores::length_mean,
                                                   &HeldOutScores::truncated};
constexpr double SyncTimes::*kSyncFields[] = {
    &SyncTimes::total, &SyncTimes::prepare, &SyncTimes::pause,          &SyncTimes::gather, &SyncTimes::copy,
    &SyncTimes::load,  &SyncTimes::resume,  &SyncTimes::speed_of_light, &SyncTimes::finish, &SyncTimes::pack};

template <typename T, std::size_t n>
ordered_json numbers(const T& values, double T::*const (&fields)[n]) {
    auto row = ordered_json::array();
    for (const auto field : fields) row.push_back(values.*field);
    return row;
}

// required: so many fields a checkpoint of any version has.
template <typename T, std::size_t n>
T from_numbers(const ordered_json& row, double T::*const (&fields)[n], std::size_t required = n) {
    T values;
    for (std::size_t i = 0; i < n; ++i) {
        if (i < row.size() || i < required) row.at(i).get_to(values.*fields[i]);
    }
    return values;
}

ordered_json held_out(const HeldOutResult& result) {
    ordered_json json{{"greedy", numbers(result.greedy, kScoreFields)}};
    if (result.sampled) json["sampled"] = numbers(*result.sampled, kScoreFields);
    return json;
}

HeldOutResult held_out_from(const ordered_json& json) {
    HeldOutResult result;
    result.greedy = from_numbers(json.at("greedy"), kScoreFields);
    if (json.contains("sampled")) result.sampled = from_numbers(json.at("sampled"), kScoreFields);
    return result;
}

}  // namespace

ordered_json to_json(const LoopState& state) {
    ordered_json json{{"phase", state.phase == LoopState::Phase::sft ? "sft" : "grpo"}, {"step", state.step}};
    for_each_field(state.result, [&](const char* name, const auto& field) { json[name] = field; });
    json["first"] = held_out(state.result.first);
    json["last"] = held_out(state.result.last);
    json["syncs"] = ordered_json::array();
    for (const SyncTimes& times : state.result.syncs) {
        json["syncs"].push_back(numbers(times, kSyncFields));
    }
    return json;
}

LoopState loop_state_from_json(const ordered_json& json) {
    LoopState state;
    state.phase = json.at("phase") == "sft" ? LoopState::Phase::sft : LoopState::Phase::grpo;
    json.at("step").get_to(state.step);
    for_each_field(state.result, [&](const char* name, auto& field) {
        if (json.contains(name) || !may_be_missing(name)) json.at(name).get_to(field);
    });
    state.result.first = held_out_from(json.at("first"));
    state.result.last = held_out_from(json.at("last"));
    for (const ordered_json& row : json.at("syncs")) {
        state.result.syncs.push_back(from_numbers(row, kSyncFields, 8));
    }
    return state;
}

}  // namespace tandem::trainer
