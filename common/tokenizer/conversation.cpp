#include "common/tokenizer/conversation.h"

#include "common/error.h"
#include "common/tokenizer/jinja/dict.h"
#include "common/tokenizer/jinja/json_reader.h"
#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer {
namespace {

using jinja::Dict;
using jinja::Value;

// tools and documents: null, or a list of objects.
void check_objects(const std::string& key, const Value& value) {
    if (value.is_none()) return;
    bool objects = value.items() != nullptr;
    for (std::size_t i = 0; objects && i < value.items()->size(); ++i) {
        objects = (*value.items())[i].dict() != nullptr;
    }
    if (!objects) throw BadInput(key + " must be a list of objects");
}

// Of a message without nulls: the first of its three names.
const Value* reasoning_of(jinja::Runtime& runtime, const Dict& message) {
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
        if (const Value* found = message.find_name(runtime, name)) return found;
    }
    return nullptr;
}

}  // namespace

Conversation Conversation::from_json(std::string_view json) {
    const Value whole = jinja::read_json(json);
    Conversation out;
    const Value* messages = nullptr;
    if (whole.items() != nullptr) messages = &whole;
    if (whole.dict() != nullptr) {
        for (const auto& [key, value] : whole.dict()->pairs()) {
            const std::string& name = *key.string();
            if (name == "messages") {
                messages = &value;
            } else if (name == "add_generation_prompt") {
                if (value.get<bool>() == nullptr)
                    throw BadInput("add_generation_prompt must be true or false");
                out.add_generation_prompt = *value.get<bool>();
            } else {
                if (name == "tools" || name == "documents") check_objects(name, value);
                out.variables.emplace_back(name, value);
            }
        }
    }
    if (messages == nullptr || messages->items() == nullptr) {
        throw BadInput("must be a JSON list of messages, or an object with messages");
    }
    out.messages = *messages->items();
    return out;
}

const Value* Conversation::variable(std::string_view name) const {
    for (const auto& [key, value] : variables) {
        if (key == name) return &value;
    }
    return nullptr;
}

Value template_messages(const jinja::List& messages) {
    jinja::Runtime unlimited(jinja::Limits::none());
    jinja::List out;
    for (const Value& message : messages) {
        if (message.dict() == nullptr) throw BadInput("each message must be an object");
        Dict kept, shown;
        for (const auto& [key, value] : message.dict()->pairs()) {
            if (!value.is_none()) kept.put(unlimited, key, value);
        }
        const Value* reasoning = reasoning_of(unlimited, kept);
        if (reasoning != nullptr) shown.put(unlimited, "thinking", *reasoning);
        for (const auto& [key, value] : kept.pairs()) shown.put(unlimited, key, value);
        if (reasoning != nullptr) shown.put(unlimited, "reasoning_content", *reasoning);
        out.push_back(Value::dict(unlimited, std::move(shown)));
    }
    return Value::list(unlimited, std::move(out));
}

}  // namespace tandem::tokenizer
