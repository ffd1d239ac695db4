// The model that a configuration asks for.
#include <fmt/core.h>

#include "trainer/config/config.h"
#include "trainer/data/task.h"

namespace tandem::trainer {

model::ModelConfig model_config(const RunConfig& c, const config::Schema& s, const Task& task) {
    model::ModelConfig m;
    if (!c.model.path.empty()) {
        m = model::read_model_config(c.model.path);
    } else {
        m.vocab_size = c.model.vocab_size;
        m.hidden_size = c.model.hidden_size;
        m.intermediate_size = c.model.intermediate_size;
        m.num_hidden_layers = c.model.layers;
        m.num_attention_heads = c.model.heads;
        m.num_key_value_heads = c.model.kv_heads;
        m.head_dim = c.model.head_dim;
        m.max_position_embeddings = c.model.context;
        m.rms_norm_eps = static_cast<float>(c.model.rms_norm_eps);
        m.rope_theta = c.model.rope_theta;
        m.tie_word_embeddings = c.model.tie_embeddings;
        m.qk_norm = c.model.qk_norm;
        if (m.num_attention_heads % m.num_key_value_heads != 0) {
            s.refuse("model.heads", fmt::format("{} heads do not divide among {} kv_heads",
                                                m.num_attention_heads, m.num_key_value_heads));
        }
        if (m.head_dim % 2 != 0)
            s.refuse("model.head_dim", fmt::format("{} is odd; rotary embedding needs pairs", m.head_dim));
    }
    if (m.vocab_size < task.vocab_size()) {
        s.refuse(c.model.path.empty() ? "model.vocab_size" : "model.path",
                 fmt::format("a vocabulary of {} is too small for task {}, which uses {} tokens",
                             m.vocab_size, task.name(), task.vocab_size()));
    }
    // The ids of another tokenizer than the model's say nothing about this run.
    if (c.model.path.empty() || !c.data.tokenizer.empty()) {
        const std::vector<std::int32_t> stops = task.stop_tokens();
        m.eos_token_id = stops.front();
        m.more_eos_token_ids.assign(stops.begin() + 1, stops.end());
    }
    m.torch_dtype = c.engine.dtype == "bf16" ? DType::bfloat16 : DType::float32;
    m.validate(c.model.path.empty() ? "[model]" : c.model.path);
    return m;
}

}  // namespace tandem::trainer
