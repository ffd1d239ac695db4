// ZBV of "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241, section 6). Rank r has stage r of the way there and its mirror
// image of the way back.
#include <algorithm>
#include <utility>

#include "trainer/pipeline/lists.h"

namespace tandem::pipeline {
namespace {

// Numbers the micro-batches of each stage and kind, and drops those that the step does not have.
class ZbvList {
  public:
    ZbvList(const Shape& shape, int rank)
        : microbatches_(shape.microbatches), stages_{rank, 2 * shape.ranks - 1 - rank} {}

    void add(ActionKind kind, int side) {
        const int microbatch = next_[static_cast<std::size_t>(kind)][side]++;
        if (microbatch < microbatches_) list_.push_back({kind, stages_[side], microbatch});
    }
    void forward(int side) { add(ActionKind::forward, side); }
    void input(int side) { add(ActionKind::backward_input, side); }
    void weight(int side) { add(ActionKind::backward_weight, side); }

    int forwards(int side) const { return next_[static_cast<std::size_t>(ActionKind::forward)][side]; }
    int inputs(int side) const { return next_[static_cast<std::size_t>(ActionKind::backward_input)][side]; }
    int weights(int side) const { return next_[static_cast<std::size_t>(ActionKind::backward_weight)][side]; }
    ActionList take() { return std::move(list_); }

  private:
    int microbatches_;
    int stages_[2];
    int next_[3][2] = {};
    ActionList list_;
};

}  // namespace

ActionList zbv_zero_bubble(const Shape& shape, int rank) {
    const int enough = std::max(2 * shape.ranks - 1, shape.microbatches);  // to fill the pipeline
    const int behind = shape.ranks - rank;
    ZbvList list(shape, rank);
    // Warm-up: until the first micro-batch comes back.
    for (int i = 0; i < 2 * behind - 1; ++i) list.forward(0);
    for (int i = 0; i < rank; ++i) {
        list.forward(1);
        list.forward(0);
    }
    for (int i = 0; i < behind; ++i) {
        list.forward(1);
        list.input(1);
        list.weight(1);
    }
    // Steady state.
    while (list.forwards(1) < list.forwards(0) || list.forwards(0) < enough) {
        if (list.forwards(0) < enough) list.forward(0);
        list.input(0);
        list.weight(0);
        list.forward(1);
        list.input(1);
        list.weight(1);
    }
    // Cool-down: inputs first, since the ranks before wait for them.
    for (int i = 0; i < rank; ++i) {
        list.input(0);
        list.input(1);
    }
    for (int i = 0; i < behind; ++i) {
        list.input(0);
        list.weight(0);
    }
    while (list.weights(1) < list.inputs(1)) list.weight(1);
    while (list.weights(0) < list.inputs(0)) list.weight(0);
    return list.take();
}

}  // namespace tandem::pipeline
