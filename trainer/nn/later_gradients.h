// Gradients of weights that are made later than those of their inputs, in the order in which they were noted.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace tandem::trainer {

class LaterGradients {
  public:
    // `work` keeps what it reads, and adds to Parameter::grad.
    void add(std::function<void()> work) { works_.push_back(std::move(work)); }
    // Each lets go of its tensors as soon as it is done.
    void run() {
        for (std::function<void()>& work : works_) std::exchange(work, nullptr)();
        works_.clear();
    }

  private:
    std::vector<std::function<void()>> works_;
};

}  // namespace tandem::trainer
