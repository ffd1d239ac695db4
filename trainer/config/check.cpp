#include "trainer/config/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "common/error.h"
#include "common/http/client.h"
#include "common/log.h"
#include "common/model/architecture.h"
#include "common/model/check_weights.h"
#include "common/sharding/tensor_cut.h"
#include "trainer/config/engine_url.h"
#include "trainer/config/pipeline.h"
#include "trainer/data/make_task.h"
#include "trainer/loss/config.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

void check_name(const RunConfig& c, const config::Schema& s) {
    const std::string& name = c.run.name;
    const bool plain =
        !name.empty() && name.size() <= 200 && name[0] != '.' &&
        std::all_of(name.begin(), name.end(), [](unsigned char letter) {
            return std::isalnum(letter) != 0 || letter == '-' || letter == '_' || letter == '.';
        });
    if (!plain)
        s.refuse("run.name",
                 fmt::format("'{}' is not a folder name of letters, digits, '-', '_' and '.'", name));
    if (name.ends_with(".partial"))
        s.refuse("run.name",
                 fmt::format("'{}': NAME.partial is the folder of a run that has not ended", name));
    if (c.run.output.empty()) s.refuse("run.output", "is empty");
    const fs::path folder = fs::path(c.run.output) / name;
    std::error_code none;
    if (fs::exists(c.run.output) && !fs::is_directory(c.run.output)) {
        s.refuse("run.output", fmt::format("'{}' is not a folder", c.run.output));
    }
    // Only what an earlier run of this name wrote is replaced.
    const fs::path working = folder.string() + ".partial";
    const bool working_is_of_a_run = fs::exists(working / "config.toml") ||
                                     fs::exists(working / "checkpoints") || fs::is_empty(working, none);
    if (fs::exists(folder) && !fs::exists(folder / "config.toml")) {
        s.refuse("run.name",
                 fmt::format("'{}' exists and is not a run; choose another name", folder.string()));
    }
    if (fs::exists(working) && !working_is_of_a_run) {
        s.refuse("run.name", fmt::format("'{}', in which the run would work, exists and is not a run's; "
                                         "choose another name",
                                         working.string()));
    }
}

void check_mesh(const RunConfig& c, const config::Schema& s, int environment_world_size) {
    if (c.mesh.dp % c.mesh.dp_replicate != 0) {
        s.refuse("mesh.dp_replicate",
                 fmt::format("{} does not divide dp {}", c.mesh.dp_replicate, c.mesh.dp));
    }
    for (const auto& [key, degree] : {std::pair{"mesh.ep", c.mesh.ep}, {"mesh.etp", c.mesh.etp}}) {
        if (degree > 1) s.refuse(key, "expert parallelism is not there yet; use dp, cp, tp and pp");
    }
    if (c.world_size() > 1024) s.refuse("mesh.dp", c.mesh_text() + " is more than 1024 ranks");
    if (environment_world_size != 0 && environment_world_size != c.world_size()) {
        s.refuse("mesh.dp", fmt::format("{} = {} ranks, but WORLD_SIZE is {}", c.mesh_text(), c.world_size(),
                                        environment_world_size));
    }
    if (c.train.reshard_ranks == 0) return;
    if (!c.train.reshard_after_forward)
        s.refuse("train.reshard_ranks", "has no meaning while reshard_after_forward is false");
    if (c.shard_ranks() % c.train.reshard_ranks != 0) {
        s.refuse("train.reshard_ranks",
                 fmt::format("{} is not a factor of the {} ranks of shard_axes {}", c.train.reshard_ranks,
                             c.shard_ranks(), c.mesh.shard_axes));
    }
}

// The model directory must be whole.
void check_weights(const std::string& directory, const model::ModelConfig& config) {
    const auto files = model::Safetensors::open(directory);
    for (const std::string& name : model::check_weights(files, config)) {
        log_info("{}: {} is unused: it duplicates a tied tensor", files.file(name), name);
    }
}

// "; 3 of 40 prompts are longer than the 60 tokens that fit: FILE:2, FILE:9, FILE:11", or nothing for a task
// without a file.
std::string too_long(const Task& task, std::int64_t fit) {
    const auto found = task.prompts_longer_than(fit);
    if (found.count == 0) return "";
    return fmt::format("; {} of {} prompts are longer than the {} tokens that fit: {}", found.count,
                       task.size(), std::max<std::int64_t>(fit, 0), found.places);
}

// The reference's weights are read by the policy's architecture.
void check_reference(const RunConfig& c, const config::Schema& s, const model::ModelConfig& m) {
    const model::Architecture policy(m);
    const auto differences = policy.differences(model::read_architecture(c.loss.reference));
    if (!differences.empty()) {
        const std::string model = c.model.path.empty() ? "[model]" : c.model.path;
        s.refuse("loss.reference", fmt::format("{}: the reference must be of the model's architecture",
                                               model::to_text(differences, model, c.loss.reference)));
    }
    check_weights(c.loss.reference, m);
}

void check_lengths(const RunConfig& c, const config::Schema& s, const model::ModelConfig& m,
                   const Task& task) {
    const std::int64_t longest =
        task.longest_prompt() + std::max(c.grpo.max_new_tokens, task.longest_answer());
    const std::int64_t to_come = longest - task.longest_prompt();
    if (longest > m.max_position_embeddings && !task.place_of_longest_prompt().empty()) {
        throw ConfigError(task.place_of_longest_prompt(), c.data.prompt_key,
                          fmt::format("has {} tokens; with {} to come (grpo.max_new_tokens, completions) "
                                      "that is more than the model's context of {}{}",
                                      task.longest_prompt(), to_come, m.max_position_embeddings,
                                      too_long(task, m.max_position_embeddings - to_come)));
    }
    if (longest > m.max_position_embeddings) {
        s.refuse(
            c.model.path.empty() ? "model.context" : "model.path",
            fmt::format("the context is {} tokens, but a prompt of {} with max_new_tokens {} needs {}",
                        m.max_position_embeddings, task.longest_prompt(), c.grpo.max_new_tokens, longest));
    }
    const std::int64_t room = c.train.max_tokens_per_rank * c.mesh.cp;
    if (longest > room) {
        s.refuse(
            "train.max_tokens_per_rank",
            fmt::format("{} x cp {} does not hold one sequence of {} tokens{}", c.train.max_tokens_per_rank,
                        c.mesh.cp, longest, too_long(task, room - to_come)));
    }
    if (c.train.micro_batch * longest > room) {
        s.refuse("train.micro_batch",
                 fmt::format("{} samples of up to {} tokens do not fit into max_tokens_per_rank {} x cp {}",
                             c.train.micro_batch, longest, c.train.max_tokens_per_rank, c.mesh.cp));
    }
}

void check_batches(const RunConfig& c, const config::Schema& s) {
    const std::int64_t samples = c.grpo.prompts * c.grpo.samples;
    if (samples % c.grpo.updates != 0) {
        s.refuse("grpo.updates",
                 fmt::format("{} does not divide the {} samples of a step (prompts {} x samples {})",
                             c.grpo.updates, samples, c.grpo.prompts, c.grpo.samples));
    }
    if (samples / c.grpo.updates < c.mesh.dp) {
        s.refuse("grpo.updates", fmt::format("leaves {} samples an update for dp {} ranks",
                                             samples / c.grpo.updates, c.mesh.dp));
    }
    if (c.sft.batch < c.mesh.dp)
        s.refuse("sft.batch", fmt::format("{} is fewer than dp {} ranks", c.sft.batch, c.mesh.dp));
}

// The other ranks wait for rank 0 while it waits for the engine, so their timeout must be the longer one.
void check_deadlines(const RunConfig& c, const config::Schema& s) {
    const auto below = [&](const char* key, double seconds) {
        if (seconds >= c.run.deadline_s)
            s.refuse(key, fmt::format("{} is not below run.deadline_s, {}", seconds, c.run.deadline_s));
    };
    below("engine.deadline_s", c.engine.deadline_s);
    below("sync.deadline_s", c.sync.deadline_s);
    if (c.data.reward.starts_with("http://")) below("data.reward_deadline_s", c.data.reward_deadline_s);
}

void check_url(const RunConfig& c, const config::Schema& s) {
    const std::string& url = c.engine.url;
    if (url.empty()) return;
    try {
        http::parse_url(http_url(url), url);
    } catch (const InvalidArgument& error) {
        s.refuse("engine.url", error.what());
    }
}

void check_tensor_parallel(const RunConfig& c, const config::Schema& s, const model::ModelConfig& m) {
    try {
        check_tensor_degree(m, static_cast<int>(c.mesh.tp));
    } catch (const InvalidArgument& error) {
        s.refuse("mesh.tp", error.what());
    }
}

}  // namespace

void check_settings(const RunConfig& c, const config::Schema& s, int environment_world_size) {
    check_name(c, s);
    check_mesh(c, s, environment_world_size);
    check_batches(c, s);
    check_loss(c, s);
    check_url(c, s);
    check_deadlines(c, s);
}

void check(const RunConfig& c, const config::Schema& s, int environment_world_size) {
    check_settings(c, s, environment_world_size);
    const auto task = make_task(c, s);
    const auto m = model_config(c, s, *task);
    check_tensor_parallel(c, s, m);
    check_pipeline(c, s, m);
    if (!c.model.path.empty()) check_weights(c.model.path, m);
    if (!c.loss.reference.empty()) check_reference(c, s, m);
    check_memory(c, s, m);
    check_lengths(c, s, m, *task);
}

}  // namespace tandem::trainer
