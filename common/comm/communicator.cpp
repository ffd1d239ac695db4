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

void Communicator::check_members(std::string_view what) const {
    if (const auto note = aborted())
        throw TransportError(note->who, std::string(what), "the job was aborted: " + note->reason);
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

std::vector<Span> Communicator::show(Span own, std::span<const std::size_t> bytes) {
    const Span shared = shared_memory().memory;
    const bool inside = own.bytes == 0 || (own.data >= shared.data && own.data < shared.data + shared.bytes);
    require(inside, "'{}': a rank shows memory that is not its communicator's", name());
    const std::uint64_t offset = own.bytes == 0 ? 0 : static_cast<std::uint64_t>(own.data - shared.data);
    std::vector<std::uint64_t> offsets(bytes.size());
    all_gather({reinterpret_cast<const std::byte*>(&offset), sizeof(offset)},
               {reinterpret_cast<std::byte*>(offsets.data()), offsets.size() * sizeof(offset)});
    std::vector<Span> shown;
    for (std::size_t r = 0; r < offsets.size(); ++r) {
        if (offsets[r] > shared.bytes || bytes[r] > shared.bytes - offsets[r])
            throw ProtocolError(fmt::format("'{}': rank {} shows {} bytes at offset {} of {} that are shared",
                                            name(), global_ranks()[r], bytes[r], offsets[r], shared.bytes));
        shown.push_back(shared.subspan(offsets[r], bytes[r]));
    }
    return shown;
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
