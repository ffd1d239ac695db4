// A prompt is read, rendered and tokenised once a rollout, on rank 0 alone, however many samples and ranks
// there are.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "common/comm/launch.h"
#include "trainer/data/text_task.h"
#include "trainer/rollout/rollout.h"

namespace tandem::trainer {
namespace {

constexpr std::int32_t kStop = 256;
constexpr int kAsked = 64, kTimes = 8, kRanks = 4;

class CountingCodec final : public TextCodec {
  public:
    Tokens encode(const std::string& text, bool) const override {
        ++encoded;
        return {text.begin(), text.end()};
    }
    std::string decode(std::span<const std::int32_t> tokens, bool) const override {
        return {tokens.begin(), tokens.end()};
    }
    bool has_chat_template() const override { return true; }
    std::string render(const std::vector<ChatTurn>& turns, bool) const override {
        ++rendered;
        return "<" + turns.back().content + ">";
    }
    std::optional<std::int32_t> eos_token() const override { return kStop; }
    std::optional<std::int32_t> end_of_turn() const override { return kStop; }
    std::int64_t vocab_size() const override { return 257; }

    mutable std::atomic<int> encoded{0}, rendered{0};
};

// Says the prompt's last digit.
class Echo final : public RolloutClient {
  public:
    std::vector<Completion> generate(std::span<const std::vector<std::int32_t>> prompts,
                                     std::span<const std::uint64_t>, const Sampling&,
                                     std::int64_t version) override {
        std::vector<Completion> result;
        for (const auto& prompt : prompts)
            result.push_back({{prompt[prompt.size() - 2], kStop}, {-1, -1}, version, false});
        return result;
    }
    std::size_t batch() const override { return 100; }
};

TEST(RollOut, AsksForAPromptOnceOnRank0) {
    const auto file =
        std::filesystem::temp_directory_path() / ("tandem_ask_once." + std::to_string(getpid()) + ".jsonl");
    {
        std::ofstream out(file);
        for (int i = 0; i < kAsked + 1; ++i)
            out << fmt::format("{{\"prompt\": \"say {}\", \"answer\": {}}}\n", i, i % 20);
    }
    auto codec = std::make_shared<CountingCodec>();
    TextTaskOptions options;
    options.prompts = file.string();
    options.held_out = 1;
    RewardOptions numeric;
    numeric.rule = "numeric";
    const TextTask task(options, codec, {kStop}, make_reward(numeric));
    RolloutRequest request;
    for (int i = 0; i < kAsked; ++i) {
        for (int k = 0; k < kTimes; ++k) {
            request.ids.push_back({PromptId::Split::train, kAsked - 1 - i});
            request.seeds.push_back(1);
        }
    }
    std::vector<Rollout> rollouts(kRanks);
    comm::run_threads(kRanks, [&](const std::shared_ptr<comm::Communicator>& world) {
        Rollouts engine(*world, world->rank() == 0 ? std::make_unique<Echo>() : nullptr);
        rollouts[static_cast<std::size_t>(world->rank())] = roll_out(engine, task, request);
    });
    EXPECT_EQ(codec->rendered, kAsked);
    EXPECT_EQ(codec->encoded, kAsked);
    for (const Rollout& rollout : rollouts) {
        ASSERT_EQ(rollout.prompts.size(), request.ids.size());
        for (std::size_t i = 0; i < request.ids.size(); ++i) {
            const std::int64_t index = request.ids[i].index;
            ASSERT_EQ(rollout.prompts[i], task.train_prompt(index));
            EXPECT_EQ(rollout.rewards[i], index % 20 < 10 ? 1 : 0) << index;
        }
    }
    EXPECT_EQ(rollouts[0].expected.front(), "3");
    EXPECT_TRUE(rollouts[1].expected.empty());
    std::filesystem::remove(file);
}

}  // namespace
}  // namespace tandem::trainer
