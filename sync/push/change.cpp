#include "sync/push/change.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "common/error.h"
#include "common/log.h"

namespace tandem::sync {
namespace {

// Of the tokens' embedding, by the names that it has in models of Hugging Face.
std::int64_t vocabulary_of(const std::vector<engine::TensorInfo>& tensors) {
    constexpr std::array<std::string_view, 4> kNames{"embed_tokens.weight", "wte.weight",
                                                     "word_embeddings.weight", "embed_in.weight"};
    constexpr std::int64_t kOfAny = 32;  // that every vocabulary has
    for (const engine::TensorInfo& tensor : tensors) {
        const auto is_its = [&](std::string_view name) { return tensor.name.ends_with(name); };
        // A tensor-parallel rank has a part of the rows, and ids of that part are tokens.
        if (tensor.shape.size() == 2 && std::ranges::any_of(kNames, is_its)) return tensor.shape[0];
    }
    return kOfAny;
}

// What is no number, or another token, is as far as can be.
double distance(const Said& a, const Said& b) {
    if (a.tokens != b.tokens || a.log_probs.size() != b.log_probs.size()) return INFINITY;
    double most = 0;
    for (std::size_t i = 0; i < a.log_probs.size(); ++i) {
        const double difference = std::abs(a.log_probs[i] - b.log_probs[i]);
        most = std::isnan(difference) ? INFINITY : std::max(most, difference);
    }
    return most;
}

}  // namespace

bool differ(const std::vector<Said>& before, const std::vector<Said>& after) {
    if (before.size() != 2 || after.size() != 2) return false;
    const double spread = std::max(distance(before[0], before[1]), distance(after[0], after[1]));
    double least = INFINITY;
    for (const Said& then : before) {
        for (const Said& now : after) least = std::min(least, distance(then, now));
    }
    return least > spread;
}

ChangeProbe::ChangeProbe(const Ask& ask, const std::string& url,
                         const std::vector<engine::TensorInfo>& tensors)
    : ask_(ask), url_(url), prompt_{probe_prompts(vocabulary_of(tensors)).front()} {}

std::vector<Said> ChangeProbe::ask_twice(Deadline deadline) const {
    std::vector<Said> answers;
    try {
        for (int time = 0; time < 2; ++time) answers.push_back(ask_(url_, prompt_, deadline).at(0));
    } catch (const std::exception& error) {
        log_debug("{} does not answer the prompt that is to show a change: {}", url_, error.what());
        return {};
    }
    return answers;
}

bool ChangeProbe::changed(Deadline deadline) const {
    return !before_.empty() && differ(before_, ask_twice(deadline));
}

}  // namespace tandem::sync
