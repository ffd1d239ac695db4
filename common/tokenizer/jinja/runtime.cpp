#include "common/tokenizer/jinja/runtime.h"

#include "common/error.h"
#include "common/tokenizer/jinja/strings.h"

namespace tandem::tokenizer::jinja {

Runtime::Runtime(const Limits& limits)
    : limits_(limits),
      global_frame_(std::make_shared<Frame>(nullptr)),
      template_frame_(std::make_shared<Frame>(global_frame_)),
      frame_(template_frame_),
      clock_(limits.seconds) {}

Runtime::~Runtime() {
    frame_ = template_frame_;
    for (const auto& space : namespaces_) space->entries = Dict();
    for (Frame* frame = kept_.get(); frame != nullptr; frame = frame->kept_before.get())
        frame->names = Dict();
    while (kept_ != nullptr) kept_ = std::exchange(kept_->kept_before, nullptr);
    template_frame_->names = Dict();
    global_frame_->names = Dict();
}

Runtime::Inside::Inside(Runtime& runtime, const FramePtr& around)
    : runtime_(runtime), frame_(std::make_shared<Frame>(around)) {
    frame_.swap(runtime_.frame_);
}

Runtime::Inside::~Inside() {
    frame_.swap(runtime_.frame_);
    if (frame_.use_count() == 1) return;
    frame_->kept_before = std::move(runtime_.kept_);
    runtime_.kept_ = std::move(frame_);
}

void Runtime::set_global(const Name& name, Value value) {
    global_frame_->names.put(*this, name, std::move(value));
}

void Runtime::set(const Name& name, Value value) {
    frame_->names.put(*this, name, std::move(value));
}

Value Runtime::find(const Name& name) {
    for (const Frame* frame = frame_.get(); frame != nullptr; frame = frame->parent.get()) {
        if (const Value* found = frame->names.find(*this, name)) return *found;
    }
    return undefined(*this, "'" + shown(name.text()) + "' is undefined");
}

void Runtime::write(std::string_view text) {
    spend(text.size());
    if (output_.size() + text.size() > output_.capacity()) need_for_now(output_.size());
    output_ += text;
}

std::string Runtime::take_output() {
    return std::move(output_);
}

void Runtime::look_now() {
    looks_at_ = charged() + kClockEvery;
    clock_.look();
}

void Runtime::fail_steps() const {
    throw Error(fmt::format("more than {} steps", limits_.steps));
}

void Runtime::fail_bytes() const {
    throw Error(fmt::format("more than {} bytes of text", limits_.bytes));
}

void Runtime::fail_work() const {
    throw Error(fmt::format("more work than looking at {} bytes", limits_.work));
}

Value Runtime::new_namespace(const Dict& entries) {
    const auto space = make_object<Namespace>(*this);
    for (const auto& [key, value] : entries.pairs()) space->set(*this, Name(str(*this, key)), value);
    namespaces_.push_back(space);
    return Value(std::shared_ptr<Object>(space));
}

Value undefined(Runtime& runtime, std::string why) {
    constexpr std::size_t kOfMessage = 96;
    runtime.spend(kOfMessage + why.size());
    return Value::Undefined{std::move(why)};
}

Runtime::Level::Level(Runtime& runtime) : runtime_(runtime) {
    if (++runtime_.depth_ > runtime_.limits_.depth) {
        --runtime_.depth_;
        throw Error("nested deeper than this interpreter goes");
    }
}

}  // namespace tandem::tokenizer::jinja
