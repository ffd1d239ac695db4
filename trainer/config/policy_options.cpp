#include "trainer/config/policy_options.h"

#include "trainer/config/pipeline.h"
#include "trainer/loss/config.h"

namespace tandem::trainer {

std::vector<std::string> policy_axes(const RunConfig& c) {
    std::vector<std::string> axes{"dp_replicate", "dp_shard", "cp", "tp"};
    if (c.mesh.pp > 1) axes.insert(axes.begin(), "pp");
    return axes;
}

PolicyOptions policy_options(const RunConfig& c) {
    PolicyOptions o;
    if (c.run.device == "cuda") o.device = {DeviceType::cuda, 0};  // which one a rank knows: device_choice.h
    o.compute_dtype = dtype_from_name(c.train.compute_dtype);
    o.shard_axes = c.shard_axes();
    o.sequence_parallel = c.tensor_parallel.sequence_parallel;
    o.loss_parallel = c.tensor_parallel.loss_parallel;
    if (c.mesh.pp > 1) o.pipeline = pipeline_options(c);
    o.reshard_after_forward = c.train.reshard_after_forward;
    if (c.train.reshard_ranks > 0)
        o.reshard_after_forward = ReshardAfterForward(static_cast<int>(c.train.reshard_ranks));
    o.reduce_every_micro_batch = c.train.reduce_every_micro_batch;
    o.max_tokens_per_rank = c.train.max_tokens_per_rank;
    o.micro_batch = c.train.micro_batch;
    using Mode = PolicyOptions::ContextMode;
    o.context = c.train.context_mode == "packed"   ? Mode::packed
                : c.train.context_mode == "zigzag" ? Mode::zigzag
                                                   : Mode::automatic;
    o.clip_grad_norm = static_cast<float>(c.train.clip);
    o.beta1 = static_cast<float>(c.train.beta1);
    o.beta2 = static_cast<float>(c.train.beta2);
    o.eps = static_cast<float>(c.train.eps);
    o.weight_decay = static_cast<float>(c.train.weight_decay);
    o.init_std = static_cast<float>(c.model.init_std);
    o.seed = static_cast<std::uint64_t>(c.run.seed);
    o.logits_chunk_rows = c.train.logits_chunk_rows;
    o.checkpointing = c.memory.activation_checkpointing == "full"        ? Checkpointing::full
                      : c.memory.activation_checkpointing == "selective" ? Checkpointing::selective
                                                                         : Checkpointing::none;
    o.value_head = needs_value_head(c);
    if (c.loss.value_lr > 0) o.value_lr_factor = c.loss.value_lr / c.train.lr;
    o.offload.optimizer = c.memory.offload == "optimizer" || c.memory.offload == "all";
    o.offload.parameters = c.memory.offload == "parameters" || c.memory.offload == "all";
    o.offload.directory = c.memory.offload_dir;
    using Sleep = PolicyOptions::Sleep;
    o.deepest_sleep = c.memory.trainer_sleep == "all"         ? Sleep::all
                      : c.memory.trainer_sleep == "optimizer" ? Sleep::optimizer
                                                              : Sleep::none;
    return o;
}

}  // namespace tandem::trainer
