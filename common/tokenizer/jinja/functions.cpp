// Functions that transformers gives a chat template, and jinja2's own that such templates use.
#include <ctime>

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"

namespace tandem::tokenizer::jinja {
namespace {

Value range(Runtime& runtime, const Arguments& arguments) {
    std::int64_t bounds[3] = {0, 0, 1};
    const std::size_t count = arguments.positional.size();
    if (count < 1 || count > 3) throw Error("range takes one to three integers");
    for (std::size_t i = 0; i < count; ++i) {
        const auto number = arguments.positional[i].integer();
        if (!number) throw Error("range takes one to three integers");
        bounds[count == 1 ? 1 : i] = *number;
    }
    const auto [start, stop, step] = bounds;
    if (step == 0) throw Error("range: the step must not be 0");
    List out;
    constexpr std::int64_t kMost = 100'000;  // as jinja2's sandbox
    for (std::int64_t at = start; step > 0 ? at < stop : at > stop;) {
        if (static_cast<std::int64_t>(out.size()) >= kMost) throw Error("range is too long");
        out.emplace_back(at);
        if (__builtin_add_overflow(at, step, &at)) break;
    }
    runtime.spend(out.size() * sizeof(Value));
    return Value::list(std::move(out));
}

Entries named_entries(const Arguments& arguments) {
    Entries entries;
    for (const Value& from : arguments.positional) {
        if (from.entries() == nullptr) throw Error("a dictionary is expected");
        entries.insert(entries.end(), from.entries()->begin(), from.entries()->end());
    }
    entries.insert(entries.end(), arguments.named.begin(), arguments.named.end());
    return entries;
}

std::string strftime_now(const Arguments& arguments) {
    const Value* format = arguments.find(0, "format");
    if (format == nullptr || format->string() == nullptr) throw Error("strftime_now needs a format");
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    localtime_r(&now, &parts);
    char text[256];
    const std::string marked = *format->string() + " ";  // so that an empty result is not an error
    const std::size_t written = std::strftime(text, sizeof text, marked.c_str(), &parts);
    if (written == 0) throw Error("strftime_now: the date is too long");
    return std::string(text, written - 1);
}

}  // namespace

void add_functions(Runtime& runtime) {
    runtime.set_global("range", Function([&](const Arguments& a) { return range(runtime, a); }));
    runtime.set_global("namespace",
                       Function([&](const Arguments& a) { return runtime.new_namespace(named_entries(a)); }));
    runtime.set_global("dict", Function([](const Arguments& a) { return Value::dict(named_entries(a)); }));
    runtime.set_global("strftime_now", Function([](const Arguments& a) -> Value { return strftime_now(a); }));
    runtime.set_global("raise_exception", Function([](const Arguments& a) -> Value {
                           const Value* message = a.find(0, "message");
                           throw BadInput("the chat template refuses: " +
                                          (message == nullptr ? std::string() : message->str()));
                       }));
}

}  // namespace tandem::tokenizer::jinja
