// One rank's rows of one pack, ready for the model: tokens, positions, and the targets among them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/context/sequence_layout.h"
#include "trainer/data/packing.h"
#include "trainer/data/sample.h"

namespace tandem::trainer {

struct MicroBatch {
    SequenceLayout layout;
    std::vector<std::int32_t> tokens;     // of this rank's rows; padding is token 0
    std::vector<std::int32_t> positions;  // in the row's own sequence
    // Targets: the local row that predicts, the token, and whose token it is.
    struct Owner {
        int sample = 0;
        std::int64_t index = 0;
    };
    std::vector<std::int32_t> target_rows;
    std::vector<std::int32_t> target_tokens;
    std::vector<Owner> owners;
};

// Throws InvalidArgument naming the sample: lengths that differ, or a token outside of [0, vocab).
void check_samples(std::span<const Sample> samples, std::int64_t vocab);

// A row predicts the token after it in the sample, whichever rank holds that one.
MicroBatch make_micro_batch(std::span<const Sample> samples, const Pack& pack, bool zigzag, int cp, int rank);

}  // namespace tandem::trainer
