#include "common/tokenizer/jinja/template.h"

#include "common/error.h"
#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/parser.h"
#include "common/tokenizer/utf8.h"

namespace tandem::tokenizer::jinja {

Template::Template(std::string_view source) {
    constexpr double kMostSeconds = 1;
    if (source.size() > kMostBytes) throw Error(fmt::format("a template of more than {} bytes", kMostBytes));
    const ThreadClock clock(kMostSeconds);
    const std::string text = to_valid_utf8(source);  // a file's bytes may be anything
    Parser parser(tokenize(text, clock), clock);
    body_ = std::make_unique<Body>(parser.parse());
    names_needed_ = parser.names_needed();
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

std::string Template::render(const Entries& variables, const Limits& limits, std::uint64_t* charged) const {
    Runtime runtime(limits);
    struct Tells {
        ~Tells() {
            if (to != nullptr) *to = runtime.charged();
        }
        const Runtime& runtime;
        std::uint64_t* to;
    } const tells{runtime, charged};
    add_functions(runtime);
    for (const auto& [name, value] : variables) runtime.set_global(Name(name), value);
    try {
        body_->run(runtime);
    } catch (const InvalidArgument&) {
        throw;
    } catch (const Error& error) {
        throw Error(fmt::format("line {}: {}", runtime.line(), error.what()));
    }
    return runtime.take_output();
}

}  // namespace tandem::tokenizer::jinja
