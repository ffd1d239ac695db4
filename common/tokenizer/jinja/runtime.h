// The state of a running template: variables, output, and the limits that end a hostile one.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/tokenizer/jinja/object.h"

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
    std::unordered_map<std::string, Value> names;
};
using FramePtr = std::shared_ptr<Frame>;

class Runtime {
  public:
    explicit Runtime(const Limits& limits);
    ~Runtime();  // empties namespaces and the frames of macros, which may refer to each other
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;

    void set_global(const std::string& name, Value value);  // before the template runs
    Value find(const std::string& name);                    // undefined where there is none
    void set(const std::string& name, Value value);         // in the innermost frame

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
        FramePtr outer = std::make_shared<Frame>(around);
        outer.swap(frame_);
        body();
        outer.swap(frame_);
    }
    const FramePtr& frame() const { return frame_; }
    FramePtr template_frame() const {
        return template_frame_;
    }                                  // the outermost but for the caller's variables
    void keep(const FramePtr& frame);  // a macro refers to it

    void step(int line);
    void spend(std::size_t bytes);
    void work(std::uint64_t bytes);     // what makes nothing and takes time all the same
    void look_up(std::size_t bytes);    // one name or key of so many bytes
    void case_work(std::size_t bytes);  // characters through ICU
    Value new_namespace(Dict entries);
    int line() const { return line_; }

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
    void look_at_clock();

    Limits limits_;
    FramePtr global_frame_, template_frame_, frame_;
    std::string output_;
    std::uint64_t steps_ = 0;
    std::size_t spent_ = 0;
    std::uint64_t worked_ = 0;
    std::uint64_t looked_ = 0;  // of steps, bytes and work: when the clock was looked at
    double ends_ = 0;           // seconds of this thread
    int depth_ = 0;
    int line_ = 1;
    std::vector<std::shared_ptr<Namespace>> namespaces_;
    std::vector<FramePtr> kept_;
};

}  // namespace tandem::tokenizer::jinja
