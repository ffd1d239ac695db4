// The state of a running template: variables, output, and the limits that end a hostile one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/tokenizer/jinja/value.h"

namespace tandem::tokenizer::jinja {

struct Limits {
    std::uint64_t steps = 5'000'000;              // expressions and statements
    std::size_t bytes = std::size_t{256} << 20;   // of all strings and lists that are made
    std::uint64_t work = std::uint64_t{1} << 30;  // bytes that are looked at; some tenths of a second
    int depth = 400;                              // of evaluation
};

class Runtime {
  public:
    explicit Runtime(const Limits& limits) : limits_(limits) {}
    ~Runtime();  // empties the namespaces, which may refer to each other
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

    // Runs `body` in a frame of its own; with `isolated`, it sees nothing but the outermost frames beside it.
    template <typename Run>
    void in_frame(bool isolated, const Run& body) {
        const std::size_t visible = visible_;
        frames_.emplace_back();
        if (isolated) visible_ = frames_.size() - 1;
        body();
        frames_.pop_back();
        visible_ = visible;
    }

    void step(int line);
    void spend(std::size_t bytes);
    void work(std::uint64_t bytes);          // what makes nothing and takes time all the same
    void look_through(std::size_t entries);  // names of a dictionary, one by one
    Value new_namespace(Entries entries);
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
    static constexpr std::size_t kGlobalFrames = 2;  // the caller's variables, the template's own
    using Frame = Entries;

    Limits limits_;
    std::vector<Frame> frames_ = std::vector<Frame>(kGlobalFrames);
    std::size_t visible_ = 0;  // frames from here on, and the global ones, are seen
    std::string output_;
    std::uint64_t steps_ = 0;
    std::size_t spent_ = 0;
    std::uint64_t worked_ = 0;
    int depth_ = 0;
    int line_ = 1;
    std::vector<std::shared_ptr<Value::Namespace>> namespaces_;
};

}  // namespace tandem::tokenizer::jinja
