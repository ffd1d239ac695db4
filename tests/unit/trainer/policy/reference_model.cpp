#include "tests/unit/trainer/policy/reference_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::trainer::testing {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

std::size_t size(std::int64_t value) {
    return static_cast<std::size_t>(value);
}

Row times(const std::vector<double>& weight, const Row& x) {  // weight [out, in]
    Row y(weight.size() / x.size(), 0.0);
    for (std::size_t o = 0; o < y.size(); ++o) {
        for (std::size_t i = 0; i < x.size(); ++i) y[o] += weight[o * x.size() + i] * x[i];
    }
    return y;
}

Row project(const Weights& weights, const std::string& name, const Row& x) {
    Row y = times(weights.at(name + ".weight"), x);
    const auto bias = weights.find(name + ".bias");
    if (bias == weights.end()) return y;
    for (std::size_t o = 0; o < y.size(); ++o) y[o] += bias->second[o];
    return y;
}

void norm_in_place(double* x, std::size_t dim, const std::vector<double>& weight, double eps) {
    double squares = 0;
    for (std::size_t i = 0; i < dim; ++i) squares += x[i] * x[i];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(dim) + eps);
    for (std::size_t i = 0; i < dim; ++i) x[i] *= rstd * weight[i];
}

Row normed(Row x, const std::vector<double>& weight, double eps) {
    norm_in_place(x.data(), x.size(), weight, eps);
    return x;
}

void rotate(double* head, std::size_t dim, std::size_t position, const model::RopeFrequencies& rope) {
    const auto factor = static_cast<double>(rope.attention_factor);
    for (std::size_t i = 0; i < dim / 2; ++i) {
        const double angle = static_cast<double>(position) * static_cast<double>(rope.inverse[i]);
        const double a = factor * head[i];
        const double b = factor * head[i + dim / 2];
        head[i] = a * std::cos(angle) - b * std::sin(angle);
        head[i + dim / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
}

// Causal softmax attention of one head: queries of row i over keys 0..i.
void attend(const Rows& q, const Rows& k, const Rows& v, std::size_t q_at, std::size_t k_at, std::size_t dim,
            Rows& out) {
    for (std::size_t i = 0; i < q.size(); ++i) {
        Row scores(i + 1, 0.0);
        for (std::size_t j = 0; j <= i; ++j) {
            for (std::size_t d = 0; d < dim; ++d) scores[j] += q[i][q_at + d] * k[j][k_at + d];
            scores[j] /= std::sqrt(static_cast<double>(dim));
        }
        const double most = *std::max_element(scores.begin(), scores.end());
        double total = 0;
        for (double& score : scores) total += score = std::exp(score - most);
        for (std::size_t j = 0; j <= i; ++j) {
            for (std::size_t d = 0; d < dim; ++d) out[i][q_at + d] += scores[j] / total * v[j][k_at + d];
        }
    }
}

Rows attention(const model::ModelConfig& config, const Weights& weights, const std::string& prefix,
               const Rows& h) {
    const std::size_t dim = size(config.head_dim);
    const std::size_t heads = size(config.num_attention_heads);
    const std::size_t group = heads / size(config.num_key_value_heads);
    const model::RopeFrequencies frequencies = config.rope_frequencies();
    const auto heads_of = [&](const std::string& name, bool rope) {
        Rows result;
        for (std::size_t t = 0; t < h.size(); ++t) {
            Row row = project(weights, prefix + name + "_proj", h[t]);
            for (std::size_t at = 0; rope && at < row.size(); at += dim) {
                if (config.qk_norm) {
                    norm_in_place(row.data() + at, dim, weights.at(prefix + name + "_norm.weight"),
                                  static_cast<double>(config.rms_norm_eps));
                }
                rotate(row.data() + at, dim, t, frequencies);
            }
            result.push_back(row);
        }
        return result;
    };
    const Rows q = heads_of("q", true);
    const Rows k = heads_of("k", true);
    const Rows v = heads_of("v", false);
    Rows out(h.size(), Row(heads * dim, 0.0));
    for (std::size_t head = 0; head < heads; ++head)
        attend(q, k, v, head * dim, head / group * dim, dim, out);
    for (Row& row : out) row = project(weights, prefix + "o_proj", row);
    return out;
}

Row mlp(const Weights& weights, const std::string& prefix, const Row& h) {
    Row gate = project(weights, prefix + "gate_proj", h);
    const Row up = project(weights, prefix + "up_proj", h);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return project(weights, prefix + "down_proj", gate);
}

void add(Row& x, const Row& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

}  // namespace

std::vector<double> reference_logprobs(const model::ModelConfig& config, const Weights& weights,
                                       const std::vector<std::int32_t>& tokens) {
    const auto eps = static_cast<double>(config.rms_norm_eps);
    const std::size_t hidden = size(config.hidden_size);
    const auto& table = weights.at("model.embed_tokens.weight");
    Rows x;
    for (const std::int32_t token : tokens) {
        const double* row = table.data() + size(token) * hidden;
        x.emplace_back(row, row + hidden);
    }
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".";
        Rows h;
        for (const Row& row : x) h.push_back(normed(row, weights.at(prefix + "input_layernorm.weight"), eps));
        const Rows attended = attention(config, weights, prefix + "self_attn.", h);
        for (std::size_t t = 0; t < x.size(); ++t) {
            add(x[t], attended[t]);
            add(x[t], mlp(weights, prefix + "mlp.",
                          normed(x[t], weights.at(prefix + "post_attention_layernorm.weight"), eps)));
        }
    }
    const auto& head = config.tie_word_embeddings ? table : weights.at("lm_head.weight");
    std::vector<double> result;
    for (std::size_t t = 0; t + 1 < x.size(); ++t) {
        const Row logits = times(head, normed(x[t], weights.at("model.norm.weight"), eps));
        double total = 0;
        for (const double logit : logits) total += std::exp(logit);
        result.push_back(logits[size(tokens[t + 1])] - std::log(total));
    }
    return result;
}

double reference_loss(const model::ModelConfig& config, const Weights& weights,
                      const std::vector<Sample>& samples) {
    double sum = 0;
    double count = 0;
    for (const Sample& sample : samples) {
        const auto logprobs = reference_logprobs(config, weights, sample.tokens);
        for (std::size_t i = 0; i < logprobs.size(); ++i) {
            if (sample.target_mask[i + 1] == 0) continue;
            sum -= logprobs[i] *
                   (sample.advantages.empty() ? 1.0 : static_cast<double>(sample.advantages[i + 1]));
            count += 1;
        }
    }
    return sum / count;
}

Weights reference_gradients(const model::ModelConfig& config, const Weights& weights,
                            const std::vector<Sample>& samples) {
    constexpr double kStep = 1e-5;
    Weights result;
    Weights moved = weights;
    for (auto& [name, values] : moved) {
        for (double& value : values) {
            const double kept = value;
            value = kept + kStep;
            const double up = reference_loss(config, moved, samples);
            value = kept - kStep;
            const double down = reference_loss(config, moved, samples);
            value = kept;
            result[name].push_back((up - down) / (2 * kStep));
        }
    }
    return result;
}

}  // namespace tandem::trainer::testing
