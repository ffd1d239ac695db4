// engine.url by its scheme: whose words the server speaks, and where HTTP reaches it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::trainer {

enum class EngineKind : std::uint8_t {
    tandem,  // an engine of ours; an empty URL, too: the one that a run starts
    vllm,
    sglang
};

struct EngineScheme {
    std::string_view prefix;
    EngineKind kind;
};
// Without a line: a URL of an engine of ours as HTTP knows it, http:// or unix://.
inline constexpr std::array kEngineSchemes{EngineScheme{"tandem://", EngineKind::tandem},
                                           EngineScheme{"vllm://", EngineKind::vllm},
                                           EngineScheme{"sglang://", EngineKind::sglang}};

inline EngineKind engine_kind(std::string_view url) {
    for (const EngineScheme& scheme : kEngineSchemes) {
        if (url.starts_with(scheme.prefix)) return scheme.kind;
    }
    return EngineKind::tandem;
}

// It computes with kernels of its own, so its log-probs are not the trainer's to the bit; it keeps what it does with its
// weights to itself.
inline bool is_third_party(std::string_view url) {
    return engine_kind(url) != EngineKind::tandem;
}

// "http://HOST:PORT", or the URL itself where HTTP knows it.
inline std::string http_url(const std::string& url) {
    for (const EngineScheme& scheme : kEngineSchemes) {
        if (url.starts_with(scheme.prefix)) return "http://" + url.substr(scheme.prefix.size());
    }
    return url;
}

}  // namespace tandem::trainer
