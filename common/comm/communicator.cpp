// The host-blocking forms, which are the same for every backend.
#include "common/comm/communicator.h"

#include "common/error.h"

namespace tandem::comm {
namespace {

Stream& inline_stream() {
    thread_local Stream stream = Stream::make_inline();
    return stream;
}

}  // namespace

Poll Work::poll() const {
    const Poll state = event_.poll();
    if (state != Poll::done || !check_) return state;
    try {
        check_();
        return Poll::done;
    } catch (const std::exception&) {
        return Poll::failed;
    }
}

void Work::wait(Deadline deadline) const {
    event_.wait(deadline);
    if (check_) check_();
}

std::size_t Communicator::trim_memory(Device) {
    return 0;
}

MemoryPool& Communicator::memory(Device device) {
    require(
        device.type == DeviceType::cpu,
        "the communicator '{}' moves memory of the CPU only, not of {}: use the backend ipc (ranks of one "
        "host) or nccl",
        name(), to_string(device));
    return memory();
}

void Communicator::all_gather(ConstSpan send, Span recv) {
    const GatherItem item{send, recv};
    all_gather(std::span(&item, 1), inline_stream());
}

void Communicator::all_reduce(Span inout, DType dtype, ReduceOp op) {
    all_reduce(inout, dtype, op, inline_stream());
}
void Communicator::broadcast(Span memory, int root) {
    broadcast(memory, root, inline_stream());
}
void Communicator::barrier() {
    barrier(inline_stream());
}

}  // namespace tandem::comm
