#include "trainer/data/task.h"

namespace tandem::trainer {

std::string Task::place(PromptId id) const {
    return (id.split == PromptId::Split::train ? "prompt " : "held-out prompt ") + std::to_string(id.index);
}

}  // namespace tandem::trainer
