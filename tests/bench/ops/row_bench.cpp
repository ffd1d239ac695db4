// What goes over rows of logits and of hidden states, at SmolLM2-135M's shapes: the loss of 512 tokens, the
// tokens of a decode step of batch 64, rms_norm of 512 tokens. Beside each group the light: reading the same
// bytes once, or updating them in place, or copying them. Rates count the bytes of the input.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include "common/ops/cross_entropy.h"
#include "common/ops/rms_norm.h"
#include "common/ops/sampling.h"
#include "tests/bench/ops/bench.h"

namespace tandem::bench {
namespace {

constexpr std::int64_t kVocab = 49152;

struct Group {
    Table& table;
    std::size_t bytes;
    std::string light_name;
    double light = 0;

    Group(Table& all, const Tensor& input, const std::string& name, const std::function<void()>& body)
        : table(all), bytes(input.bytes()), light_name(name) {
        add(name, body);
        light = table.rows.back().rate;
        table.rows.back().ratio = 0;
    }
    void add(const std::string& what, const std::function<void()>& body) {
        const double ms = median_ms(body);
        const double rate = static_cast<double>(bytes) / ms * 1e-6;
        table.rows.push_back({what, ms, rate, "GB/s", light > 0 ? rate / light : 0, light_name});
    }
};

void check(bool right, const char* what) {
    if (!right) throw Error(std::string(what) + " is wrong");
}

std::string sized(const char* what, const Tensor& input) {
    return fmt::format("{} {} x {}", what, input.dim(0), input.dim(1));
}

typedef std::uint64_t Words __attribute__((vector_size(16)));

std::function<void()> reading(const Tensor& input) {
    return [input] { read_all(input); };
}

std::function<void()> updating(const Tensor& values) {
    return [values] {
        const std::span words(reinterpret_cast<Words*>(values.raw()), values.bytes() / sizeof(Words));
        for (Words& word : words) word ^= 1;
    };
}

// Zipf's law of exponent 1.5, in an order of each row's own: near what a language model says.
Tensor likely_logits(std::int64_t rows) {
    std::vector<float> law(static_cast<std::size_t>(kVocab));
    for (std::size_t rank = 0; rank < law.size(); ++rank)
        law[rank] = 9.0f - 1.5f * std::log(static_cast<float>(rank + 1));
    std::shuffle(law.begin(), law.end(), std::minstd_rand(1));
    Tensor logits = Tensor::zeros({rows, kVocab}, DType::float32, "bench");
    for (std::int64_t row = 0; row < rows; ++row) {
        std::rotate(law.begin(), law.begin() + 977, law.end());
        std::copy(law.begin(), law.end(), logits.data<float>() + row * kVocab);
    }
    return logits;
}

// log-sum-exp of a row in fp64.
double exact_lse(const float* x, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(x[i]));
    return std::log(sum);
}

void loss_rows(Table& table, const Tensor& logits) {
    Stream stream = Stream::make_inline();
    const auto rows = static_cast<std::size_t>(logits.dim(0));
    const std::vector<std::int32_t> targets(rows, 7);
    const std::vector<float> gradient(rows, 0.5f);
    std::vector<float> logprobs(rows), lse(rows), entropies(rows);
    Group reads(table, logits, sized("read logits", logits), reading(logits));
    reads.add("token_logprobs", [&] { ops::token_logprobs(stream, logits, targets, 1.0f, logprobs, lse); });
    check(std::abs(static_cast<double>(lse[3]) - exact_lse(logits.data<float>() + 3 * kVocab, kVocab)) < 1e-5,
          "token_logprobs");
    reads.add("token_logprobs with entropies",
              [&] { ops::token_logprobs(stream, logits, targets, 1.0f, logprobs, lse, entropies); });

    // In place, so each run takes the last one's results for logits: as fast as any.
    const Tensor x = logits.clone("bench");
    ops::token_logprobs_backward(stream, x, targets, 1.0f, lse, gradient);
    check(std::abs(x.data<float>()[0] + 0.5f * std::exp(logits.data<float>()[0] - lse[0])) < 1e-9f,
          "token_logprobs_backward");
    Group updates(table, x, sized("update logits", x), updating(x));
    updates.add("token_logprobs_backward",
                [&] { ops::token_logprobs_backward(stream, x, targets, 1.0f, lse, gradient); });
    updates.add("token_logprobs_backward with entropies", [&] {
        ops::token_logprobs_backward(stream, x, targets, 1.0f, lse, gradient, entropies, gradient);
    });
}

void sampling_rows(Table& table, const Tensor& logits) {
    Stream stream = Stream::make_inline();
    const auto rows = static_cast<std::size_t>(logits.dim(0));
    std::vector<std::int32_t> tokens(rows);
    std::vector<float> logprobs(rows);
    Group reads(table, logits, sized("read logits", logits), reading(logits));
    const auto add = [&](const char* what, const ops::Sampling& how) {
        std::vector<ops::Sampling> samples;
        for (std::size_t row = 0; row < rows; ++row) {
            samples.push_back(how);
            samples.back().row = static_cast<std::int32_t>(row);
            samples.back().uniform = (static_cast<double>(row) + 0.5) / static_cast<double>(rows);
        }
        reads.add(std::string("sample_tokens, ") + what,
                  [&] { ops::sample_tokens(stream, logits, samples, tokens, logprobs); });
        const float* x = logits.data<float>() + 5 * kVocab;
        if (how.greedy()) check(tokens[5] == std::max_element(x, x + kVocab) - x, what);
        if (how.logprob)
            check(std::abs(logprobs[5] - (x[tokens[5]] - static_cast<float>(exact_lse(x, kVocab)))) < 1e-5f,
                  what);
    };
    add("greedy", {.temperature = 0.0f});
    add("greedy, log-probs", {.temperature = 0.0f, .logprob = true});
    add("temperature 1", {});
    add("temperature 1, log-probs", {.logprob = true});
    add("top-p 0.9", {.top_p = 0.9f});
    add("top-k 50", {.top_k = 50});
    add("min-p 0.1", {.min_p = 0.1f});
}

void norm_rows(Table& table, DType dtype) {
    Stream stream = Stream::make_inline();
    const Tensor x = random_tensor({512, 576}, dtype, 1), dy = random_tensor({512, 576}, dtype, 2);
    const Tensor weight = random_tensor({576}, dtype, 3), y = Tensor::zeros(x.shape(), dtype, "bench");
    const Tensor rstd = Tensor::zeros({512}, DType::float32, "bench");
    const Tensor dweight = Tensor::zeros({576}, DType::float32, "bench");
    const std::string name = std::string(", ") + std::string(dtype_name(dtype));
    Group copies(table, x, sized("memcpy", x) + name, [&] { std::memcpy(y.raw(), x.raw(), x.bytes()); });
    copies.add("rms_norm" + name, [&] { ops::rms_norm(stream, x, weight, 1e-5f, y, rstd); });
    copies.add("rms_norm_backward" + name,
               [&] { ops::rms_norm_backward(stream, dy, x, weight, rstd, y, dweight); });
}

}  // namespace

void read_all(const Tensor& tensor) {
    const std::span words(reinterpret_cast<const Words*>(tensor.raw()), tensor.bytes() / sizeof(Words));
    Words a = {}, b = {}, c = {}, d = {};
    for (std::size_t at = 0; at + 4 <= words.size(); at += 4) {
        a |= words[at];
        b |= words[at + 1];
        c |= words[at + 2];
        d |= words[at + 3];
    }
    const Words all = a | b | c | d;
    check((all[0] | all[1]) != 0, "reading");
}

void row_rows(Table& table) {
    const Tensor logits = likely_logits(512);
    loss_rows(table, logits);
    sampling_rows(table, logits.rows(0, 64));
    for (const DType dtype : {DType::float32, DType::bfloat16}) norm_rows(table, dtype);
}

}  // namespace tandem::bench
