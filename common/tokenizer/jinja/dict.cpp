#include "common/tokenizer/jinja/dict.h"

#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {

Dict::Dict(Runtime& runtime, const Entries& entries) {
    for (const auto& [name, value] : entries) put(runtime, name, value);
}

std::optional<std::size_t> Dict::place(Runtime& runtime, const Value& key, std::size_t hash) const {
    const auto [begin, end] = places_.equal_range(hash);
    for (auto at = begin; at != end; ++at) {
        if (equal(runtime, pairs_[at->second].first, key)) return at->second;
    }
    return std::nullopt;
}

void Dict::put(Runtime& runtime, Value key, Value value) {
    const std::size_t code = hash(runtime, key);
    if (const auto found = place(runtime, key, code)) {
        pairs_[*found].second = std::move(value);
        return;
    }
    constexpr std::size_t kOfEntry = 2 * sizeof(Value) + 48;
    runtime.spend(kOfEntry);
    places_.emplace(code, pairs_.size());
    pairs_.emplace_back(std::move(key), std::move(value));
}

const Value* Dict::find(Runtime& runtime, const Value& key) const {
    const auto found = place(runtime, key, hash(runtime, key));
    return found ? &pairs_[*found].second : nullptr;
}

const Value* Dict::find_name(Runtime& runtime, std::string_view key) const {
    runtime.look_up(key.size());
    const auto [begin, end] = places_.equal_range(std::hash<std::string_view>()(key));
    for (auto at = begin; at != end; ++at) {
        const auto& [held, value] = pairs_[at->second];
        if (held.string() != nullptr && *held.string() == key) return &value;
    }
    return nullptr;
}

}  // namespace tandem::tokenizer::jinja
