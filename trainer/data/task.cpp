#include "trainer/data/task.h"

namespace tandem::trainer {

Tokens Task::prompt(PromptId id) const {
    return id.split == PromptId::Split::train ? train_prompt(id.index) : held_out_prompt(id.index);
}

std::string Task::place(PromptId id) const {
    return (id.split == PromptId::Split::train ? "prompt " : "held-out prompt ") + std::to_string(id.index);
}

}  // namespace tandem::trainer
