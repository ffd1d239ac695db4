#include "common/tokenizer/json_field.h"

#include "common/error.h"
#include "common/json_text.h"
#include "common/text_file.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer {

using nlohmann::json;

void JsonField::fail(const std::string& message) const {
    throw ConfigError(file_, path_, message);
}

JsonField JsonField::at(const std::string& key) const {
    std::optional<JsonField> found = find(key);
    if (!found) JsonField(*value_, file_, path_.empty() ? key : path_ + "." + key).fail("is missing");
    return *found;
}

std::optional<JsonField> JsonField::find(const std::string& key) const {
    if (!value_->is_object()) fail("must be an object");
    const auto found = value_->find(key);
    if (found == value_->end() || found->is_null()) return std::nullopt;
    return JsonField(*found, file_, path_.empty() ? key : path_ + "." + key);
}

std::vector<JsonField> JsonField::items() const {
    if (!value_->is_array()) fail("must be a list");
    std::vector<JsonField> items;
    for (std::size_t i = 0; i < value_->size(); ++i) {
        items.emplace_back((*value_)[i], file_, fmt::format("{}[{}]", path_, i));
    }
    return items;
}

std::string JsonField::text() const {
    if (!value_->is_string()) fail("must be a string");
    return value_->get<std::string>();
}

std::string JsonField::token() const {
    std::string token = text();
    if (token.size() > kLongestToken) {
        fail(fmt::format("has {} bytes, a token at most {}", token.size(), kLongestToken));
    }
    return token;
}

bool JsonField::flag() const {
    if (!value_->is_boolean()) fail("must be true or false");
    return value_->get<bool>();
}

bool JsonField::flag(const std::string& key, bool otherwise) const {
    const std::optional<JsonField> found = find(key);
    return found ? found->flag() : otherwise;
}

std::int64_t JsonField::integer(std::int64_t least, std::int64_t most) const {
    const bool whole =
        value_->is_number_integer() &&
        (!value_->is_number_unsigned() || value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(most)) &&
        value_->get<std::int64_t>() >= least && value_->get<std::int64_t>() <= most;
    if (!whole) fail(fmt::format("must be an integer from {} to {}", least, most));
    return value_->get<std::int64_t>();
}

char32_t JsonField::character() const {
    const std::string characters = text();
    std::size_t at = 0;
    if (!characters.empty()) {
        const char32_t only = next_code_point(characters, at);
        if (at == characters.size()) return only;
    }
    fail("must be one character");
}

json read_json(const std::string& file) {
    return parse_json_file(read_text_file(file, kLargestFile), file, RepeatedKeys::taken);
}

}  // namespace tandem::tokenizer
