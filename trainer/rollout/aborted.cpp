#include "trainer/rollout/aborted.h"

#include <fmt/core.h>

#include <chrono>
#include <thread>
#include <utility>

#include "common/error.h"
#include "common/log.h"

namespace tandem::trainer {
namespace {

constexpr std::chrono::milliseconds kBetween{100};

std::vector<std::size_t> aborted_of(const std::vector<Completion>& completions) {
    std::vector<std::size_t> aborted;
    for (std::size_t i = 0; i < completions.size(); ++i) {
        if (completions[i].aborted) aborted.push_back(i);
    }
    return aborted;
}

}  // namespace

std::vector<Completion> ask_until_none_is_aborted(const std::string& engine,
                                                  std::span<const std::vector<std::int32_t>> prompts,
                                                  std::span<const std::uint64_t> seeds, Deadline deadline,
                                                  const AskForSamples& ask) {
    std::vector<Completion> result = ask(prompts, seeds);
    for (bool told = false;; told = true) {
        const std::vector<std::size_t> aborted = aborted_of(result);
        if (aborted.empty()) return result;
        const std::string what =
            fmt::format("{} of {} samples were ended there by an abort", aborted.size(), prompts.size());
        if (deadline.passed()) {
            throw DeadlineExceeded(engine, "rollout",
                                   what + ", again and again until engine.deadline_s: find who does it");
        }
        if (!told) log_warn("{}: {}: they are asked for again", engine, what);
        std::this_thread::sleep_for(deadline.within(kBetween).left());
        std::vector<std::vector<std::int32_t>> again;
        std::vector<std::uint64_t> their_seeds;
        for (const std::size_t i : aborted) {
            again.push_back(prompts[i]);
            their_seeds.push_back(seeds[i]);
        }
        std::vector<Completion> answers = ask(again, their_seeds);
        for (std::size_t i = 0; i < aborted.size(); ++i) result[aborted[i]] = std::move(answers[i]);
    }
}

}  // namespace tandem::trainer
