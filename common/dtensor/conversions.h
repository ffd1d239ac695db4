// One step of a redistribution, carried out: packs, calls the collective, unpacks, all queued on a stream.
#pragma once

#include "common/device/stream.h"
#include "common/dtensor/redistribute_plan.h"
#include "common/mesh/device_mesh.h"
#include "common/tensor/tensor.h"

namespace tandem {

// Returns the new local piece, whose memory exists at once and whose values do when the stream has come this
// far. `local` may still be written by earlier work of the stream. Everything read or written is kept alive
// by the queue. Collective over the axis's group unless the step's kind is none, local_chunk or partition.
// Kind none returns `local`. Reductions take float32 and bfloat16, all_reduce int64 too; moves take any
// dtype.
Tensor convert(const RedistributeStep& step, const Tensor& local, const DeviceMesh& mesh, Stream& stream);

}  // namespace tandem
