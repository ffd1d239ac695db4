// Whether a training checkpoint holds what training should never have made: infinities and NaN.
#pragma once

#include <string>

#include "trainer/checkpoint/manifest.h"

namespace tandem::trainer {

// Tensors with elements that are infinite or NaN, as text with counts and rows: "weights/lm_head.weight (12 elements, the
// first in row 3)"; empty: none. Weights that are so in `model` too, the Hugging Face directory that the run began from
// (empty: fresh ones), do not count. Assumes that the files have been verified; reads all of them, on as many threads as
// help. Throws ConfigError.
std::string became_non_finite(const Manifest& manifest, const std::string& directory,
                              const std::string& model);

}  // namespace tandem::trainer
