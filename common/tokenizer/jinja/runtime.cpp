#include "common/tokenizer/jinja/runtime.h"

#include "common/error.h"

namespace tandem::tokenizer::jinja {
namespace {

void assign(Entries& entries, const std::string& name, Value value) {
    for (auto& [key, held] : entries) {
        if (key == name) {
            held = std::move(value);
            return;
        }
    }
    entries.emplace_back(name, std::move(value));
}

const Value* look_up(const Entries& entries, const std::string& name) {
    for (const auto& [key, held] : entries) {
        if (key == name) return &held;
    }
    return nullptr;
}

}  // namespace

Runtime::~Runtime() {
    frames_.clear();
    for (const auto& space : namespaces_) space->entries.clear();
}

void Runtime::set_global(const std::string& name, Value value) {
    assign(frames_[0], name, std::move(value));
}

void Runtime::set(const std::string& name, Value value) {
    assign(frames_.back(), name, std::move(value));
}

Value Runtime::find(const std::string& name) {
    for (std::size_t i = frames_.size(); i-- > 0;) {
        if (i < visible_ && i >= kGlobalFrames) continue;
        look_through(frames_[i].size());
        if (const Value* found = look_up(frames_[i], name)) return *found;
    }
    return Value::Undefined{"'" + name + "' is undefined"};
}

void Runtime::write(std::string_view text) {
    spend(text.size());
    output_ += text;
}

std::string Runtime::take_output() {
    return std::move(output_);
}

void Runtime::step(int line) {
    line_ = line;
    if (++steps_ > limits_.steps) throw Error(fmt::format("more than {} steps", limits_.steps));
}

void Runtime::spend(std::size_t bytes) {
    if (bytes > limits_.bytes - spent_) throw Error(fmt::format("more than {} bytes of text", limits_.bytes));
    spent_ += bytes;
}

void Runtime::work(std::uint64_t bytes) {
    if (bytes > limits_.work - worked_)
        throw Error(fmt::format("more work than looking at {} bytes", limits_.work));
    worked_ += bytes;
}

void Runtime::look_through(std::size_t entries) {
    constexpr std::uint64_t kOfOne = 8;
    work(entries * kOfOne);
}

Value Runtime::new_namespace(Entries entries) {
    spend(256 + entries.size() * sizeof(Value));
    auto space = std::make_shared<Value::Namespace>(Value::Namespace{std::move(entries)});
    namespaces_.push_back(space);
    return space;
}

Runtime::Level::Level(Runtime& runtime) : runtime_(runtime) {
    if (++runtime_.depth_ > runtime_.limits_.depth) {
        --runtime_.depth_;
        throw Error("nested deeper than this interpreter goes");
    }
}

}  // namespace tandem::tokenizer::jinja
