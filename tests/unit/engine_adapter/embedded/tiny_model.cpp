#include "tests/unit/engine_adapter/embedded/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <random>

#include "common/model/parameters.h"
#include "common/model/safetensors.h"

namespace tandem::engine {

model::ModelConfig tiny_config(const TinyOptions& options) {
    model::ModelConfig config;
    config.vocab_size = 40;
    config.hidden_size = 24;
    config.intermediate_size = 40;
    config.num_hidden_layers = options.layers;
    config.num_attention_heads = options.heads;
    config.num_key_value_heads = options.kv_heads;
    config.head_dim = options.head_dim;
    config.max_position_embeddings = options.context;
    config.rope_theta = 100.0f;
    config.tie_word_embeddings = options.tied;
    config.qk_norm = options.qk_norm;
    config.qkv_bias = options.qkv_bias;
    config.o_bias = config.mlp_bias = options.other_biases;
    config.rope_scaling = options.rope;
    config.eos_token_id = options.eos;
    return config;
}

void fill_weights(const std::vector<WeightSlot>& slots, std::uint64_t seed) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
        std::mt19937_64 random(seed * 1000 + i);
        std::normal_distribution<float> normal(0.0f, slots[i].info.shape.size() == 1 ? 0.1f : 0.3f);
        const float mean = slots[i].info.name.ends_with("norm.weight") ? 1.0f : 0.0f;
        const Tensor tensor = Tensor::borrow(slots[i].memory, slots[i].info.shape, slots[i].info.dtype);
        for (std::int64_t j = 0; j < tensor.numel(); ++j) {
            const float value = mean + normal(random);
            if (tensor.dtype() == DType::float32) {
                tensor.data<float>()[j] = value;
            } else {
                tensor.data<bfloat16>()[j] = bfloat16(value);
            }
        }
    }
}

void write_tiny_model(const std::string& directory, const model::ModelConfig& config, std::uint64_t seed) {
    std::vector<WeightSlot> slots;
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& spec : model::parameter_specs(config)) {
        tensors.emplace_back(spec.name, Tensor::empty(spec.shape, DType::float32, "test"));
        slots.push_back({{spec.name, spec.shape, DType::float32}, tensors.back().second.span()});
    }
    fill_weights(slots, seed);
    model::write_safetensors(directory + "/model.safetensors", tensors);
    std::ofstream(directory + "/config.json") << model::to_json(config);
}

namespace {

using Row = std::vector<double>;

struct Oracle {
    const model::ModelConfig& config;
    std::map<std::string, const float*> weights;
    model::RopeFrequencies frequencies;

    Row linear(const Row& x, const std::string& name, std::int64_t out) const {
        const float* w = weights.at(name + ".weight");
        Row y(static_cast<std::size_t>(out), 0.0);
        if (const auto bias = weights.find(name + ".bias"); bias != weights.end())
            std::copy_n(bias->second, y.size(), y.begin());
        for (std::size_t o = 0; o < y.size(); ++o) {
            for (std::size_t i = 0; i < x.size(); ++i)
                y[o] += x[i] * static_cast<double>(w[o * x.size() + i]);
        }
        return y;
    }
    Row norm(const Row& x, const std::string& name) const {
        const float* w = weights.at(name);
        double sum = 0;
        for (const double value : x) sum += value * value;
        const double scale =
            1.0 / std::sqrt(sum / static_cast<double>(x.size()) + static_cast<double>(config.rms_norm_eps));
        Row y(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * static_cast<double>(w[i]);
        return y;
    }
    // One head's part of a row.
    Row head(const Row& all, std::size_t index) const {
        const auto dim = static_cast<std::ptrdiff_t>(config.head_dim);
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index) * dim;
        return {begin, begin + dim};
    }
    Row rope(const Row& x, std::size_t position) const {
        const std::size_t half = x.size() / 2;
        Row y(x.size());
        const auto factor = static_cast<double>(frequencies.attention_factor);
        for (std::size_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(position) * static_cast<double>(frequencies.inverse[i]);
            y[i] = factor * (x[i] * std::cos(angle) - x[i + half] * std::sin(angle));
            y[i + half] = factor * (x[i + half] * std::cos(angle) + x[i] * std::sin(angle));
        }
        return y;
    }
    std::vector<Row> heads(const Row& all, std::int64_t count, const std::string& norm_name,
                           std::size_t position) const {
        std::vector<Row> result;
        for (std::size_t h = 0; h < static_cast<std::size_t>(count); ++h) {
            Row one = head(all, h);
            if (config.qk_norm) one = norm(one, norm_name);
            result.push_back(rope(one, position));
        }
        return result;
    }
    Row attend(const std::vector<Row>& q, const std::vector<std::vector<Row>>& keys,
               const std::vector<Row>& values) const {
        Row out;
        const std::size_t group = q.size() / keys[0].size();
        for (std::size_t h = 0; h < q.size(); ++h) {
            Row scores;
            for (const auto& key : keys) {
                double dot = 0;
                for (std::size_t d = 0; d < q[h].size(); ++d) dot += q[h][d] * key[h / group][d];
                scores.push_back(dot / std::sqrt(static_cast<double>(config.head_dim)));
            }
            const double largest = *std::max_element(scores.begin(), scores.end());
            double total = 0;
            for (double& score : scores) total += score = std::exp(score - largest);
            const std::size_t begin = out.size();
            out.resize(begin + q[h].size(), 0.0);
            for (std::size_t j = 0; j < scores.size(); ++j) {
                const Row value = head(values[j], h / group);
                for (std::size_t d = 0; d < value.size(); ++d) out[begin + d] += scores[j] / total * value[d];
            }
        }
        return out;
    }
    static void add(Row& x, const Row& y) {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    }
    void layer(std::vector<Row>& xs, const std::string& name) const {
        const std::int64_t kv_out = config.num_key_value_heads * config.head_dim;
        std::vector<std::vector<Row>> keys;
        std::vector<Row> values;
        for (std::size_t t = 0; t < xs.size(); ++t) {
            Row& x = xs[t];
            const Row h = norm(x, name + "input_layernorm.weight");
            const auto q =
                heads(linear(h, name + "self_attn.q_proj", config.num_attention_heads * config.head_dim),
                      config.num_attention_heads, name + "self_attn.q_norm.weight", t);
            keys.push_back(heads(linear(h, name + "self_attn.k_proj", kv_out), config.num_key_value_heads,
                                 name + "self_attn.k_norm.weight", t));
            values.push_back(linear(h, name + "self_attn.v_proj", kv_out));
            add(x, linear(attend(q, keys, values), name + "self_attn.o_proj", config.hidden_size));
            const Row h2 = norm(x, name + "post_attention_layernorm.weight");
            Row gate = linear(h2, name + "mlp.gate_proj", config.intermediate_size);
            const Row up = linear(h2, name + "mlp.up_proj", config.intermediate_size);
            for (std::size_t i = 0; i < gate.size(); ++i)
                gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
            add(x, linear(gate, name + "mlp.down_proj", config.hidden_size));
        }
    }
};

}  // namespace

std::vector<std::vector<double>> naive_logprobs(const model::ModelConfig& config,
                                                const std::vector<WeightSlot>& slots,
                                                const std::vector<std::int32_t>& tokens, double temperature) {
    Oracle oracle{config, {}, config.rope_frequencies()};
    for (const WeightSlot& slot : slots)
        oracle.weights[slot.info.name] = reinterpret_cast<const float*>(slot.memory.data);
    const auto hidden = static_cast<std::size_t>(config.hidden_size);
    std::vector<Row> xs;
    for (const std::int32_t token : tokens) {
        const float* row =
            oracle.weights.at("model.embed_tokens.weight") + static_cast<std::size_t>(token) * hidden;
        xs.emplace_back(row, row + hidden);
    }
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
        oracle.layer(xs, "model.layers." + std::to_string(i) + ".");
    const std::string head = config.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
    for (Row& x : xs) {
        x = oracle.linear(oracle.norm(x, "model.norm.weight"), head, config.vocab_size);
        double total = 0;
        for (double& value : x) total += std::exp(value /= temperature);
        for (double& value : x) value -= std::log(total);
    }
    return xs;
}

}  // namespace tandem::engine
