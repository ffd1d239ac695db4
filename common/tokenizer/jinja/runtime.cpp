#include "common/tokenizer/jinja/runtime.h"

#include <ctime>

#include "common/error.h"

namespace tandem::tokenizer::jinja {
namespace {

double thread_seconds() {
    std::timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

Runtime::Runtime(const Limits& limits)
    : limits_(limits),
      global_frame_(std::make_shared<Frame>(nullptr)),
      template_frame_(std::make_shared<Frame>(global_frame_)),
      frame_(template_frame_),
      ends_(thread_seconds() + limits.seconds) {}

Runtime::~Runtime() {
    frame_ = template_frame_;
    for (const auto& space : namespaces_) space->entries = Dict();
    for (const FramePtr& frame : kept_) frame->names.clear();
    template_frame_->names.clear();
    global_frame_->names.clear();
}

void Runtime::set_global(const std::string& name, Value value) {
    global_frame_->names.insert_or_assign(name, std::move(value));
}

void Runtime::set(const std::string& name, Value value) {
    look_up(name.size());
    frame_->names.insert_or_assign(name, std::move(value));
}

Value Runtime::find(const std::string& name) {
    for (const Frame* frame = frame_.get(); frame != nullptr; frame = frame->parent.get()) {
        look_up(name.size());
        const auto found = frame->names.find(name);
        if (found != frame->names.end()) return found->second;
    }
    return Value::Undefined{"'" + name + "' is undefined"};
}

void Runtime::keep(const FramePtr& frame) {
    spend(sizeof(FramePtr));
    if (kept_.empty() || kept_.back() != frame) kept_.push_back(frame);
}

void Runtime::write(std::string_view text) {
    spend(text.size());
    output_ += text;
}

std::string Runtime::take_output() {
    return std::move(output_);
}

void Runtime::look_at_clock() {
    constexpr std::uint64_t kOften = std::uint64_t{1} << 20;
    constexpr std::uint64_t kOfStep = 2048;
    const std::uint64_t now = worked_ + spent_ + steps_ * kOfStep;
    if (now - looked_ < kOften) return;
    looked_ = now;
    if (thread_seconds() > ends_) {
        throw Error(fmt::format("more than {} s of processor time", limits_.seconds));
    }
}

void Runtime::step(int line) {
    line_ = line;
    if (++steps_ > limits_.steps) throw Error(fmt::format("more than {} steps", limits_.steps));
    look_at_clock();
}

void Runtime::spend(std::size_t bytes) {
    if (bytes > limits_.bytes - spent_) throw Error(fmt::format("more than {} bytes of text", limits_.bytes));
    spent_ += bytes;
    look_at_clock();
}

void Runtime::work(std::uint64_t bytes) {
    if (bytes > limits_.work - worked_)
        throw Error(fmt::format("more work than looking at {} bytes", limits_.work));
    worked_ += bytes;
    look_at_clock();
}

void Runtime::look_up(std::size_t bytes) {
    constexpr std::uint64_t kOfOne = 48;
    work(kOfOne + bytes);
}

void Runtime::case_work(std::size_t bytes) {
    constexpr std::uint64_t kOfByte = 16;
    work(bytes * kOfByte);
}

Value Runtime::new_namespace(Dict entries) {
    spend(256);
    auto space = std::make_shared<Namespace>();
    for (const auto& [key, value] : entries.pairs()) space->set(*this, str(*this, key), value);
    namespaces_.push_back(space);
    return std::shared_ptr<Object>(space);
}

Runtime::Level::Level(Runtime& runtime) : runtime_(runtime) {
    if (++runtime_.depth_ > runtime_.limits_.depth) {
        --runtime_.depth_;
        throw Error("nested deeper than this interpreter goes");
    }
}

}  // namespace tandem::tokenizer::jinja
