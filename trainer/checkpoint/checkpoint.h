// Weights from and to Hugging Face directories. No rank gathers anything: each reads its own blocks out of the mapped files,
// and writes its own into place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "trainer/checkpoint/copied_files.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer {

struct SaveOptions {
    DType dtype = DType::float32;                    // or bfloat16, rounded to nearest even
    std::size_t shard_bytes = std::size_t{5} << 30;  // a larger model is cut into files of about this size
    // A Hugging Face directory whose config.json is kept but for its dtype, and whose tokenizer and
    // generation files are copied; empty: config.json from the policy's configuration alone.
    std::string source = {};
    // Whose tokenizer and chat template are copied instead of the source's, all of them; and whose
    // generation_config.json. The stop tokens of both config files are then the policy configuration's.
    // Empty: the source's.
    std::string tokenizer = {};
    std::string generation = {};
    // What those directories held when a run began (read_copied_files); null: what they hold when it is saved.
    std::shared_ptr<const CopiedFiles> files = {};
};

// What save_checkpoint will take on the disk, about; of a policy, and of one that does not exist yet.
std::uint64_t checkpoint_bytes(const Policy& policy, const SaveOptions& options);
std::uint64_t checkpoint_bytes(const model::ModelConfig& config, const SaveOptions& options);

// Writes DIR/model.safetensors, or DIR/model-0000k-of-0000n.safetensors with their index, and config.json.
// Appears under the name DIR when it is whole and on the disk; what was there before goes then. Collective
// over `world`, the policy's ranks. Throws SystemError; NoRoom on every rank, and then nothing of it is left.
void save_checkpoint(const Policy& policy, comm::Communicator& world, const std::string& directory,
                     const SaveOptions& options = {});

// Overwrites every parameter with DIR's, in fp32. Collective. Throws ConfigError.
void load_checkpoint(Policy& policy, const std::string& directory);

}  // namespace tandem::trainer
