#include "common/model/check_weights.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "common/error.h"
#include "common/model/parameters.h"
#include "common/model/wrapped_names.h"

namespace tandem::model {
namespace {

constexpr std::size_t kNamed = 8;  // of the tensors that an error is about
constexpr std::int64_t kRowsAtOnce = 1024;

std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < std::min(names.size(), kNamed); ++i) text += (i > 0 ? ", " : "") + names[i];
    if (names.size() > kNamed) text += fmt::format(" and {} more", names.size() - kNamed);
    return text;
}

// The keys of config.json that an attention tensor's shape follows from: any of them may be the wrong one.
std::string heads_of(const ModelConfig& config, const std::string& name) {
    if (name.find(".self_attn.") == std::string::npos) return "";
    return fmt::format(" (num_attention_heads {}, num_key_value_heads {}, head_dim {})",
                       config.num_attention_heads, config.num_key_value_heads, config.head_dim);
}

void check_shape(const Safetensors& files, const ParameterSpec& spec, const ModelConfig& config) {
    const Shape& shape = files.shape(spec.name);  // throws when it is missing
    if (shape == spec.shape) return;
    throw ConfigError(files.file(spec.name), spec.name,
                      fmt::format("has shape {}, config.json implies {}{}", tandem::to_string(shape),
                                  tandem::to_string(spec.shape), heads_of(config, spec.name)));
}

void check_parameter(const Safetensors& files, const ParameterSpec& spec, const ModelConfig& config) {
    check_shape(files, spec, config);
    const std::string file = files.file(spec.name);
    const DType dtype = files.dtype(spec.name);
    if (dtype != DType::float32 && dtype != DType::bfloat16 && dtype != DType::float16) {
        throw ConfigError(file, spec.name,
                          fmt::format("is {}; float32, bfloat16 or float16 is needed", dtype_name(dtype)));
    }
}

// Some checkpoints repeat the tied embedding.
void check_tied_head(const Safetensors& files) {
    const std::string head = kHead, embedding = kEmbedding;
    bool same = files.dtype(head) == files.dtype(embedding) && files.shape(head) == files.shape(embedding);
    const std::int64_t rows = same ? files.shape(head)[0] : 0;
    for (std::int64_t row = 0; row < rows && same; row += kRowsAtOnce) {
        const std::int64_t count = std::min(kRowsAtOnce, rows - row);
        const Tensor a = files.rows(head, row, count), b = files.rows(embedding, row, count);
        same = a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
    }
    files.release(head);
    files.release(embedding);
    if (same) return;
    files.require_unchanged();
    throw ConfigError(files.file(head), head,
                      "differs from model.embed_tokens.weight, but config.json says that they are tied "
                      "(tie_word_embeddings)");
}

}  // namespace

bool says_nothing_new(const std::string& name, bool tied) {
    return (tied && name == kHead) || name.ends_with("rotary_emb.inv_freq");
}

std::vector<std::string> check_weights(const Safetensors& files, const ModelConfig& config) {
    std::set<std::string> known;
    const std::string wrapped = wrapped_names(files.names());
    for (const ParameterSpec& spec : parameter_specs(config)) {
        if (!files.contains(spec.name) && spec.role == Role::head) {
            throw ConfigError(files.directory(), spec.name,
                              "missing, and config.json does not say that it is tied to the embedding "
                              "(tie_word_embeddings)" +
                                  wrapped);
        }
        if (!files.contains(spec.name))
            throw ConfigError(files.directory(), spec.name, "missing from the safetensors files" + wrapped);
        check_parameter(files, spec, config);
        known.insert(spec.name);
    }
    std::vector<std::string> unused, unknown;
    for (const std::string& name : files.names()) {
        if (known.contains(name)) continue;
        const bool nothing_new = says_nothing_new(name, config.tie_word_embeddings);
        if (nothing_new && name == kHead) check_tied_head(files);
        (nothing_new ? unused : unknown).push_back(name);
    }
    if (!unknown.empty()) {
        throw ConfigError(files.file(unknown[0]), listed(unknown),
                          fmt::format("not a parameter of {} as config.json describes it{}",
                                      config.architecture(), wrapped));
    }
    return unused;
}

void check_shapes(const Safetensors& files, const ModelConfig& config) {
    for (const ParameterSpec& spec : parameter_specs(config)) {
        if (files.contains(spec.name)) check_shape(files, spec, config);
    }
}

}  // namespace tandem::model
