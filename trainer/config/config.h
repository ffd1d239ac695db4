// The configuration of a run: every key, its default and its range. Nothing is started and nothing is written
// before a configuration has passed these and the checks across keys (check.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/config.h"
#include "common/mesh/parallel_dims.h"
#include "common/model/model_config.h"

namespace tandem::trainer {

class Task;

// The fields' initial values are the defaults; config.cpp declares key, range and help of each.
struct RunConfig {
    struct {
        std::string name = "run";
        std::string output = "runs";
        std::int64_t seed = 0;
        std::string device = "cpu";
        double deadline_s = 60;
        std::string resume;
        std::string if_exists = "refuse";
    } run;
    struct {
        std::int64_t dp = 1;
        std::int64_t dp_replicate = 1;
        std::int64_t cp = 1;
        std::int64_t tp = 1;
        std::int64_t pp = 1;
        std::int64_t ep = 1;
        std::int64_t etp = 1;
        std::string shard_axes = "dp_cp";
    } mesh;
    struct {
        bool sequence_parallel = true;
        bool loss_parallel = true;
    } tensor_parallel;
    struct {
        std::string schedule = "1F1B";
        std::int64_t stages_per_rank = 0;
        std::int64_t layers_per_stage = 0;
        std::string round_to_pp_multiple = "refuse";
        config::Texts split;
        std::int64_t first_stage_less_layers = 1;
        std::int64_t last_stage_less_layers = 1;
        std::int64_t microbatches = 0;
        std::string csv;
    } pipeline;  // see config/pipeline.h
    struct {
        std::string path;
        std::int64_t hidden_size = 64;
        std::int64_t intermediate_size = 192;
        std::int64_t layers = 2;
        std::int64_t heads = 4;
        std::int64_t kv_heads = 2;
        std::int64_t head_dim = 16;
        std::int64_t vocab_size = 16;
        std::int64_t context = 32;
        double rope_theta = 100;
        double rms_norm_eps = 1e-6;
        bool tie_embeddings = true;
        bool qk_norm = true;
        double init_std = 0.06;
    } model;
    struct {
        std::string compute_dtype = "fp32";
        std::string reduce_dtype = "fp32";
        double lr = 1e-3;
        double clip = 1.0;
        std::int64_t max_tokens_per_rank = 4096;
        std::int64_t micro_batch = 0;
        std::string context_mode = "automatic";
        bool reshard_after_forward = true;
        std::int64_t reshard_ranks = 0;
        bool reduce_every_micro_batch = true;
        std::int64_t logits_chunk_rows = 1024;
        double beta1 = 0.9;
        double beta2 = 0.95;
        double eps = 1e-8;
        double weight_decay = 0.0;
        std::string non_finite = "stop";
    } train;
    struct {
        std::string activation_checkpointing = "none";
        std::string offload = "none";
        std::string offload_dir;
        std::string trainer_sleep = "none";
        std::string engine_sleep = "none";
    } memory;
    struct {
        std::int64_t steps = 450;
        std::int64_t batch = 128;
        double lr = 6e-3;
        std::int64_t warmup = 20;
        double floor = 0.1;
    } sft;
    struct {
        std::int64_t steps = 60;
        std::int64_t prompts = 64;
        std::int64_t samples = 8;
        std::int64_t updates = 2;
        std::int64_t epochs = 1;
        double clip = 0.2;
        std::int64_t warmup = 5;
        double floor = 0.1;
        std::int64_t schedule_steps = 0;
        double temperature = 1.0;
        std::int64_t max_new_tokens = 3;
        std::int64_t evaluate_every = 20;
    } grpo;
    struct {
        std::string algorithm = "grpo";
        std::string ratio = "automatic";
        double clip_high = 0;
        double dual_clip = 0;
        std::string tis = "automatic";
        double tis_low = 0;
        double tis_high = 2;
        double opsm_delta = 0;
        std::string kl = "low_var";
        double kl_coef = 0;
        std::string kl_in = "loss";
        std::string reference;
        std::int64_t reference_every = 0;
        double entropy_coef = 0;
        std::string aggregation = "automatic";
        std::string whiten = "automatic";
        bool whiten_rewards = false;
        double gamma = 1;
        double lambda = 1;
        double value_coef = 1;
        double value_clip = 0.2;
        double value_lr = 0;
    } loss;  // see trainer/loss/config.h
    struct {
        std::string task = "auto";
        std::int64_t held_out = 1024;
        std::int64_t held_out_samples = 1;
        double teacher_noise = 0.6;
        // For the task "text".
        std::string prompts;
        std::string held_out_file;
        std::string changed = "refuse";
        std::string tokenizer;
        std::string prompt_key = "prompt";
        std::string answer_key = "answer";
        std::string completion_key = "completion";
        std::string bad_answers = "refuse";
        std::string chat = "auto";
        std::string system;
        std::string reward = "exact";
        bool reward_ignore_case = false;
        double reward_tolerance = 1e-6;
        std::string reward_pattern;
        std::int64_t reward_batch = 64;
        std::int64_t reward_connections = 4;
        double reward_timeout_s = 10;
        double reward_deadline_s = 45;
        double pass_score = 1;
        std::int64_t keep_samples = 4;
    } data;
    struct {
        std::string url;
        std::string dtype = "fp32";
        std::int64_t threads = 1;
        bool packed_weights = true;
        bool disable_cuda_graph = false;
        double kv_fraction = 0.2;
        std::int64_t batch = 512;
        double deadline_s = 45;
    } engine;
    struct {
        std::string mode = "gather";
        std::string transport = "auto";
        std::string nccl_form = "auto";
        std::int64_t bucket_mib = 0;
        std::int64_t depth = 0;
        double deadline_s = 30;
    } sync;
    struct {
        std::int64_t every = 0;
        std::int64_t keep = 2;
        std::string dtype = "fp32";
        double shard_gib = 5;
        double wait_for_room_s = 3600;
    } checkpoint;

    // [mesh], whose dp includes dp_replicate.
    ParallelDegrees degrees() const;
    std::int64_t world_size() const { return ParallelDims::ranks_of(degrees()); }
    // The axes that people think in, dp and cp, and others of more than one rank; as text "dp 2 x cp 2".
    std::vector<std::pair<std::string, std::int64_t>> mesh_axes() const;
    std::string mesh_text() const;
    // mesh.shard_axes as axes of ParallelDims' train mesh, and how many ranks those are.
    std::vector<std::string> shard_axes() const;
    std::int64_t shard_ranks() const;
    // Of the run once it has succeeded, and until then (run/run_directory.h).
    std::string finished_folder() const { return run.output + "/" + run.name; }
    std::string working_folder() const { return finished_folder() + ".partial"; }
};

config::Schema schema_of(RunConfig& config);

// The architecture that the configuration asks for: config.json of model.path, or the sizes under [model].
model::ModelConfig model_config(const RunConfig& config, const config::Schema& schema, const Task& task);

}  // namespace tandem::trainer
