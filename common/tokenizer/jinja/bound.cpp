#include "common/tokenizer/jinja/bound.h"

#include <algorithm>
#include <string_view>

#include "common/error.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {

Bound::Bound(const std::string& function, const Arguments& given, std::initializer_list<const char*> names,
             std::size_t required)
    : function_(function), names_(names), values_(names.size(), nullptr) {
    if (given.positional.size() > names.size()) {
        throw Error(fmt::format("{}() takes not more than {} arguments", function, names.size()));
    }
    for (std::size_t i = 0; i < given.positional.size(); ++i) values_[i] = &given.positional[i];
    for (const auto& [name, value] : given.named) {
        const auto found = std::find(names_.begin(), names_.end(), std::string_view(name));
        if (found == names_.end())
            throw Error(fmt::format("{}() takes no argument '{}'", function, shown(name)));
        const Value*& place = values_[static_cast<std::size_t>(found - names_.begin())];
        if (place != nullptr) throw Error(fmt::format("{}() got argument '{}' twice", function, name));
        place = &value;
    }
    for (std::size_t i = 0; i < required; ++i) {
        if (values_[i] == nullptr) fail(i, "is missing");
    }
}

void Bound::fail(std::size_t i, const char* wanted) const {
    const char* name = names_[i][0] == '/' ? names_[i] + 1 : names_[i];
    throw Error(fmt::format("{}(): argument '{}' {}", function_, name, wanted));
}

bool Bound::flag(std::size_t i, bool otherwise) const {
    return values_[i] == nullptr ? otherwise : values_[i]->truthy();
}

Integer Bound::integer(std::size_t i, Integer otherwise) const {
    if (values_[i] == nullptr) return otherwise;
    if (!values_[i]->integer()) fail(i, "must be an integer");
    return *values_[i]->integer();
}

std::int64_t Bound::count(std::size_t i, std::int64_t otherwise) const {
    return static_cast<std::int64_t>(std::clamp<Integer>(integer(i, otherwise), INT64_MIN, INT64_MAX));
}

const std::string& Bound::string(std::size_t i) const {
    if (values_[i] == nullptr) fail(i, "is missing");
    if (values_[i]->string() == nullptr) fail(i, "must be a string");
    return *values_[i]->string();
}

std::string_view Bound::string(std::size_t i, const char* otherwise) const {
    return values_[i] == nullptr ? std::string_view(otherwise) : string(i);
}

}  // namespace tandem::tokenizer::jinja
