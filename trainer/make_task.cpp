#include "trainer/make_task.h"

#include <fmt/format.h>

#include "trainer/data/sum4.h"

namespace tandem::trainer {

std::unique_ptr<Task> make_task(const RunConfig& c, const config::Schema& s) {
    if (c.data.held_out >= Sum4::kPrompts) {
        s.refuse("data.held_out", fmt::format("{} leaves none of the task's {} prompts to train on",
                                              c.data.held_out, Sum4::kPrompts));
    }
    return std::make_unique<Sum4>(c.data.held_out, c.data.teacher_noise);
}

}  // namespace tandem::trainer
