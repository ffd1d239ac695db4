#include "common/comm/queued.h"

#include "common/comm/arguments.h"
#include "common/error.h"

namespace tandem::comm {
namespace {

// Calls that do not agree fail on every rank alike, and transport errors are known to all. Anything else,
// such as a full heap, happened to this rank alone: the others would wait for it.
template <typename Body>
void run(Collectives& collectives, const Body& body) {
    try {
        body(collectives);
    } catch (const TransportError&) {
        throw;
    } catch (const InvalidArgument&) {
        throw;
    } catch (const std::exception& error) {
        collectives.abort(error.what());
        throw;
    }
}

}  // namespace

void Collectives::on_gpu(Stream& stream, const std::function<void(Operations&)>&) {
    throw InvalidArgument(
        fmt::format("a call on '{}' on stream '{}' of {}: this backend moves memory of the CPU "
                    "only; use ipc (ranks of one host) or nccl",
                    name(), stream.name(), to_string(stream.device())));
}

MemoryPool* Collectives::memory(Device) {
    return nullptr;
}

std::size_t Collectives::trim_memory(Device) {
    return 0;
}

QueuedCommunicator::QueuedCommunicator(std::shared_ptr<Collectives> collectives)
    : collectives_(std::move(collectives)) {}

// Operations of one communicator run in the order of the calls, also when they are queued on different
// streams.
Work QueuedCommunicator::launch(Stream& stream, std::function<void(Operations&)> body) {
    if (last_.poll() != Poll::done) stream.wait(last_);
    if (stream.device().type == DeviceType::cuda) {
        run(*collectives_, [&](Collectives& c) { c.on_gpu(stream, body); });
    } else {
        stream.enqueue([collectives = collectives_, body = std::move(body)] {
            run(*collectives, [&](Collectives& c) { body(c.on_cpu()); });
        });
    }
    last_ = stream.record();
    return Work(last_);
}

MemoryPool& QueuedCommunicator::memory(Device device) {
    if (device.type == DeviceType::cuda) {
        if (MemoryPool* pool = collectives_->memory(device); pool != nullptr) return *pool;
    }
    return Communicator::memory(device);
}

std::size_t QueuedCommunicator::trim_memory(Device device) {
    if (device.type != DeviceType::cuda) return 0;
    if (last_.poll() == Poll::pending) last_.wait(Deadline::after(timeout()));
    std::size_t bytes = 0;
    run(*collectives_, [&](Collectives& c) { bytes = c.trim_memory(device); });
    return bytes;
}

Work QueuedCommunicator::all_gather(std::span<const GatherItem> items, Stream& stream) {
    check_all_gather(*this, items);
    return launch(stream,
                  [list = std::vector(items.begin(), items.end())](Operations& c) { c.all_gather(list); });
}

Work QueuedCommunicator::reduce_scatter(std::span<const ReduceScatterItem> items, ReduceOp op,
                                        Stream& stream) {
    check_reduce_scatter(*this, items);
    return launch(stream, [list = std::vector(items.begin(), items.end()), op](Operations& c) {
        c.reduce_scatter(list, op);
    });
}

Work QueuedCommunicator::all_reduce(Span inout, DType dtype, ReduceOp op, Stream& stream) {
    check_all_reduce(*this, inout, dtype, op);
    return launch(stream, [=](Operations& c) { c.all_reduce(inout, dtype, op); });
}

Work QueuedCommunicator::broadcast(Span memory, int root, Stream& stream) {
    check_broadcast(*this, root);
    return launch(stream, [=](Operations& c) { c.broadcast(memory, root); });
}

Work QueuedCommunicator::all_to_all(const AllToAllItem& item, Stream& stream) {
    check_all_to_all(*this, item);
    return launch(stream, [item](Operations& c) { c.all_to_all(item); });
}

Work QueuedCommunicator::p2p(std::span<const P2POp> ops, Stream& stream) {
    check_p2p(*this, ops);
    return launch(stream, [list = std::vector(ops.begin(), ops.end())](Operations& c) { c.p2p(list); });
}

Work QueuedCommunicator::barrier(Stream& stream) {
    return launch(stream, [](Operations& c) { c.barrier(); });
}

std::shared_ptr<Communicator> QueuedCommunicator::split(const std::vector<int>& ranks,
                                                        const std::string& name) {
    check_split(*this, global_ranks()[static_cast<std::size_t>(rank())], ranks, name);
    return std::make_shared<QueuedCommunicator>(collectives_->split(ranks, name));
}

void QueuedCommunicator::set_timeout(std::chrono::milliseconds timeout) {
    check_timeout(timeout);
    collectives_->set_timeout(timeout);
}

}  // namespace tandem::comm
