#include "engine_adapter/vllm/layers.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "common/error.h"

namespace tandem::engine {
namespace {

bool is_number(const std::string& text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// "model.layers.3.self_attn" of model.layers.3.self_attn.q_proj.weight, "model.norm" of model.norm.weight. Coarser than
// vLLM's own layers are, so that it need not be known which of them it fuses.
std::string block_of(const std::string& name) {
    std::size_t begin = 0;
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
        const bool number = is_number(name.substr(begin, dot - begin));
        begin = dot + 1;
        if (number) return name.substr(0, name.find('.', begin));
    }
    return name.substr(0, begin == 0 ? name.size() : begin - 1);
}

}  // namespace

std::vector<TensorInfo> whole_layers(std::vector<TensorInfo> tensors,
                                     const std::function<bool(const std::string& name)>& only) {
    if (!only) return tensors;
    std::map<std::string, std::pair<std::string, bool>>
        blocks;  // the first tensor of each, and whether it is wanted
    std::vector<TensorInfo> wanted;
    for (TensorInfo& tensor : tensors) {
        const bool take = only(tensor.name);
        const auto& [first, first_taken] =
            blocks.try_emplace(block_of(tensor.name), tensor.name, take).first->second;
        enforce(
            take == first_taken,
            "--only takes {} without {}: vLLM loads a block's tensors together, so name all or none of {}.*",
            take ? tensor.name : first, take ? first : tensor.name, block_of(tensor.name));
        if (take) wanted.push_back(std::move(tensor));
    }
    enforce(!wanted.empty(), "--only takes none of the server's tensors");
    return wanted;
}

}  // namespace tandem::engine
