#include "trainer/main/engine_check.h"

#include <fmt/core.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/http/access.h"
#include "common/http/client.h"
#include "common/json_text.h"
#include "common/log.h"
#include "common/model/architecture.h"
#include "engine_adapter/tandem/url.h"
#include "trainer/config/engine_url.h"
#include "trainer/data/make_task.h"

namespace tandem::trainer {
namespace {

using nlohmann::json;

// What it says of itself; null where it says nothing.
json own_words(const RunConfig& c) {
    const std::string url = http_url(engine::parse_engine_url(c.engine.url).base);
    const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(c.engine.deadline_s * 1e3));
    try {
        http::Client client(url, http::key_from_environment());
        const json info = client.get_json("/model_info", Deadline::after(timeout));
        const auto found = info.find("tandem");
        return found != info.end() && found->is_object() ? *found : json::object();
    } catch (const TransportError&) {
        return json::object();
    }
}

void check_architecture(const RunConfig& c, const config::Schema& s, const Task& task, const json& theirs) {
    const model::Architecture ours(model_config(c, s, task));
    const std::string model = c.model.path.empty() ? "[model]" : c.model.path;
    const auto differences =
        ours.differences(model::Architecture::from_json(theirs, c.engine.url + "/model_info: architecture"));
    if (differences.empty()) return;
    s.refuse("engine.url",
             fmt::format("{}: it would compute something else with this run's weights; start it "
                         "on a directory of this model",
                         model::to_text(differences, model, c.engine.url)));
}

void check_context(const RunConfig& c, const config::Schema& s, const Task& task, std::int64_t limit) {
    const std::int64_t longest = task.longest_prompt() + c.grpo.max_new_tokens;
    if (longest <= limit) return;
    s.refuse("engine.url",
             fmt::format("{} takes {} tokens (its max_position_embeddings); a prompt of {} with "
                         "grpo.max_new_tokens {} is {}",
                         c.engine.url, limit, task.longest_prompt(), c.grpo.max_new_tokens, longest));
}

}  // namespace

void check_engine(const RunConfig& c, const config::Schema& s) {
    if (c.engine.url.empty() || is_third_party(c.engine.url)) return;
    const json words = own_words(c);
    const auto task = make_task(c, s);
    if (const auto theirs = words.find("architecture"); theirs != words.end())
        check_architecture(c, s, *task, *theirs);
    const auto limit = words.find("context_length");
    if (limit != words.end() && limit->is_number_integer()) check_context(c, s, *task, integer_of(*limit));
}

void tell_differences(const RunConfig& c, const engine::Engine& engine) {
    const engine::Capabilities& its = engine.capabilities();
    if (!its.architecture) {
        log_info("{}: its architecture is not compared with this run's model: it does not say it",
                 engine.peer());
    }
    const DType ours = dtype_from_name(c.train.compute_dtype);
    const DType theirs = engine::main_dtype(its.tensors);
    if (ours == theirs) return;
    const bool own = c.engine.url.empty();
    log_warn(
        "the trainer computes in {} (train.compute_dtype) and {} in {}{}: log-probs of the same weights "
        "differ by "
        "their rounding",
        dtype_name(ours), own ? "the engine" : engine.peer(), dtype_name(theirs),
        own ? " (engine.dtype)" : "");
}

}  // namespace tandem::trainer
