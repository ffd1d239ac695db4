#include "trainer/data/task.h"

#include "common/error.h"
#include "trainer/data/sum4.h"

namespace tandem::trainer {

std::unique_ptr<Task> make_task(const std::string& name, std::int64_t held_out, double teacher_noise) {
    require(name == "sum4", "unknown task '{}'; there is sum4", name);
    return std::make_unique<Sum4>(held_out, teacher_noise);
}

std::vector<Tokens> draw_prompts(const Task& task, std::int64_t count, Random& random) {
    std::vector<Tokens> result;
    for (std::int64_t i = 0; i < count; ++i)
        result.push_back(task.train_prompt(random.below(task.train_size())));
    return result;
}

}  // namespace tandem::trainer
