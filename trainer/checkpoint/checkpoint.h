// Weights from and to Hugging Face directories, one parameter at a time.
#pragma once

#include <string>

#include "trainer/policy.h"

namespace tandem::trainer {

// Writes DIR/model.safetensors and DIR/config.json (fp32). Collective; rank 0 of the mesh writes.
void save_checkpoint(const Policy& policy, const std::string& directory);

// Overwrites every parameter with DIR's. Collective; every rank reads. Throws ConfigError.
void load_checkpoint(Policy& policy, const std::string& directory);

}  // namespace tandem::trainer
