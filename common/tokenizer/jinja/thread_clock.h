// Processor time of the calling thread: what a busy machine does not change.
#pragma once

namespace tandem::tokenizer::jinja {

class ThreadClock {
  public:
    explicit ThreadClock(double seconds);
    // Throws Error: more than those seconds since then.
    void look() const;

  private:
    double seconds_, ends_;
};

}  // namespace tandem::tokenizer::jinja
