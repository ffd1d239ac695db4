// DualPipeV, DeepSeek's DualPipe (arXiv 2412.19437) folded into a V: forwards of one direction overlap backwards of the other.
#include <utility>

#include "trainer/pipeline/lists.h"

namespace tandem::pipeline {
namespace {

class DualPipeList {
  public:
    DualPipeList(const Shape& shape, int rank) : stages_{rank, 2 * shape.ranks - 1 - rank} {}

    void forward(int side) { list_.push_back(next_forward(side)); }
    void backward(int side, bool weights_later) {
        Action action = next_backward(side);
        if (weights_later) {
            action.kind = ActionKind::backward_input;
            pending_.push_back({ActionKind::backward_weight, action.stage, action.microbatch});
        }
        list_.push_back(action);
    }
    void oldest_weight() {
        if (done_ < pending_.size()) list_.push_back(pending_[done_++]);
    }
    void overlap(int forward_side, int backward_side) {
        Action forward = next_forward(forward_side);
        list_.push_back(
            {ActionKind::overlap_f_b, -1, -1, {std::move(forward), next_backward(backward_side)}});
    }
    ActionList take() { return std::move(list_); }

  private:
    Action next_forward(int side) { return {ActionKind::forward, stages_[side], forwards_[side]++}; }
    Action next_backward(int side) { return {ActionKind::full_backward, stages_[side], backwards_[side]++}; }

    int stages_[2];
    int forwards_[2] = {}, backwards_[2] = {};
    ActionList list_, pending_;
    std::size_t done_ = 0;  // of the pending ones
};

}  // namespace

ActionList dual_pipe_v(const Shape& shape, int rank) {
    const int behind = shape.ranks - 1 - rank;
    DualPipeList list(shape, rank);
    // Warm-up.
    for (int i = 0; i < 2 * behind; ++i) list.forward(0);
    for (int i = 0; i <= rank; ++i) {
        list.forward(0);
        list.forward(1);
    }
    for (int i = 0; i < behind; ++i) {
        list.backward(1, true);
        list.oldest_weight();
        list.forward(1);
    }
    // Steady state. The last rank has nothing to overlap its first pair with.
    for (int i = 0; i < shape.microbatches - 2 * shape.ranks + rank + 1; ++i) {
        if (i == 0 && behind == 0) {
            list.forward(0);
            list.backward(1, false);
        } else {
            list.overlap(0, 1);
        }
        list.overlap(1, 0);
    }
    for (int i = 0; i < behind; ++i) {
        list.backward(1, false);
        list.overlap(1, 0);
    }
    // Cool-down: from its middle on weights wait, and fill the end.
    const int half = (rank + 1) / 2;
    const bool odd = rank % 2 == 1;
    for (int i = 0; i <= rank; ++i) {
        list.backward(1, odd ? i >= half : i > half);
        list.backward(0, i >= half);
    }
    for (int i = 0; i < behind; ++i) {
        list.oldest_weight();
        list.backward(0, true);
    }
    for (int i = 0; i <= rank; ++i) list.oldest_weight();
    return list.take();
}

}  // namespace tandem::pipeline
