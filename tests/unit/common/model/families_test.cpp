// Every family against Hugging Face transformers (tests/golden/make_families.py): logits, gradients, ten
// AdamW steps, the error of bf16, a greedy continuation; and the engine's numbers are the trainer's.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/model/safetensors.h"
#include "common/ops/cross_entropy.h"
#include "tests/support/model_forward.h"

namespace tandem {
namespace {

using testing::Tokens;
using Rows = std::vector<std::vector<double>>;

constexpr double kTolerance = 1e-4;

struct Family : ::testing::TestWithParam<const char*> {
    const std::string directory =
        fmt::format("{}/tests/golden/data/families/{}", TANDEM_SOURCE_DIR, GetParam());
    const model::ModelConfig config = model::read_model_config(directory);
    const model::Safetensors golden = model::Safetensors::open(directory + "/golden");

    std::vector<Tokens> lists(const std::string& name) const {
        return {golden.tensor(name + ".0").to_vector<std::int32_t>(),
                golden.tensor(name + ".1").to_vector<std::int32_t>()};
    }
    double number(const std::string& name) const {
        return static_cast<double>(golden.tensor(name).to_vector<float>().at(0));
    }
    Rows logits(const std::string& index) const { return rows_of(golden.tensor("logits." + index)); }
    static Rows rows_of(const Tensor& tensor) {
        const std::vector<float> values = tensor.to_vector<float>();
        Rows rows;
        for (auto at = values.begin(); at != values.end(); at += static_cast<std::ptrdiff_t>(tensor.dim(1)))
            rows.emplace_back(at, at + static_cast<std::ptrdiff_t>(tensor.dim(1)));
        return rows;
    }
    static Rows log_softmax(Rows rows) {
        for (auto& row : rows) {
            double total = 0;
            for (const double value : row) total += std::exp(value);
            for (double& value : row) value -= std::log(total);
        }
        return rows;
    }
    static Rows widened(const std::vector<std::vector<float>>& rows) {
        Rows result;
        for (const auto& row : rows) result.emplace_back(row.begin(), row.end());
        return result;
    }
    // Largest difference over the largest wanted value.
    static double worst(const Rows& got, const Rows& wanted) {
        double difference = 0, largest = 0;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            for (std::size_t j = 0; j < wanted[i].size(); ++j) {
                difference = std::max(difference, std::abs(got.at(i).at(j) - wanted[i][j]));
                largest = std::max(largest, std::abs(wanted[i][j]));
            }
        }
        return difference / largest;
    }
    static void add_squares(const Rows& got, const Rows& wanted, double& sum, double& count) {
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            for (std::size_t j = 0; j < wanted[i].size(); ++j) {
                sum += (got.at(i).at(j) - wanted[i][j]) * (got.at(i).at(j) - wanted[i][j]);
                count += 1;
            }
        }
    }
    // Log-probs of the tokens that follow.
    static void expect_bits_of_the_engine(const std::vector<std::vector<float>>& trainer,
                                          const Tensor& engine, const Tokens& tokens) {
        Stream stream = Stream::make_inline();
        const std::size_t count = tokens.size() - 1;
        std::vector<float> logprobs(count), lse(count);
        ops::token_logprobs(stream, engine.rows(0, static_cast<std::int64_t>(count)),
                            std::span(tokens).subspan(1), 1.0f, logprobs, lse);
        for (std::size_t i = 0; i < count; ++i)
            EXPECT_EQ(logprobs[i], trainer[i][static_cast<std::size_t>(tokens[i + 1])]) << "position " << i;
    }
    // By norm, and by the largest element.
    void expect_near(const Tensor& got, const std::string& name) const {
        const auto wanted = golden.tensor(name).to_vector<float>();
        const auto values = got.to_vector<float>();
        ASSERT_EQ(values.size(), wanted.size()) << name;
        double squares = 0, norm = 0, difference = 0, largest = 0;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const auto w = static_cast<double>(wanted[i]);
            const double d = static_cast<double>(values[i]) - w;
            squares += d * d;
            norm += w * w;
            difference = std::max(difference, std::abs(d));
            largest = std::max(largest, std::abs(w));
        }
        EXPECT_GT(norm, 0.0) << name;
        EXPECT_LE(std::sqrt(squares / norm), kTolerance) << name;
        EXPECT_LE(difference / largest, kTolerance) << name;
    }
};

TEST_P(Family, LogitsOfEveryTokenAtEveryPosition) {
    const auto tokens = lists("tokens");
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const Rows wanted = logits(std::to_string(i));
        const Tensor engine = testing::engine_logits(directory, DType::float32, tokens[i]);
        EXPECT_LE(worst(rows_of(engine), wanted), kTolerance);
        const auto trainer = testing::trainer_logprobs(directory, DType::float32, tokens[i],
                                                       testing::whole_vocabulary(config, tokens[i].size()));
        EXPECT_LE(worst(widened(trainer), log_softmax(wanted)), kTolerance);
        expect_bits_of_the_engine(trainer, engine, tokens[i]);
    }
}

TEST_P(Family, LossGradientsAndTenSteps) {
    const auto tokens = lists("tokens");
    const auto masks = lists("mask");
    const testing::Trained trained = testing::train(directory, DType::float32, tokens, masks);
    EXPECT_NEAR(trained.loss, number("loss"), 1e-5);
    for (std::size_t s = 0; s < tokens.size(); ++s) {
        const Rows wanted = log_softmax(logits(std::to_string(s)));
        for (std::size_t i = 1; i < tokens[s].size(); ++i) {
            const double expected =
                masks[s][i] == 0 ? 0 : wanted[i - 1][static_cast<std::size_t>(tokens[s][i])];
            EXPECT_NEAR(static_cast<double>(trained.logprobs[s][i]), expected, 5e-5) << s << " " << i;
        }
    }
    for (const auto& [name, gradient] : trained.gradients) expect_near(gradient, "grad." + name);
    for (const auto& [name, parameter] : trained.parameters) expect_near(parameter, "trained." + name);
    const auto names = golden.names();
    const auto is_gradient = [](const std::string& name) { return name.starts_with("grad."); };
    EXPECT_EQ(static_cast<std::ptrdiff_t>(trained.gradients.size()),
              std::count_if(names.begin(), names.end(), is_gradient));
}

// Ours against transformers' fp32 at most twice as far off as transformers' own bf16.
TEST_P(Family, ErrorOfBf16) {
    const auto tokens = lists("tokens");
    double trainer_sum = 0, engine_sum = 0, trainer_count = 0, engine_count = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const Rows wanted = log_softmax(logits(std::to_string(i)));
        const auto trainer = testing::trainer_logprobs(directory, DType::bfloat16, tokens[i],
                                                       testing::whole_vocabulary(config, tokens[i].size()));
        add_squares(widened(trainer), wanted, trainer_sum, trainer_count);
        const Tensor engine = testing::engine_logits(directory, DType::bfloat16, tokens[i]);
        add_squares(log_softmax(rows_of(engine)), wanted, engine_sum, engine_count);
    }
    EXPECT_LE(std::sqrt(trainer_sum / trainer_count), 2 * number("bf16.logprobs"));
    EXPECT_LE(std::sqrt(engine_sum / engine_count), 2 * number("bf16.logprobs"));
    EXPECT_GT(trainer_sum, 0.0) << "bf16 must really have been used";

    const testing::Trained rounded = testing::train(directory, DType::bfloat16, tokens, lists("mask"));
    double squares = 0, norm = 0;
    for (const auto& [name, gradient] : rounded.gradients) {
        const auto wanted = golden.tensor("grad." + name).to_vector<float>();
        const auto got = gradient.to_vector<float>();
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const double d = static_cast<double>(got[i]) - static_cast<double>(wanted[i]);
            squares += d * d;
            norm += static_cast<double>(wanted[i]) * static_cast<double>(wanted[i]);
        }
    }
    EXPECT_LE(std::sqrt(squares / norm), 2 * number("bf16.gradients"));
}

TEST_P(Family, GreedyContinuation) {
    const Tokens prompt = lists("tokens")[0];
    const Tokens wanted = golden.tensor("greedy").to_vector<std::int32_t>();
    EXPECT_EQ(testing::engine_greedy(directory, DType::float32, prompt, wanted.size()), wanted);
    Tokens all = prompt;
    all.insert(all.end(), wanted.begin(), wanted.end());
    const auto logprobs = testing::trainer_logprobs(directory, DType::float32, all,
                                                    testing::whole_vocabulary(config, all.size()));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const auto& row = logprobs[prompt.size() - 1 + i];
        EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), wanted[i]) << "token " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Transformers, Family,
                         ::testing::Values("qwen2_tied_yarn", "qwen2_untied", "llama_tied_llama3",
                                           "llama_untied_linear", "llama_biases", "qwen3_biases_yarn"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tandem
