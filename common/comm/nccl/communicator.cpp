#include "common/comm/nccl/communicator.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "common/comm/arguments.h"
#include "common/comm/ipc/gpu.h"
#include "common/comm/nccl/handle.h"
#include "common/comm/nccl/watch.h"
#include "common/comm/reduce_on_gpu.h"
#include "common/error.h"

namespace tandem::comm::nccl {
namespace {

Type type_of(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return Type::float32;
        case DType::bfloat16:
            return Type::bfloat16;
        case DType::int64:
            return Type::int64;
        default:
            throw InvalidArgument(fmt::format("NCCL does not reduce {} here", dtype_name(dtype)));
    }
}

Op op_of(ReduceOp op) {
    constexpr Op kOps[] = {Op::sum, Op::avg, Op::max, Op::min};
    return kOps[static_cast<int>(op)];
}

// NCCL: "if any rank in a communicator passes registered buffers to a NCCL communication function, all other
// ranks in the same communicator must pass their registered buffers" (user guide, User Buffer Registration).
// A communicator of ours takes any memory from any rank, and no rank knows what the others pass: a user
// who knows that all ranks' calls are alike asks for registration.
bool registration_wanted() {
    const char* text = std::getenv("TANDEM_NCCL_REGISTER");
    const std::string_view word = text == nullptr ? "" : text;
    if (!word.empty() && word != "0" && word != "1")
        throw ConfigError("environment", "TANDEM_NCCL_REGISTER",
                          fmt::format("'{}' is not 0 or 1: whether NCCL registers memory", word));
    return word == "1";
}

// Shared by all groups of a rank.
struct World {
    World(std::shared_ptr<Communicator> host, Device device_in, const Api& api_in)
        : api(api_in),
          device(device_in),
          watch(std::move(host)),
          arenas(device_in),
          setup(Stream::make(device_in, "nccl")) {}
    const Api& api;
    const Device device;
    const bool registers = registration_wanted();
    Watch watch;
    ipc::ArenaPool arenas;  // plain device memory in large blocks, which NCCL can register
    Stream setup;           // makes the device current where NCCL asks for it

    // Each group's memory in the arenas, for trim_memory().
    struct Held {
        std::weak_ptr<Handle> handle;
        std::weak_ptr<Buffer> scratch;
    };
    std::mutex mutex;
    std::vector<Held> groups;

    void add(const std::shared_ptr<Handle>& handle, const std::shared_ptr<Buffer>& scratch) {
        watch.add(handle);
        const std::lock_guard lock(mutex);
        groups.push_back({handle, scratch});
    }
    void release_arenas() {
        const std::lock_guard lock(mutex);
        for (const Held& group : groups) {
            if (const auto handle = group.handle.lock()) handle->deregister_all();
            if (const auto scratch = group.scratch.lock()) *scratch = Buffer();
        }
    }
};

class NcclCommunicator final : public Communicator {
  public:
    NcclCommunicator(std::shared_ptr<World> world, std::shared_ptr<Communicator> host)
        : world_(std::move(world)), host_(std::move(host)) {
        UniqueId id{};
        if (host_->rank() == 0) {
            const Result result = world_->api.get_unique_id(&id);
            if (result != Result::success) {
                host_->abort("NCCL gave no unique id");
                Handle::fail(world_->api, result, "unique id of '" + name() + "'", "");
            }
        }
        host_->broadcast({reinterpret_cast<std::byte*>(id.bytes), sizeof(id.bytes)}, 0);
        world_->api.native_stream(world_->setup);
        try {
            handle_ = std::make_shared<Handle>(world_->api, id, rank(), size(), name(), deadline());
        } catch (const std::exception& error) {
            host_->abort(error.what());
            throw;
        }
        world_->add(handle_, scratch_);
    }
    ~NcclCommunicator() override {
        if (host_->aborted()) handle_->abort();  // an orderly end would wait for the others
    }
    NcclCommunicator(const NcclCommunicator&) = delete;
    NcclCommunicator& operator=(const NcclCommunicator&) = delete;

    int rank() const override { return host_->rank(); }
    int size() const override { return host_->size(); }
    const std::vector<int>& global_ranks() const override { return host_->global_ranks(); }
    const std::string& name() const override { return host_->name(); }

    using Communicator::all_gather;
    using Communicator::all_reduce;
    using Communicator::barrier;
    using Communicator::broadcast;

    Work all_gather(std::span<const GatherItem> items, Stream& stream) override {
        if (on_host(stream)) return host_->all_gather(items, stream);
        check_all_gather(*this, items);
        for (const auto& item : items) offer(item.send, item.recv);
        return launch("all_gather", stream, [&](const Api& api, Comm comm, NativeStream native) {
            for (const auto& item : items) {
                if (item.send.bytes == 0) continue;
                const Result result = api.all_gather(item.send.data, item.recv.data, item.send.bytes,
                                                     Type::uint8, comm, native);
                if (failed(result)) return result;
            }
            return Result::success;
        });
    }

    Work reduce_scatter(std::span<const ReduceScatterItem> items, ReduceOp op, Stream& stream) override {
        if (on_host(stream)) return host_->reduce_scatter(items, op, stream);
        check_reduce_scatter(*this, items);
        // NCCL does not add to what is there: such items come into memory of ours first.
        std::vector<Span> into;
        std::size_t extra = 0;
        for (const auto& item : items) extra += item.accumulate ? (item.recv.bytes + 255) / 256 * 256 : 0;
        const Span room = scratch(extra, stream);
        extra = 0;
        for (const auto& item : items) {
            offer(item.send, item.recv);
            into.push_back(item.accumulate ? room.subspan(extra, item.recv.bytes) : item.recv);
            extra += item.accumulate ? (item.recv.bytes + 255) / 256 * 256 : 0;
        }
        const auto add = [&] {
            for (std::size_t i = 0; i < items.size(); ++i) {
                if (!items[i].accumulate) continue;
                const std::byte* const sources[] = {items[i].recv.data, into[i].data};
                reduce_on_gpu(stream, sources, items[i].recv.data, items[i].recv.bytes, items[i].dtype,
                              ReduceOp::sum);
            }
        };
        return launch(
            "reduce_scatter", stream,
            [&](const Api& api, Comm comm, NativeStream native) {
                for (std::size_t i = 0; i < items.size(); ++i) {
                    const std::size_t count = items[i].recv.bytes / dtype_size(items[i].dtype);
                    if (count == 0) continue;
                    const Result result =
                        api.reduce_scatter(items[i].send.data, into[i].data, count, type_of(items[i].dtype),
                                           op_of(op), comm, native);
                    if (failed(result)) return result;
                }
                return Result::success;
            },
            add);
    }

    Work all_reduce(Span inout, DType dtype, ReduceOp op, Stream& stream) override {
        if (on_host(stream)) return host_->all_reduce(inout, dtype, op, stream);
        check_all_reduce(*this, inout, dtype, op);
        offer(inout, inout);
        return launch("all_reduce", stream, [&](const Api& api, Comm comm, NativeStream native) {
            if (inout.bytes == 0) return Result::success;
            return api.all_reduce(inout.data, inout.data, inout.bytes / dtype_size(dtype), type_of(dtype),
                                  op_of(op), comm, native);
        });
    }

    Work broadcast(Span memory, int root, Stream& stream) override {
        if (on_host(stream)) return host_->broadcast(memory, root, stream);
        check_broadcast(*this, root);
        offer(memory, memory);
        return launch("broadcast", stream, [&](const Api& api, Comm comm, NativeStream native) {
            if (memory.bytes == 0) return Result::success;
            return api.broadcast(memory.data, memory.data, memory.bytes, Type::uint8, root, comm, native);
        });
    }

    Work all_to_all(const AllToAllItem& item, Stream& stream) override {
        if (on_host(stream)) return host_->all_to_all(item, stream);
        check_all_to_all(*this, item);
        std::vector<P2POp> ops;
        std::size_t sent = 0;
        std::size_t received = 0;
        for (int peer = 0; peer < size(); ++peer) {
            const auto p = static_cast<std::size_t>(peer);
            ops.push_back({P2POp::Kind::send,
                           peer,
                           {const_cast<std::byte*>(item.send.data) + sent, item.send_bytes[p]}});
            ops.push_back({P2POp::Kind::recv, peer, item.recv.subspan(received, item.recv_bytes[p])});
            sent += item.send_bytes[p];
            received += item.recv_bytes[p];
        }
        offer(item.send, item.recv);
        return exchange("all_to_all", ops, stream);
    }

    Work p2p(std::span<const P2POp> ops, Stream& stream) override {
        if (on_host(stream)) return host_->p2p(ops, stream);
        check_p2p(*this, ops);
        for (const P2POp& op : ops) offer(op.memory, op.memory);
        return exchange("p2p", ops, stream);
    }

    // NCCL has none: a sum of one element.
    Work barrier(Stream& stream) override {
        if (on_host(stream)) return host_->barrier(stream);
        const Span element = scratch(256, stream).subspan(0, sizeof(std::int64_t));
        fill_zero(stream, element);
        return launch("barrier", stream, [&](const Api& api, Comm comm, NativeStream native) {
            return api.all_reduce(element.data, element.data, 1, Type::int64, Op::sum, comm, native);
        });
    }

    std::shared_ptr<Communicator> split(const std::vector<int>& ranks, const std::string& group) override {
        return std::make_shared<NcclCommunicator>(world_, host_->split(ranks, group));
    }
    MemoryPool& memory() override { return host_->memory(); }
    MemoryPool& memory(Device device) override {
        if (device.type == DeviceType::cpu) return host_->memory(device);
        require(device == world_->device, "'{}' works on {}, not on {}", name(), to_string(world_->device),
                to_string(device));
        return world_->arenas;
    }
    // Peers on this host may have mapped what was registered: all ranks end that before one frees.
    std::size_t trim_memory(Device device) override {
        if (device != world_->device) return 0;
        if (last_.poll() == Poll::pending) last_.wait(deadline());
        trim_device_pool(device);  // waits for what runs there
        world_->api.native_stream(world_->setup);
        world_->release_arenas();
        host_->barrier();
        const std::size_t bytes =
            world_->arenas.trim();  // waits for the GPU, so no rank launches until all have
        host_->barrier();
        return bytes;
    }
    SharedMemory shared_memory() const override { return host_->shared_memory(); }
    void set_timeout(std::chrono::milliseconds timeout) override { host_->set_timeout(timeout); }
    std::chrono::milliseconds timeout() const override { return host_->timeout(); }
    void abort(const std::string& reason) noexcept override { world_->watch.abort(reason); }
    std::optional<AbortNote> aborted() const override { return host_->aborted(); }

  private:
    using Calls = std::function<Result(const Api&, Comm, NativeStream)>;

    static bool on_host(const Stream& stream) { return stream.device().type == DeviceType::cpu; }
    Deadline deadline() const { return Deadline::after(host_->timeout()); }

    // Blocks of memory(device) are registered whole when first seen, where that is wanted.
    void offer(ConstSpan send, ConstSpan recv) {
        if (!world_->registers) return;
        for (const ConstSpan span : {send, recv}) handle_->register_memory(world_->arenas.arena_of(span));
    }

    // Memory for this communicator's calls, which follow each other.
    Span scratch(std::size_t bytes, Stream& stream) {
        if (scratch_->bytes() < bytes) {
            if (last_.poll() == Poll::pending) last_.wait(deadline());
            stream.synchronize();
            *scratch_ = Buffer();
            *scratch_ = Buffer(bytes, "comm_staging", world_->arenas);
        }
        return scratch_->span();
    }

    Work exchange(const char* what, std::span<const P2POp> ops, Stream& stream) {
        return launch(what, stream, [&](const Api& api, Comm comm, NativeStream native) {
            for (const P2POp& op : ops) {
                if (op.memory.bytes == 0) continue;
                const Result result =
                    op.kind == P2POp::Kind::send
                        ? api.send(op.memory.data, op.memory.bytes, Type::uint8, op.peer, comm, native)
                        : api.recv(op.memory.data, op.memory.bytes, Type::uint8, op.peer, comm, native);
                if (failed(result)) return result;
            }
            return Result::success;
        });
    }

    // One launch of all calls; `then` follows on the stream. A failure here is known to this rank alone, so
    // it ends the job.
    Work launch(const char* what, Stream& stream, const Calls& calls,
                const std::function<void()>& then = {}) {
        require(stream.device() == world_->device, "group '{}' works on {}, and is called on a stream of {}",
                name(), to_string(world_->device), to_string(stream.device()));
        const std::string phase = fmt::format("{} on '{}'", what, name());
        world_->watch.throw_if_aborted(phase);
        const Deadline by = deadline();
        if (last_.poll() == Poll::pending) stream.wait(last_);
        try {
            Watch::Launching order(world_->watch, stream);
            const NativeStream native = world_->api.native_stream(stream);
            handle_->launch(phase, by, [&](const Api& api, Comm comm) { return calls(api, comm, native); });
            if (then) then();
            last_ = stream.record();
            order.launched(last_);
        } catch (const std::exception& error) {
            world_->watch.throw_if_aborted(phase);  // with another rank's reason, if there is one
            world_->watch.abort(error.what());
            throw;
        }
        world_->watch.expect(handle_, last_, phase, by);
        return Work(last_, [world = world_, handle = handle_, phase] {
            if (handle->aborted()) world->watch.throw_if_aborted(phase);
        });
    }

    std::shared_ptr<World> world_;
    std::shared_ptr<Communicator> host_;
    std::shared_ptr<Handle> handle_;
    std::shared_ptr<Buffer> scratch_ = std::make_shared<Buffer>();
    Event last_;
};

}  // namespace

std::shared_ptr<Communicator> make_world(std::shared_ptr<Communicator> host, Device device, const Api& api) {
    require(device.type == DeviceType::cuda, "NCCL moves memory of GPUs, not of {}", to_string(device));
    return std::make_shared<NcclCommunicator>(std::make_shared<World>(host, device, api), host);
}

}  // namespace tandem::comm::nccl
