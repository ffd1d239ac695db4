#include "common/model/wrapped_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace tandem::model {
namespace {

struct Wrapper {
    std::string_view mark;  // a part of a name, wherever it stands between dots
    const char* whose;
    bool anywhere;  // else only at the beginning
};
constexpr std::array kWrappers{
    Wrapper{"_orig_mod.", "torch.compile", true},
    Wrapper{"_fsdp_wrapped_module.", "FSDP", true},
    Wrapper{"_checkpoint_wrapped_module.", "activation checkpointing", true},
    Wrapper{"base_layer.", "PEFT around a layer with an adapter, which is to be merged", true},
    Wrapper{"base_model.model.", "PEFT", false},
    Wrapper{"_forward_module.", "Lightning's strategy", false},
    Wrapper{"module.", "DistributedDataParallel or DeepSpeed", false},
};

// Whether it is a layer's or the model's own tensor: what a wrapper's mark is looked for around.
bool plain(std::string_view name) {
    return name.starts_with("model.embed_tokens.") || name.starts_with("model.layers.");
}

const Wrapper* wrapper_of(std::string_view name) {
    for (const Wrapper& wrapper : kWrappers) {
        const std::size_t at = name.find(wrapper.mark);
        if (at == 0 || (wrapper.anywhere && at != std::string_view::npos && name[at - 1] == '.'))
            return &wrapper;
    }
    return nullptr;
}

}  // namespace

std::string wrapped_names(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
        if (const Wrapper* wrapper = wrapper_of(name)) {
            return fmt::format(
                "; names hold \"{0}\" ({1}), which {2} put there: save the model that it wraps, or strip "
                "it: {{k.replace(\"{0}\", \"\"): v for k, v in state.items()}}",
                wrapper->mark, name, wrapper->whose);
        }
    }
    if (std::any_of(names.begin(), names.end(), plain)) return "";
    for (const std::string& name : names) {
        for (const char* known : {"model.embed_tokens.weight", "embed_tokens.weight"}) {
            if (!name.ends_with(known)) continue;
            const std::string prefix = name.substr(0, name.size() - std::string_view(known).size());
            if (known[0] == 'e' && prefix.empty())
                return "; names lack \"model.\" (embed_tokens.weight): the body was saved without its head";
            return fmt::format(
                "; all names begin with \"{0}\" ({1}), of a module around the model: strip it: "
                "{{k.removeprefix(\"{0}\"): v for k, v in state.items()}}",
                prefix, name);
        }
    }
    return "";
}

}  // namespace tandem::model
