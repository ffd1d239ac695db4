// GPipe and its form with several stages a rank, breadth first: all forwards, then all backwards.
#include "trainer/pipeline/lists.h"

namespace tandem::pipeline {

ActionList gpipe(const Shape& shape, int rank) {
    ActionList list;
    for (int i = 0; i < shape.microbatches; ++i) list.push_back({ActionKind::forward, rank, i});
    for (int i = 0; i < shape.microbatches; ++i) list.push_back({ActionKind::full_backward, rank, i});
    return list;
}

ActionList looped_bfs(const Shape& shape, int rank) {
    ActionList list;
    for (int local = 0; local < shape.stages_per_rank; ++local)
        for (int i = 0; i < shape.microbatches; ++i)
            list.push_back({ActionKind::forward, local * shape.ranks + rank, i});
    for (int local = shape.stages_per_rank; local-- > 0;)
        for (int i = shape.microbatches; i-- > 0;)
            list.push_back({ActionKind::full_backward, local * shape.ranks + rank, i});
    return list;
}

}  // namespace tandem::pipeline
