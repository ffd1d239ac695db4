#include "trainer/data/prompt_order.h"

namespace tandem::trainer {

std::int64_t PromptOrder::at(std::int64_t place) {
    const std::int64_t size = task_.train_size();
    if (const std::int64_t epoch = place / size; epoch != epoch_) {
        permutation_ = Random(seed_, Purpose::epoch, static_cast<std::uint64_t>(epoch)).permutation(size);
        epoch_ = epoch;
    }
    return permutation_[static_cast<std::size_t>(place % size)];
}

std::vector<std::int64_t> PromptOrder::take(std::int64_t step, std::int64_t count, Random& random) {
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i < count; ++i) {
        result.push_back(task_.in_epochs() ? at(step * count + i) : random.below(task_.train_size()));
    }
    return result;
}

}  // namespace tandem::trainer
