// config.json: what is accepted must be a model that can be reckoned with, and must survive being written and
// read again.
#include <cstdlib>

#include "common/error.h"
#include "common/model/model_config.h"
#include "common/model/parameters.h"
#include "tests/fuzz/target.h"

using namespace tandem;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    model::ModelConfig config;
    try {
        config = model::parse_model_config(text, "config.json");
    } catch (const ConfigError&) {
        return 0;
    }
    if (config.parameter_count() <= 0) std::abort();
    if (config.num_hidden_layers > 64) return 0;  // slow, not wrong
    const std::string written = model::to_json(config);
    const model::ModelConfig again = model::parse_model_config(written, "written");
    if (model::to_json(again) != written || again.parameter_count() != config.parameter_count()) std::abort();
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    const std::string sizes =
        R"("vocab_size":16,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,)"
        R"("num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":64,)";
    return {
        R"({"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3",)" + sizes +
            R"("head_dim":4,"rms_norm_eps":1e-06,"rope_theta":10000.0,"torch_dtype":"bfloat16",)"
            R"("tie_word_embeddings":true,"eos_token_id":[1,2],"rope_scaling":null})",
        R"({"architectures":["LlamaForCausalLM"],"model_type":"llama",)" + sizes +
            R"("hidden_act":"silu","mlp_bias":false,"attention_bias":true,"rope_scaling":{"rope_type":"llama3",)"
            R"("factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
            R"("original_max_position_embeddings":32}})",
        R"({"architectures":["Qwen2ForCausalLM"],"model_type":"qwen2",)" + sizes +
            R"("use_sliding_window":false,"layer_types":["full_attention"],"rope_parameters":)"
            R"({"rope_type":"yarn","factor":4.0,"rope_theta":1000000.0,"original_max_position_embeddings":16}})",
        R"({"architectures":["LlamaForCausalLM"],)" + sizes +
            R"("rope_scaling":{"type":"linear","factor":2.0}})"};
}
