#include "common/tokenizer/jinja/dict.h"

#include <algorithm>

#include "common/mix.h"
#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {
namespace {

constexpr std::size_t kFew = 8;  // entries among which a walk is faster than a table
constexpr std::size_t kOfProbe = 8;

std::size_t hash_of_name(std::string_view name) {
    return std::hash<std::string_view>()(name);
}

}  // namespace

Name::Name(std::string text) : key_(std::move(text)), code_(hash_of_name(*key_.string())) {}

Dict::Dict(Runtime& runtime, const Entries& entries) {
    for (const auto& [name, value] : entries) put(runtime, Value(name), value);
}

// The entry of this hash whose key is the same one.
template <typename Same>
std::size_t Dict::place(Runtime& runtime, std::size_t code, const Same& same) const {
    if (slots_.empty()) {
        for (std::size_t i = 0; i < codes_.size(); ++i) {
            if (codes_[i] == code && same(pairs_[i].first)) return i;
        }
        return kNone;
    }
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = mix(code) & mask; slots_[at] != 0; at = (at + 1) & mask) {
        runtime.work(kOfProbe);
        const std::size_t entry = slots_[at] - 1;
        if (codes_[entry] == code && same(pairs_[entry].first)) return entry;
    }
    return kNone;
}

std::size_t Dict::place_of(Runtime& runtime, std::string_view name, std::size_t code) const {
    runtime.look_up(name.size());
    return place(runtime, code,
                 [&](const Value& key) { return key.string() != nullptr && *key.string() == name; });
}

void Dict::add_slot(std::size_t entry) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = mix(codes_[entry]) & mask;
    while (slots_[at] != 0) at = (at + 1) & mask;
    slots_[at] = static_cast<std::uint32_t>(entry + 1);
}

void Dict::put_at(Runtime& runtime, std::size_t place, std::size_t code, Value key, Value value) {
    if (place != kNone) {
        pairs_[place].second = std::move(value);
        return;
    }
    constexpr std::size_t kOfEntry = 2 * (sizeof(Pairs::value_type) + 2 * sizeof(std::size_t));
    runtime.spend(kOfEntry);  // twice: vectors double
    if (pairs_.empty()) {
        pairs_.reserve(kFew / 2);
        codes_.reserve(kFew / 2);
    }
    pairs_.emplace_back(std::move(key), std::move(value));
    codes_.push_back(code);
    if (pairs_.size() > kFew && pairs_.size() * 2 > slots_.size()) {
        slots_.assign(std::max<std::size_t>(8 * kFew, 2 * slots_.size()), 0);
        for (std::size_t i = 0; i < pairs_.size(); ++i) add_slot(i);
    } else if (!slots_.empty()) {
        add_slot(pairs_.size() - 1);
    }
}

void Dict::put(Runtime& runtime, Value key, Value value) {
    const std::size_t code = hash(runtime, key);
    const auto same = [&](const Value& other) { return equal(runtime, other, key); };
    const std::size_t found = place(runtime, code, same);
    put_at(runtime, found, code, std::move(key), std::move(value));
}

void Dict::put(Runtime& runtime, const Name& name, Value value) {
    put_at(runtime, place_of(runtime, name.text(), name.code()), name.code(), name.key(), std::move(value));
}

const Value* Dict::find(Runtime& runtime, const Value& key) const {
    const std::size_t found =
        place(runtime, hash(runtime, key), [&](const Value& other) { return equal(runtime, other, key); });
    return found == kNone ? nullptr : &pairs_[found].second;
}

const Value* Dict::find(Runtime& runtime, const Name& name) const {
    const std::size_t found = place_of(runtime, name.text(), name.code());
    return found == kNone ? nullptr : &pairs_[found].second;
}

const Value* Dict::find_name(Runtime& runtime, std::string_view name) const {
    const std::size_t found = place_of(runtime, name, hash_of_name(name));
    return found == kNone ? nullptr : &pairs_[found].second;
}

}  // namespace tandem::tokenizer::jinja
