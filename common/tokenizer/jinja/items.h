// A list that charges for every value that it takes: whatever makes a list of unknown length makes it with this.
#pragma once

#include <utility>

#include "common/tokenizer/jinja/runtime.h"

namespace tandem::tokenizer::jinja {

class Items {
  public:
    explicit Items(Runtime& runtime) : runtime_(runtime) {}
    void add(Value value) {
        runtime_.spend(2 * sizeof(Value));  // twice: vectors double
        all_.push_back(std::move(value));
    }
    bool empty() const { return all_.empty(); }
    std::size_t size() const { return all_.size(); }
    List take() { return std::exchange(all_, {}); }
    Value list() { return Value::list(runtime_, take()); }

  private:
    Runtime& runtime_;
    List all_;
};

}  // namespace tandem::tokenizer::jinja
