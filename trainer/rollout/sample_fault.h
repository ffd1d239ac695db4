// What is wrong with a sample of a batch: which one, and what of it is infinite or NaN.
#pragma once

#include <string>
#include <vector>

namespace tandem::trainer {

struct SampleFault {
    std::string sample;  // where its prompt comes from: "prompts.jsonl:31"
    std::string what;    // "reward nan"
};

// "prompts.jsonl:31 (reward nan; 3 samples), prompts.jsonl:40 (reward inf) and 2 more"; the first few, each prompt once.
std::string text_of(const std::vector<SampleFault>& faults);

}  // namespace tandem::trainer
