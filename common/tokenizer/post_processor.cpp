#include "common/tokenizer/post_processor.h"

#include <algorithm>

#include "common/error.h"
#include "common/tokenizer/normalizer.h"

namespace tandem::tokenizer {
namespace {

constexpr std::size_t kMostAddedTokens = std::size_t{1}
                                         << 16;  // a template may name a token of many ids many times

std::int32_t read_id(const JsonField& field) {
    return static_cast<std::int32_t>(field.integer(0, (std::int64_t{1} << 31) - 1));
}

// ["</s>", 2]
std::vector<std::int32_t> read_pair(const JsonField& field) {
    const std::vector<JsonField> pair = field.items();
    if (pair.size() != 2) field.fail("must be [token, id]");
    return {read_id(pair[1])};
}

}  // namespace

PostProcessor::PostProcessor(const JsonField& field) {
    add(field, 0);
}

void PostProcessor::add(const JsonField& field, int depth) {
    if (depth > kDeepestSequence) field.fail("sequences are nested too deep");
    const std::string type = field.at("type").text();
    if (type == "ByteLevel") return;  // concerns offsets only
    if (type == "TemplateProcessing") {
        templates_.push_back(read_template(field));
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
        templates_.push_back(
            {{false, read_pair(field.at("cls"))}, {true, {}}, {false, read_pair(field.at("sep"))}});
    } else if (type == "Sequence") {
        for (const JsonField& part : field.at("processors").items()) add(part, depth + 1);
    } else {
        field.at("type").fail(
            fmt::format("\"{}\" is not supported; supported: ByteLevel, TemplateProcessing, "
                        "RobertaProcessing, BertProcessing, Sequence",
                        type));
    }
}

PostProcessor::Template PostProcessor::read_template(const JsonField& field) {
    Template parts;
    for (const JsonField& piece : field.at("single").items()) {
        if (const auto sequence = piece.find("Sequence")) {
            if (sequence->at("id").text() != "A") sequence->at("id").fail("must be A in \"single\"");
            parts.push_back({true, {}});
            continue;
        }
        const JsonField name = piece.at("SpecialToken").at("id");
        const auto token = field.at("special_tokens").find(name.text());
        if (!token) name.fail("\"" + name.text() + "\" is not among special_tokens");
        Part part;
        for (const JsonField& id : token->at("ids").items()) part.ids.push_back(read_id(id));
        added_ += part.ids.size();
        if (added_ > kMostAddedTokens) {
            name.fail(fmt::format("more than {} tokens would be added to a text", kMostAddedTokens));
        }
        parts.push_back(std::move(part));
    }
    const auto texts = std::count_if(parts.begin(), parts.end(), [](const Part& part) { return part.text; });
    if (texts != 1) field.at("single").fail("must hold Sequence A once");
    return parts;
}

void PostProcessor::apply(std::vector<std::int32_t>& ids, bool add_special_tokens) const {
    for (const Template& parts : templates_) {
        std::vector<std::int32_t> out;
        for (const Part& part : parts) {
            if (!part.text && !add_special_tokens) continue;
            const std::vector<std::int32_t>& more = part.text ? ids : part.ids;
            out.insert(out.end(), more.begin(), more.end());
        }
        ids = std::move(out);
    }
}

}  // namespace tandem::tokenizer
