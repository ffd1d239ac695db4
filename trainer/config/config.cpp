// The keys of a run. Checks across them are check.cpp's.
#include "trainer/config/config.h"

#include "trainer/loss/config.h"

namespace tandem::trainer {

// --- what follows from several keys

std::vector<std::string> RunConfig::shard_axes() const {
    const std::string& all = mesh.shard_axes;
    std::vector<std::string> axes;
    if (all == "dp" || all == "dp_cp") axes.push_back("dp_replicate");
    if (all != "cp") axes.push_back("dp_shard");
    if (all.ends_with("cp")) axes.push_back("cp");
    return axes;
}

ParallelDegrees RunConfig::degrees() const {
    const auto degree = [](std::int64_t ranks) { return static_cast<int>(ranks); };
    return {.dp_replicate = degree(mesh.dp_replicate),
            .dp_shard = degree(mesh.dp / mesh.dp_replicate),
            .cp = degree(mesh.cp),
            .tp = degree(mesh.tp),
            .pp = degree(mesh.pp)};
}

std::vector<std::pair<std::string, std::int64_t>> RunConfig::mesh_axes() const {
    std::vector<std::pair<std::string, std::int64_t>> axes{{"dp", mesh.dp}, {"cp", mesh.cp}};
    if (mesh.tp > 1) axes.emplace_back("tp", mesh.tp);
    if (mesh.pp > 1) axes.emplace_back("pp", mesh.pp);
    return axes;
}

std::string RunConfig::mesh_text() const {
    std::string text;
    for (const auto& [axis, ranks] : mesh_axes())
        text += fmt::format("{}{} {}", text.empty() ? "" : " x ", axis, ranks);
    return text;
}

std::int64_t RunConfig::shard_ranks() const {
    const ParallelDims dims(degrees(), static_cast<int>(world_size()));
    std::int64_t ranks = 1;
    for (const std::string& axis : shard_axes()) ranks *= dims.train_mesh().size(axis);
    return ranks;
}

namespace {

// --- the sections of a file, a function each

void add_run_keys(config::Schema& s, RunConfig& c) {
    s.text("run.name", c.run.name, "Name of the run; its results go to OUTPUT/NAME.");
    s.text("run.output", c.run.output, "Folder that holds the runs.");
    s.integer("run.seed", c.run.seed, 0, 9007199254740991,
              "Seed of initial weights, prompts and sampling; equal seeds give bit-identical runs.");
    s.choice("run.device", c.run.device, {"cpu", "cuda"},
             "Where trainer and engine compute: rank r of a host on its GPU r modulo the number of GPUs, the "
             "engine on the next one.");
    s.real("run.deadline_s", c.run.deadline_s, 1, 86400,
           "Seconds that a rank waits for another one before the job ends, naming that one.");
    s.text("run.resume", c.run.resume,
           "Run or checkpoint to continue from; newest: this run's newest whole and finite checkpoint "
           "(--resume); empty: a fresh start.");
    s.choice(
        "run.if_exists", c.run.if_exists, {"refuse", "keep", "overwrite"},
        "What becomes of a finished run of this name: refuse to start, keep it as NAME.1, NAME.2, …, or "
        "overwrite it once this run has finished. A run that goes on with --resume takes its own place.");
}

void add_mesh_keys(config::Schema& s, RunConfig& c) {
    s.integer("mesh.dp", c.mesh.dp, 1, 1024, "Data-parallel ranks; each takes a share of the batch.");
    s.integer("mesh.dp_replicate", c.mesh.dp_replicate, 1, 1024,
              "Cuts dp into that many replicas of dp_shard ranks each, for hybrid sharding; divides dp.");
    s.integer("mesh.cp", c.mesh.cp, 1, 1024, "Context-parallel ranks; each takes a share of every sequence.");
    s.integer("mesh.tp", c.mesh.tp, 1, 1024,
              "Tensor-parallel ranks; each has a part of every layer's heads and columns. Divides the query "
              "heads.");
    s.integer(
        "mesh.pp", c.mesh.pp, 1, 1024,
        "Pipeline-parallel ranks; each has some of the layers ([pipeline] says how they are cut and run).");
    s.integer("mesh.ep", c.mesh.ep, 1, 1024, "Expert-parallel ranks; not there yet: 1.");
    s.integer("mesh.etp", c.mesh.etp, 1, 1024, "Tensor-parallel ranks of the experts; not there yet: 1.");
    s.choice("mesh.shard_axes", c.mesh.shard_axes, {"dp_cp", "dp", "dp_shard_cp", "dp_shard", "cp"},
             "Axes that parameters are sharded over; ranks along the others hold replicas.");
    s.flag("tensor_parallel.sequence_parallel", c.tensor_parallel.sequence_parallel,
           "With mesh.tp: norms and residuals are cut over the ranks by tokens; as many bytes on the way, a "
           "part of the memory.");
    s.flag("tensor_parallel.loss_parallel", c.tensor_parallel.loss_parallel,
           "With mesh.tp: log-probs from three numbers a token and rank; off: the ranks gather whole rows of "
           "logits.");
}

void add_pipeline_keys(config::Schema& s, RunConfig& c) {
    auto& pipeline = c.pipeline;
    s.text("pipeline.schedule", pipeline.schedule,
           "With mesh.pp: GPipe, 1F1B, Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble or "
           "DualPipeV (tandem-train inspect schedule shows them).");
    s.integer(
        "pipeline.stages_per_rank", pipeline.stages_per_rank, 0, 1024,
        "Stages of each rank; 0: as the other keys have it, else 1 for GPipe and 1F1B and 2 for the others.");
    s.integer("pipeline.layers_per_stage", pipeline.layers_per_stage, 0, 1 << 20,
              "Layers of a stage, among them what embedding and head weigh; mesh.pp divides the number of "
              "stages. 0: as many as there are stages for.");
    s.choice("pipeline.round_to_pp_multiple", pipeline.round_to_pp_multiple, {"refuse", "up", "down"},
             "What becomes of a number of stages by layers_per_stage that mesh.pp does not divide.");
    s.texts("pipeline.split", pipeline.split,
            "Modules that begin a stage, as in [\"model.layers.4\", \"model.layers.8\"]; empty: evenly.");
    s.integer("pipeline.first_stage_less_layers", pipeline.first_stage_less_layers, 0, 1024,
              "Layers that the first stage has fewer than the others, for the embedding.");
    s.integer("pipeline.last_stage_less_layers", pipeline.last_stage_less_layers, 0, 1024,
              "Layers that the last stage has fewer than the others, for norm, head and loss.");
    s.integer(
        "pipeline.microbatches", pipeline.microbatches, 0, 1 << 16,
        "Packs that a batch is cut into at least, on each data-parallel rank; 0: as many as mesh.pp. More "
        "where they do not fit into train.max_tokens_per_rank, as many as the schedule admits.");
    s.text("pipeline.csv", pipeline.csv,
           "File with what each rank does, in PyTorch's CSV, instead of pipeline.schedule.");
}

void add_model_keys(config::Schema& s, RunConfig& c) {
    s.text("model.path", c.model.path,
           "Hugging Face directory to start from; empty: a fresh model of the sizes below.");
    s.integer("model.hidden_size", c.model.hidden_size, 1, 1 << 20, "Width of the residual stream.");
    s.integer("model.intermediate_size", c.model.intermediate_size, 1, 1 << 22, "Width of the SwiGLU layer.");
    s.integer("model.layers", c.model.layers, 1, 1024, "Decoder layers.");
    s.integer("model.heads", c.model.heads, 1, 1024, "Attention heads; a multiple of kv_heads.");
    s.integer("model.kv_heads", c.model.kv_heads, 1, 1024, "Key-value heads.");
    s.integer("model.head_dim", c.model.head_dim, 2, 1024, "Size of a head; even.");
    s.integer("model.vocab_size", c.model.vocab_size, 2, 1 << 24, "Token ids; at least what the task uses.");
    s.integer("model.context", c.model.context, 2, 1 << 24, "Longest sequence, prompt and answer together.");
    s.real("model.rope_theta", c.model.rope_theta, 1, 1e12, "Base of the rotary embedding.");
    s.real("model.rms_norm_eps", c.model.rms_norm_eps, 1e-12, 1, "Epsilon of RMSNorm.");
    s.flag("model.tie_embeddings", c.model.tie_embeddings, "Use the embedding as the output head too.");
    s.flag("model.qk_norm", c.model.qk_norm, "Normalise queries and keys per head (Qwen3).");
    s.real("model.init_std", c.model.init_std, 1e-6, 1, "Standard deviation of fresh weights.");
}

void add_train_keys(config::Schema& s, RunConfig& c) {
    s.choice("train.compute_dtype", c.train.compute_dtype, {"fp32", "bf16"},
             "Dtype of gathered weights and activations.");
    s.choice("train.reduce_dtype", c.train.reduce_dtype, {"fp32"}, "Dtype that gradients are reduced in.");
    s.real("train.lr", c.train.lr, 0, 10, "Peak learning rate of GRPO.");
    s.real("train.clip", c.train.clip, 0, 1e9, "Largest gradient norm; 0: no clipping.");
    s.integer("train.max_tokens_per_rank", c.train.max_tokens_per_rank, 1, 1 << 24,
              "Tokens of one micro-batch on one rank; a pack holds this times cp.");
    s.integer("train.micro_batch", c.train.micro_batch, 0, 1 << 20,
              "Samples of one micro-batch; 0: as many as its tokens allow (dynamic batch size).");
    s.choice("train.context_mode", c.train.context_mode, {"automatic", "packed", "zigzag"},
             "Attention over cp: all-gathered keys for packed short sequences, a zigzag ring for long ones.");
    s.flag("train.reshard_after_forward", c.train.reshard_after_forward,
           "Free gathered weights between forward and backward.");
    s.integer(
        "train.reshard_ranks", c.train.reshard_ranks, 0, 1024,
        "Neighbours that then keep the weights among them, so that the backward gathers from those only; 0: "
        "all ranks of shard_axes.");
    s.flag("train.reduce_every_micro_batch", c.train.reduce_every_micro_batch,
           "Reduce gradients after each micro-batch; false: keep them whole and reduce once.");
    s.integer("train.logits_chunk_rows", c.train.logits_chunk_rows, 1, 1 << 24,
              "Rows of logits that exist at once.");
    s.real("train.beta1", c.train.beta1, 0, 0.999999, "AdamW: decay of the first moment.");
    s.real("train.beta2", c.train.beta2, 0, 0.999999, "AdamW: decay of the second moment.");
    s.real("train.eps", c.train.eps, 1e-16, 1, "AdamW: epsilon.");
    s.real("train.weight_decay", c.train.weight_decay, 0, 1, "AdamW: weight decay.");
    s.choice(
        "train.non_finite", c.train.non_finite, {"stop", "skip"},
        "A step whose loss, gradient norm, reward, advantage or log-prob is infinite or NaN ends the run, or "
        "is left out, ten in a row at most; either way nothing of it is applied.");
}

void add_memory_keys(config::Schema& s, RunConfig& c) {
    s.choice("memory.activation_checkpointing", c.memory.activation_checkpointing,
             {"none", "selective", "full"},
             "Activations that a layer recomputes in the backward instead of keeping them: none, the cheap "
             "half, or all; results do not change.");
    s.choice(
        "memory.offload", c.memory.offload, {"none", "optimizer", "parameters", "all"},
        "State that is kept below memory while it is not used (in a file; a GPU's in pinned host memory): "
        "AdamW's moments, the fp32 shards (and the reference model's), or both; results do not change.");
    s.text("memory.offload_dir", c.memory.offload_dir,
           "Folder on a local disk for state that is offloaded from the CPU's memory; empty: the run's own.");
    s.choice(
        "memory.trainer_sleep", c.memory.trainer_sleep, {"none", "optimizer", "all"},
        "State of the trainer that leaves memory while the engine generates: none, AdamW's moments, or "
        "shards, "
        "gradients and buffers too; it is offloaded as memory.offload does and is back for the next step.");
    s.choice(
        "memory.engine_sleep", c.memory.engine_sleep, {"none", "kv_cache", "all"},
        "Memory that the engine releases while the trainer computes: none, its cache, or its weights too, "
        "which the next sync loads again. An SGLang must have been started with --enable-memory-saver, a "
        "vLLM "
        "with --enable-sleep-mode.");
}

void add_sft_keys(config::Schema& s, RunConfig& c) {
    s.integer("sft.steps", c.sft.steps, 0, 1 << 30, "Steps of the supervised warm start; 0: none.");
    s.integer("sft.batch", c.sft.batch, 1, 1 << 20, "Examples per step.");
    s.real("sft.lr", c.sft.lr, 0, 10, "Peak learning rate of the warm start (cosine decay).");
    s.integer("sft.warmup", c.sft.warmup, 0, 1 << 30, "Steps of linear warm-up.");
    s.real("sft.floor", c.sft.floor, 0, 1, "Fraction of the peak that is left at the end.");
}

void add_grpo_keys(config::Schema& s, RunConfig& c) {
    s.integer("grpo.steps", c.grpo.steps, 0, 1 << 30, "Steps of reinforcement learning; 0: none.");
    s.integer("grpo.prompts", c.grpo.prompts, 1, 1 << 20, "Prompts per step.");
    s.integer("grpo.samples", c.grpo.samples, 1, 1 << 16,
              "Samples per prompt; advantages are normalised among them.");
    s.integer("grpo.updates", c.grpo.updates, 1, 1 << 10,
              "Optimizer steps per rollout batch, each on its own part of it.");
    s.integer("grpo.epochs", c.grpo.epochs, 1, 1 << 10, "Passes over a rollout batch.");
    s.real("grpo.clip", c.grpo.clip, 0, 1, "Clip range of the probability ratio.");
    s.integer("grpo.warmup", c.grpo.warmup, 0, 1 << 30, "Steps of linear warm-up.");
    s.real("grpo.floor", c.grpo.floor, 0, 1,
           "Fraction of the peak learning rate that is left at the end (linear decay).");
    s.integer("grpo.schedule_steps", c.grpo.schedule_steps, 0, 1 << 30,
              "Steps over which the learning rate falls to grpo.floor, where it then stays; 0: grpo.steps. A "
              "resumed run with more steps keeps its schedule with the grpo.steps that it had.");
    s.real("grpo.temperature", c.grpo.temperature, 1e-3, 1e3,
           "Temperature of the rollouts; log-probs and entropies are those of softmax(logits / temperature), "
           "by engine and trainer alike.");
    s.integer("grpo.max_new_tokens", c.grpo.max_new_tokens, 1, 1 << 20, "Longest answer that is sampled.");
    s.integer("grpo.evaluate_every", c.grpo.evaluate_every, 0, 1 << 30,
              "Steps between evaluations on the held-out prompts; 0: only the first and the last.");
}

void add_data_keys(config::Schema& s, RunConfig& c) {
    s.choice(
        "data.task", c.data.task, {"auto", "sum4", "text"},
        "The task to learn: sum4 adds four digits, text is data.prompts; auto: text if there are prompts.");
    s.integer("data.held_out", c.data.held_out, 1, 1 << 20,
              "Prompts that are never trained on and give the reward figures; of a file its last lines.");
    s.integer("data.held_out_samples", c.data.held_out_samples, 0, 1 << 10,
              "Samples of each held-out prompt for the sampled figures, pass@k; 0: greedy ones only.");
    s.real(
        "data.teacher_noise", c.data.teacher_noise, 0, 1,
        "How often the teacher of the warm start answers wrongly; the verifier then has something to teach.");
    s.text("data.prompts", c.data.prompts, "JSONL file: one JSON object with a prompt per line.");
    s.text("data.held_out_file", c.data.held_out_file,
           "JSONL file whose first held_out lines are the held-out prompts; empty: the end of data.prompts.");
    s.choice("data.changed", c.data.changed, {"refuse", "accept"},
             "Whether --resume goes on where data.prompts or data.held_out_file holds something else than "
             "when the checkpoint was written.");
    s.text("data.tokenizer", c.data.tokenizer,
           "Folder with tokenizer.json and tokenizer_config.json; empty: model.path.");
    s.text("data.prompt_key", c.data.prompt_key,
           "Key of a line's prompt: a text, or a list of messages with role and content.");
    s.text("data.answer_key", c.data.answer_key, "Key of a line's right answer, for the reward.");
    s.text("data.completion_key", c.data.completion_key,
           "Key of the completion that the warm start imitates; only its tokens are trained on.");
    s.choice("data.bad_answers", c.data.bad_answers, {"refuse", "skip"},
             "Lines whose answer the reward cannot judge against: refuse the file, or leave them out.");
    s.choice("data.chat", c.data.chat, {"auto", "on", "off"},
             "Render a prompt that is a text as a user's message; auto: where the tokenizer has a template.");
    s.text("data.system", c.data.system, "System message of conversations that have none; empty: none.");
    s.text("data.reward", c.data.reward,
           "exact, numeric (the last number, of GSM8K or LaTeX), regex, or the URL of a reward server.");
    s.flag("data.reward_ignore_case", c.data.reward_ignore_case,
           "Rewards exact and regex ignore the case of ASCII letters.");
    s.real("data.reward_tolerance", c.data.reward_tolerance, 0, 1,
           "Reward numeric: largest difference of decimals and roots, relative for right answers beyond 1; "
           "above "
           "the default also of whole numbers and fractions, which are exact else.");
    s.text("data.reward_pattern", c.data.reward_pattern,
           "Reward regex, as PCRE2 has it: its first group in the last match is compared with the answer; "
           "without a group a match is enough.");
    s.integer("data.reward_batch", c.data.reward_batch, 1, 1 << 16, "Reward server: samples per request.");
    s.integer("data.reward_connections", c.data.reward_connections, 1, 64,
              "Reward server: requests at once.");
    s.real("data.reward_timeout_s", c.data.reward_timeout_s, 0.01, 86400,
           "Reward server: seconds until a request times out and is sent again.");
    s.real("data.reward_deadline_s", c.data.reward_deadline_s, 0.01, 86400,
           "Reward server: seconds until a batch without scores, retries included, ends the job.");
    s.integer("data.keep_samples", c.data.keep_samples, 0, 1 << 16,
              "Completions per step and per evaluation that samples.jsonl keeps as text; 0: none.");
    s.real("data.pass_score", c.data.pass_score, -1e9, 1e9,
           "Smallest reward of a completion that counts as passed in pass@1 and pass@k.");
}

void add_engine_keys(config::Schema& s, RunConfig& c) {
    s.text(
        "engine.url", c.engine.url,
        "A running engine: tandem://HOST:PORT (or http://), unix:///PATH, or vllm://HOST:PORT or "
        "sglang://HOST:PORT, a server of this host; empty: the embedded one is started. A tandem-engine of "
        "another architecture is refused.");
    s.choice("engine.dtype", c.engine.dtype, {"fp32", "bf16"}, "Dtype of the started engine's weights.");
    s.integer("engine.threads", c.engine.threads, 1, 1024, "Compute threads of the started engine.");
    s.flag(
        "engine.packed_weights", c.engine.packed_weights,
        "The started engine keeps a second copy of its matrices, packed for faster decoding; off: half the "
        "memory, the same tokens.");
    s.flag("engine.disable_cuda_graph", c.engine.disable_cuda_graph,
           "The started engine launches the kernels of a decode step one by one: slower, less memory.");
    s.real(
        "engine.kv_fraction", c.engine.kv_fraction, 0.001, 0.95,
        "On a GPU: the share of the memory that its weights leave free, before the ranks take theirs, that "
        "the started engine's cache takes; at most what its samples can fill.");
    s.integer("engine.batch", c.engine.batch, 1, 1 << 16, "Samples per request.");
    s.real("engine.deadline_s", c.engine.deadline_s, 0.1, 86400,
           "Seconds until an engine that does not answer a request, of engine.batch samples, ends the job.");
}

void add_sync_keys(config::Schema& s, RunConfig& c) {
    s.choice(
        "sync.mode", c.sync.mode, {"gather", "direct", "alias", "delta"},
        "How weights reach the engine: gathered in buckets, read straight from the shards, in shared memory "
        "that the engine switches to, or only the changes.");
    s.choice("sync.transport", c.sync.transport, {"auto", "shm", "cuda_ipc", "nccl"},
             "Transport of the weights: shared memory of the host, a GPU's memory that the engine opens, or "
             "NCCL to "
             "an engine on a GPU of its own; auto: cuda_ipc from a GPU where that works, else shm.");
    s.choice("sync.nccl_form", c.sync.nccl_form, {"auto", "broadcast", "send"},
             "How a bucket leaves over nccl: one broadcast, or a send to each engine rank; auto: a broadcast "
             "where several want the same bytes.");
    s.integer("sync.bucket_mib", c.sync.bucket_mib, 0, 1 << 16, "Size of a bucket in MiB; 0: chosen.");
    s.integer("sync.depth", c.sync.depth, 0, 64, "Buckets in flight; 0: chosen.");
    s.real("sync.deadline_s", c.sync.deadline_s, 0.1, 86400,
           "Seconds until a sync that has not ended fails, naming the late peer.");
}

void add_checkpoint_keys(config::Schema& s, RunConfig& c) {
    s.integer("checkpoint.every", c.checkpoint.every, 0, 1 << 30,
              "Steps, of warm start and reinforcement, between checkpoints that --resume continues, and one "
              "at the end; 0: none.");
    s.integer("checkpoint.keep", c.checkpoint.keep, 1, 1 << 20,
              "Number of those that are kept; an older one is removed when a new one is whole.");
    s.choice("checkpoint.dtype", c.checkpoint.dtype, {"fp32", "bf16"},
             "Dtype of the Hugging Face directory that a run leaves in NAME/checkpoint.");
    s.real("checkpoint.shard_gib", c.checkpoint.shard_gib, 1e-6, 1e6,
           "A larger model is written as several safetensors files of about that many GiB.");
    s.real(
        "checkpoint.wait_for_room_s", c.checkpoint.wait_for_room_s, 0, 1e7,
        "Seconds that a run whose checkpoint finds the disk full keeps the weights in memory and waits for "
        "room, before it fails; 0: none.");
}

}  // namespace

config::Schema schema_of(RunConfig& c) {
    config::Schema s;
    add_run_keys(s, c);
    add_mesh_keys(s, c);
    add_pipeline_keys(s, c);
    add_model_keys(s, c);
    add_train_keys(s, c);
    add_memory_keys(s, c);
    add_sft_keys(s, c);
    add_grpo_keys(s, c);
    add_loss_keys(s, c);
    add_data_keys(s, c);
    add_engine_keys(s, c);
    add_sync_keys(s, c);
    add_checkpoint_keys(s, c);
    return s;
}

}  // namespace tandem::trainer
