// How a policy is sharded, initialised, trained and kept in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/device/device.h"
#include "common/tensor/dtype.h"
#include "trainer/data/packing.h"
#include "trainer/fsdp/reshard_after_forward.h"
#include "trainer/nn/checkpointing.h"
#include "trainer/pipeline/options.h"

namespace tandem::trainer {

struct PolicyOptions {
    Device device;  // where parameters lie and passes run
    DType compute_dtype = DType::float32;
    // Neighbouring mesh axes, other than tp, that parameters are sharded over; gradients are summed over the others too.
    // Empty: all of them, or all but cp when shard_over_cp is false.
    std::vector<std::string> shard_axes;
    bool shard_over_cp = true;
    // On a mesh with a tp axis (trainer/tensor_parallel/README.md).
    bool sequence_parallel = true;
    bool loss_parallel = true;
    pipeline::Options pipeline;                        // on a mesh with a pp axis
    ReshardAfterForward reshard_after_forward = true;  // or a number of ranks, see there
    // false: unsharded gradients are kept until the last micro-batch of accumulate(), and reduced once.
    bool reduce_every_micro_batch = true;
    std::int64_t max_tokens_per_rank = 4096;  // capacity of a pack is this × cp
    std::int64_t micro_batch = 0;             // samples of a micro-batch; 0: as many as the capacity holds
    // Packed all-gather-KV attention for batches of short sequences, zigzag ring for long ones; automatic:
    // ring when the pack holds one sequence. Without a cp axis there is nothing to choose.
    enum class ContextMode : std::uint8_t { automatic, packed, zigzag } context = ContextMode::automatic;
    float clip_grad_norm = 1.0f;  // 0: off
    float beta1 = 0.9f;
    float beta2 = 0.95f;
    float eps = 1e-8f;
    float weight_decay = 0.0f;
    float init_std = 0.02f;  // normal init; o_proj and down_proj get init_std / sqrt(2 * layers)
    std::uint64_t seed = 0;  // of the init; the same weights whatever the mesh
    std::int64_t logits_chunk_rows = 1024;
    Checkpointing checkpointing = Checkpointing::none;
    struct Offload {
        bool optimizer = false;
        bool parameters = false;  // with the reference model
        std::string directory = ".";
    } offload;  // state that is in the tier below memory while it is not used
    // The deepest sleep that the policy may be asked for: a GPU's memory must be allocated so that its pages
    // can go. The CPU's always can.
    enum class Sleep : std::uint8_t { none, optimizer, all } deepest_sleep = Sleep::none;
    // The packs that a rank works on in place of its own of the batch, which it does where this is empty or they are none.
    // For a prediction of memory, which walks the largest ones (trainer/memory).
    std::function<std::vector<Pack>()> packs;
    bool value_head = false;     // value_head.weight [1, hidden], zero at first, over the last hidden state
    double value_lr_factor = 1;  // its learning rate over that of the others
};

}  // namespace tandem::trainer
