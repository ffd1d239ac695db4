#include "trainer/loss/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "trainer/config/engine_url.h"
#include "trainer/loss/kl.h"

namespace tandem::trainer {
namespace {

using Ratio = LossOptions::Ratio;
using Aggregation = LossOptions::Aggregation;
using Form = AdvantageOptions::Form;

// --- algorithms, as sums of their parts

// The parts of an algorithm, unless a key overrides them.
struct Algorithm {
    const char* name;
    Form form;
    Ratio ratio;
    Aggregation aggregation;
    bool whiten;
};
constexpr Algorithm kAlgorithms[] = {
    {"grpo", Form::group, Ratio::token, Aggregation::token_mean, false},
    {"dr_grpo", Form::centered, Ratio::token, Aggregation::constant, false},
    {"gspo", Form::group, Ratio::sequence, Aggregation::sequence_mean, false},
    {"rloo", Form::leave_one_out, Ratio::token, Aggregation::token_mean, false},
    {"ppo", Form::gae, Ratio::token, Aggregation::token_mean, true},
    {"reinforce++", Form::returns, Ratio::token, Aggregation::token_mean, true},
    {"reinforce++_baseline", Form::baseline, Ratio::token, Aggregation::token_mean, true},
};

const Algorithm& algorithm_of(const RunConfig& c) {
    const auto* found = std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms),
                                     [&](const Algorithm& a) { return c.loss.algorithm == a.name; });
    return found == std::end(kAlgorithms) ? kAlgorithms[0] : *found;  // the schema lets no other name in
}

LossOptions::Truncation truncation_of(const RunConfig& c) {
    using Truncation = LossOptions::Truncation;
    if (c.loss.tis == "automatic") return is_third_party(c.engine.url) ? Truncation::clamp : Truncation::off;
    return c.loss.tis == "clamp"    ? Truncation::clamp
           : c.loss.tis == "icepop" ? Truncation::band
                                    : Truncation::off;
}

bool kl_in_reward(const RunConfig& c) {
    return c.loss.kl_coef != 0 && c.loss.kl_in == "reward";
}

}  // namespace

// --- the section [loss]

void add_loss_keys(config::Schema& s, RunConfig& c) {
    std::vector<std::string> names;
    for (const Algorithm& algorithm : kAlgorithms) names.emplace_back(algorithm.name);
    s.choice("loss.algorithm", c.loss.algorithm, names,
             "How rewards become advantages, and which ratio, mean and whitening go with it.");
    s.choice("loss.ratio", c.loss.ratio, {"automatic", "token", "sequence", "none"},
             "Probability ratio that is clipped: each token's, the whole sequence's (GSPO), or none (plain "
             "REINFORCE).");
    s.real("loss.clip_high", c.loss.clip_high, 0, 1e6, "Upper clip range of the ratio; 0: as grpo.clip.");
    s.real("loss.dual_clip", c.loss.dual_clip, 0, 1e6,
           "Largest ratio that counts where the advantage is negative; above 1, or 0: off.");
    s.choice(
        "loss.tis", c.loss.tis, {"automatic", "off", "clamp", "icepop"},
        "Importance weight exp(trainer's log-prob - engine's): off, clamped into [tis_low, tis_high], or "
        "0 outside of it; automatic: clamp for a third-party engine (engine.url = vllm://…), else off.");
    s.real("loss.tis_low", c.loss.tis_low, 0, 1e6, "Smallest importance weight.");
    s.real("loss.tis_high", c.loss.tis_high, 0, 1e6, "Largest importance weight.");
    s.real("loss.opsm_delta", c.loss.opsm_delta, 0, 1e6,
           "Leaves out sequences with a negative advantage whose mean log-ratio fell below minus this; 0: "
           "off.");
    s.choice("loss.kl", c.loss.kl, {"k1", "k2", "k3", "low_var"},
             "Estimator of the KL to the reference model.");
    s.real("loss.kl_coef", c.loss.kl_coef, 0, 1e6, "Weight of that KL; 0: no reference model is built.");
    s.choice("loss.kl_in", c.loss.kl_in, {"loss", "reward"},
             "Where the KL goes: a term of the loss, or taken off each token's reward.");
    s.text("loss.reference", c.loss.reference,
           "Hugging Face directory of the reference model; empty: the policy as it starts to reinforce.");
    s.integer("loss.reference_every", c.loss.reference_every, 0, 1 << 30,
              "Steps after which the reference becomes the policy again; 0: never.");
    s.real("loss.entropy_coef", c.loss.entropy_coef, 0, 1e3, "Weight of the entropy bonus.");
    s.choice("loss.aggregation", c.loss.aggregation, {"automatic", "token", "sequence", "constant"},
             "Mean over the batch's tokens, over each sample's tokens and then samples, or sum over samples "
             "times grpo.max_new_tokens (Dr. GRPO).");
    s.choice("loss.whiten", c.loss.whiten, {"automatic", "yes", "no"},
             "Advantages to mean 0 and variance 1 over the batch's tokens.");
    s.flag("loss.whiten_rewards", c.loss.whiten_rewards, "The same with the samples' rewards, beforehand.");
    s.real("loss.gamma", c.loss.gamma, 0, 1, "Discount per token (ppo, reinforce++).");
    s.real("loss.lambda", c.loss.lambda, 0, 1, "GAE's lambda (ppo).");
    s.real("loss.value_coef", c.loss.value_coef, 0, 1e3, "Weight of the value head's loss (ppo).");
    s.real("loss.value_clip", c.loss.value_clip, 0, 1e6,
           "How far a value counts as moved from its old one (ppo); 0: any distance.");
    s.real("loss.value_lr", c.loss.value_lr, 0, 10,
           "Peak learning rate of the value head (ppo), with the schedule of train.lr; 0: train.lr.");
}

// --- what it asks for

LossOptions loss_options(const RunConfig& c) {
    const Algorithm& algorithm = algorithm_of(c);
    LossOptions o;
    o.ratio = c.loss.ratio == "token"      ? Ratio::token
              : c.loss.ratio == "sequence" ? Ratio::sequence
              : c.loss.ratio == "none"     ? Ratio::none
                                           : algorithm.ratio;
    o.clip_low = static_cast<float>(c.grpo.clip);
    o.clip_high = static_cast<float>(c.loss.clip_high > 0 ? c.loss.clip_high : c.grpo.clip);
    o.dual_clip = static_cast<float>(c.loss.dual_clip);
    o.truncation = truncation_of(c);
    o.tis_low = static_cast<float>(c.loss.tis_low);
    o.tis_high = static_cast<float>(c.loss.tis_high);
    o.opsm_delta = static_cast<float>(c.loss.opsm_delta);
    o.kl = kl_form_from_name(c.loss.kl);
    o.kl_coef = kl_in_reward(c) ? 0.0f : static_cast<float>(c.loss.kl_coef);
    o.entropy_coef = static_cast<float>(c.loss.entropy_coef);
    o.value_coef = needs_value_head(c) ? static_cast<float>(c.loss.value_coef) : 0.0f;
    o.value_clip = static_cast<float>(c.loss.value_clip);
    o.aggregation = c.loss.aggregation == "token"      ? Aggregation::token_mean
                    : c.loss.aggregation == "sequence" ? Aggregation::sequence_mean
                    : c.loss.aggregation == "constant" ? Aggregation::constant
                                                       : algorithm.aggregation;
    o.constant_length = static_cast<double>(c.grpo.max_new_tokens);
    o.temperature = static_cast<float>(c.grpo.temperature);
    return o;
}

bool scores_before_update(const RunConfig& c) {
    const LossOptions loss = loss_options(c);
    return c.grpo.updates * c.grpo.epochs > 1 || loss.ratio == Ratio::sequence || loss.opsm_delta > 0 ||
           needs_value_head(c) || kl_in_reward(c);
}

AdvantageOptions advantage_options(const RunConfig& c) {
    const Algorithm& algorithm = algorithm_of(c);
    AdvantageOptions o;
    o.form = algorithm.form;
    o.group_size = c.grpo.samples;
    o.gamma = c.loss.gamma;
    o.lambda = c.loss.lambda;
    o.kl = kl_form_from_name(c.loss.kl);
    o.kl_coef = kl_in_reward(c) ? static_cast<float>(c.loss.kl_coef) : 0.0f;
    o.whiten = c.loss.whiten == "automatic" ? algorithm.whiten : c.loss.whiten == "yes";
    o.whiten_rewards = c.loss.whiten_rewards;
    return o;
}

bool needs_reference(const RunConfig& c) {
    return c.loss.kl_coef != 0;
}

bool needs_value_head(const RunConfig& c) {
    return algorithm_of(c).form == Form::gae;
}

// --- what does not go together

void check_loss(const RunConfig& c, const config::Schema& s) {
    const Algorithm& algorithm = algorithm_of(c);
    const LossOptions loss = loss_options(c);
    const std::string& name = c.loss.algorithm;
    if (c.loss.dual_clip > 0 && c.loss.dual_clip <= 1) {
        s.refuse("loss.dual_clip",
                 fmt::format("{} would bound ratios that are good; above 1, or 0 for off", c.loss.dual_clip));
    }
    if (c.loss.tis_low > c.loss.tis_high)
        s.refuse("loss.tis_low", fmt::format("{} is above tis_high {}", c.loss.tis_low, c.loss.tis_high));
    if (loss.ratio == Ratio::none) {
        if (c.grpo.updates * c.grpo.epochs > 1) {
            s.refuse("loss.ratio",
                     fmt::format("none: nothing corrects the second of {} updates of one batch; "
                                 "set grpo.updates and grpo.epochs to 1",
                                 c.grpo.updates * c.grpo.epochs));
        }
        for (const auto& [key, value] :
             {std::pair("loss.dual_clip", c.loss.dual_clip), std::pair("loss.clip_high", c.loss.clip_high),
              std::pair("loss.opsm_delta", c.loss.opsm_delta)}) {
            if (value != 0) s.refuse(key, "has no meaning without a ratio (loss.ratio none)");
        }
    }
    const bool one_advantage = algorithm.form == Form::group || algorithm.form == Form::centered ||
                               algorithm.form == Form::leave_one_out;
    if (loss.ratio == Ratio::sequence && !one_advantage) {
        s.refuse("loss.ratio",
                 fmt::format("sequence: a sequence has one ratio but, with {}, an advantage per "
                             "token; use grpo, gspo, dr_grpo or rloo",
                             name));
    }
    if (c.loss.kl_coef == 0) {
        if (!c.loss.reference.empty()) s.refuse("loss.reference", "has no meaning while kl_coef is 0");
        if (c.loss.reference_every != 0)
            s.refuse("loss.reference_every", "has no meaning while kl_coef is 0");
        if (c.loss.kl_in == "reward") s.refuse("loss.kl_in", "reward has no meaning while kl_coef is 0");
    } else if (c.loss.kl == "k1" && c.loss.kl_in == "loss") {
        s.refuse("loss.kl",
                 "k1 as a term of the loss has a gradient that does not know the reference; use "
                 "k2, k3 or low_var, or kl_in reward");
    }
    if (c.grpo.samples < 2 && (one_advantage || algorithm.form == Form::baseline)) {
        s.refuse("grpo.samples",
                 fmt::format("1: {} compares the samples of a prompt with each other; at least "
                             "2, or use ppo or reinforce++",
                             name));
    }
    if (c.loss.whiten_rewards && algorithm.form == Form::group) {
        s.refuse("loss.whiten_rewards", fmt::format("{} normalises the rewards of each group anyway", name));
    }
    if (c.loss.gamma != 1 && algorithm.form != Form::gae && algorithm.form != Form::returns)
        s.refuse("loss.gamma", fmt::format("{} does not discount; use ppo or reinforce++", name));
    if (c.loss.lambda != 1 && algorithm.form != Form::gae)
        s.refuse("loss.lambda", fmt::format("{} has no GAE; use ppo", name));
    if (c.loss.value_lr != 0 && algorithm.form != Form::gae)
        s.refuse("loss.value_lr", fmt::format("{} has no value head; use ppo", name));
    if (c.loss.value_lr != 0 && c.train.lr == 0)
        s.refuse("loss.value_lr", "follows the schedule of train.lr, which is 0");
    if (algorithm.form == Form::gae && c.loss.value_coef == 0)
        s.refuse("loss.value_coef", "0: ppo would never train the value head that its advantages need");
}

}  // namespace tandem::trainer
