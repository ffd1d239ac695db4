// The list of one rank, a function a schedule. What they are given is admitted (schedule.cpp).
#pragma once

#include "trainer/pipeline/schedule.h"

namespace tandem::pipeline {

struct Shape {
    int ranks, stages_per_rank, microbatches;
};

// fill_drain.cpp
ActionList gpipe(const Shape& shape, int rank);
ActionList looped_bfs(const Shape& shape, int rank);
// one_forward_one_backward.cpp
ActionList one_forward_one_backward(const Shape& shape, int rank);
ActionList interleaved_1f1b(const Shape& shape, int rank);
ActionList interleaved_zero_bubble(const Shape& shape, int rank);
int rounds_of_interleaved(const Shape& shape);  // which have equally many micro-batches
// zbv_zero_bubble.cpp, dual_pipe_v.cpp: two stages a rank, the second on the way back
ActionList zbv_zero_bubble(const Shape& shape, int rank);
ActionList dual_pipe_v(const Shape& shape, int rank);

}  // namespace tandem::pipeline
