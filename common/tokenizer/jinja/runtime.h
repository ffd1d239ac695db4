// The state of a running template: variables, output, and the limits that end a hostile one.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/tokenizer/jinja/object.h"
#include "common/tokenizer/jinja/thread_clock.h"

namespace tandem::tokenizer::jinja {

struct Limits {
    std::uint64_t steps = 5'000'000;              // expressions and statements
    std::size_t bytes = std::size_t{256} << 20;   // of all strings, lists and dictionaries that are made
    std::uint64_t work = std::uint64_t{1} << 30;  // bytes that are looked at; some tenths of a second
    int depth = 400;                              // of evaluation
    double seconds = 1;                           // of this thread's processor time, whatever the others say

    static Limits none() {
        constexpr auto kAny = std::numeric_limits<std::uint64_t>::max();
        return {kAny, kAny, kAny, std::numeric_limits<int>::max(), 1e9};
    }
};

// The names that a part of the template sees: its own, then those of the part around it.
struct Frame {
    explicit Frame(std::shared_ptr<Frame> around) : parent(std::move(around)) {}
    std::shared_ptr<Frame> parent;
    Dict names;
    std::shared_ptr<Frame> kept_before;  // of those that Runtime keeps
};
using FramePtr = std::shared_ptr<Frame>;

class Runtime {
  public:
    explicit Runtime(const Limits& limits);
    ~Runtime();  // empties namespaces and kept frames, which may refer to each other
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    void set_global(const Name& name, Value value);  // before the template runs
    Value find(const Name& name);                    // undefined where there is none
    void set(const Name& name, Value value);         // in the innermost frame

    void write(std::string_view text);
    std::string take_output();
    // Runs `body` with an output of its own.
    template <typename Run>
    std::string capture(const Run& body) {
        std::string outer;
        outer.swap(output_);
        body();
        outer.swap(output_);
        return outer;
    }

    // Runs `body` in a new frame within `around`.
    template <typename Run>
    void in_frame(const FramePtr& around, const Run& body) {
        work(kOfFrame);
        const Inside inside(*this, around);
        body();
    }
    const FramePtr& frame() const { return frame_; }
    FramePtr template_frame() const {
        return template_frame_;
    }  // the outermost but for the caller's variables

    // What is done is charged before it is done, or in pieces while it is; all throw Error beyond the limits.
    void step(int line) {
        line_ = line;
        if (++steps_ > limits_.steps) fail_steps();
        look_at_clock();
    }
    // Memory; a value that is given up stays charged.
    void spend(std::size_t bytes) {
        if (bytes > limits_.bytes - spent_) fail_bytes();
        spent_ += bytes;
        look_at_clock();
    }
    // Memory for a moment: the copy that a text which outgrows its place leaves behind.
    void need_for_now(std::size_t bytes) const {
        if (bytes > limits_.bytes - spent_) fail_bytes();
    }
    // What makes nothing and takes time all the same.
    void work(std::uint64_t bytes) {
        if (bytes > limits_.work - worked_) fail_work();
        worked_ += bytes;
        look_at_clock();
    }
    void look_up(std::size_t bytes) { work(48 + bytes); }  // one name or key of so many bytes
    void case_work(std::size_t bytes) {
        work(16 * bytes);
    }  // characters through ICU, or a number into digits
    Value new_namespace(const Dict& entries);
    int line() const { return line_; }
    std::uint64_t charged() const { return worked_ + spent_ + steps_ * kOfStep; }  // in units of work

    // One level of evaluation.
    class Level {
      public:
        explicit Level(Runtime& runtime);
        ~Level() { --runtime_.depth_; }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;

      private:
        Runtime& runtime_;
    };

  private:
    static constexpr std::size_t kOfFrame = 128;
    static constexpr std::uint64_t kOfStep = 2048;
    static constexpr std::uint64_t kClockEvery = std::uint64_t{1} << 18;
    void look_at_clock() {
        if (charged() >= looks_at_) look_now();
    }
    void look_now();
    [[noreturn]] void fail_steps() const;
    [[noreturn]] void fail_bytes() const;
    [[noreturn]] void fail_work() const;

    // A new innermost frame, until its end. What refers to it then may refer to it in a ring, or in a chain that
    // would be too long to give up at once: it is kept until the template has run.
    class Inside {
      public:
        Inside(Runtime& runtime, const FramePtr& around);
        ~Inside();
        Inside(const Inside&) = delete;
        Inside& operator=(const Inside&) = delete;

      private:
        Runtime& runtime_;
        FramePtr frame_;  // the outer one
    };

    Limits limits_;
    FramePtr global_frame_, template_frame_, frame_;
    FramePtr kept_;  // the last one
    std::string output_;
    std::uint64_t steps_ = 0;
    std::size_t spent_ = 0;
    std::uint64_t worked_ = 0;
    std::uint64_t looks_at_ = kClockEvery;  // what was charged when the clock is looked at next
    ThreadClock clock_;
    int depth_ = 0;
    int line_ = 1;
    std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// An object and what an allocation takes beside it.
template <typename T, typename... Given>
std::shared_ptr<T> make_object(Runtime& runtime, Given&&... given) {
    constexpr std::size_t kBeside = 64;
    runtime.spend(sizeof(T) + kBeside);
    return std::make_shared<T>(std::forward<Given>(given)...);
}

// Why there is no value: charged, as each time it is asked for it is another one.
Value undefined(Runtime& runtime, std::string why);

}  // namespace tandem::tokenizer::jinja
