#include "trainer/data/task.h"

namespace tandem::trainer {

Tokens Task::prompt(PromptId id) const {
    return id.split == PromptId::Split::train ? train_prompt(id.index) : held_out_prompt(id.index);
}

}  // namespace tandem::trainer
