#include "tests/emulated_gpu/nccl.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "common/error.h"
#include "tests/emulated_gpu/emulated.h"

namespace tandem::comm::nccl::stand_in {
namespace {

thread_local std::vector<Call> t_calls;
thread_local int t_depth = 0;

std::byte* bytes_at(const void* memory) {
    return tandem::emulated::host_alias(static_cast<std::byte*>(const_cast<void*>(memory)));
}

Result unique_id(UniqueId* id) {
    std::random_device random;
    std::memset(id->bytes, 0, sizeof(id->bytes));
    std::snprintf(id->bytes, sizeof(id->bytes), "tandem-nccl-%d-%08x%08x", ::getpid(), random(), random());
    return Result::success;
}

Result init(Comm* comm, int size, UniqueId id, int rank, Config*) {
    auto made = std::make_unique<ncclComm>();
    made->rank = rank;
    made->size = size;
    try {
        made->carrier = over_sockets(text_of(id), rank, size);
    } catch (const SystemError&) {
        return Result::system_error;
    }
    *comm = made.release();
    return Result::in_progress;
}

Result end(Comm comm) {
    comm->carrier->abort();
    delete comm;
    return Result::success;
}

Result async_error(Comm comm, Result* state) {
    *state = comm->carrier->joined() ? Result::success : Result::in_progress;
    return Result::success;
}

// All calls of a launch are of one communicator.
void run(const std::vector<Call>& calls, Carrier& carrier) {
    std::vector<Transfer> all;
    for (const Call& call : calls) all.insert(all.end(), call.transfers.begin(), call.transfers.end());
    if (!carrier.move(all)) return;
    for (const Call& call : calls) {
        if (call.finish) call.finish();
    }
}

Result group_start() {
    if (t_depth++ == 0) t_calls.clear();
    return Result::success;
}

Result group_end() {
    if (--t_depth > 0 || t_calls.empty()) return Result::success;
    for (const Call& call : t_calls) {
        if (call.comm != t_calls.front().comm) return Result::invalid_usage;
    }
    const std::vector<Call> calls = std::exchange(t_calls, {});
    Stream& stream = *calls.front().stream;
    tandem::emulated::launch(stream,
                             [calls, carrier = calls.front().comm->carrier] { run(calls, *carrier); });
    return Result::success;
}

Result one(Comm comm, NativeStream stream, int peer, const void* data, std::size_t bytes, Type type,
           bool sending) {
    if (type != Type::uint8) return Result::invalid_usage;
    if (peer < 0 || peer >= comm->size) return Result::invalid_argument;
    return add({comm, static_cast<Stream*>(stream), {{peer, bytes_at(data), bytes, sending}}});
}

Result broadcast(const void* send, void* recv, std::size_t bytes, Type type, int root, Comm comm,
                 NativeStream stream) {
    if (type != Type::uint8 || send != recv) return Result::invalid_usage;
    if (comm->rank != root) return one(comm, stream, root, recv, bytes, type, false);
    Call call{comm, static_cast<Stream*>(stream), {}};
    for (int peer = 0; peer < comm->size; ++peer) {
        if (peer != root) call.transfers.push_back({peer, bytes_at(send), bytes, true});
    }
    return add(std::move(call));
}

// Of few numbers: what one sums who has just joined.
Result sum(const void* send, void* recv, std::size_t count, Type type, Op op, Comm comm,
           NativeStream stream) {
    if (type != Type::float32 || op != Op::sum) return Result::invalid_usage;
    const auto ranks = static_cast<std::size_t>(comm->size);
    const auto all = std::make_shared<std::vector<float>>(count * ranks);  // [rank, count]
    Call call{comm, static_cast<Stream*>(stream), {}};
    for (int peer = 0; peer < comm->size; ++peer) {
        auto* const theirs =
            reinterpret_cast<std::byte*>(all->data() + static_cast<std::size_t>(peer) * count);
        call.transfers.push_back({peer, bytes_at(send), count * sizeof(float), true});
        call.transfers.push_back({peer, theirs, count * sizeof(float), false});
    }
    call.finish = [=, to = reinterpret_cast<float*>(bytes_at(recv))] {
        for (std::size_t i = 0; i < count; ++i) {
            to[i] = 0;
            for (std::size_t rank = 0; rank < ranks; ++rank) to[i] += (*all)[rank * count + i];
        }
    };
    return add(std::move(call));
}

Api make() {
    Api api;
    api.get_version = [](int* version) {
        *version = 22809;
        return Result::success;
    };
    api.get_unique_id = unique_id;
    api.comm_init_rank_config = init;
    api.comm_finalize = [](Comm) { return Result::success; };
    api.comm_destroy = end;
    api.comm_abort = end;
    api.comm_get_async_error = async_error;
    api.get_error_string = [](Result) { return "the emulated NCCL refused the call"; };
    api.get_last_error = [](Comm) {
        return "it has broadcast in place, send and recv, of bytes, and sums floats";
    };
    api.group_start = group_start;
    api.group_end = group_end;
    api.all_gather = [](const void*, void*, std::size_t, Type, Comm, NativeStream) {
        return Result::invalid_usage;
    };
    api.reduce_scatter = [](const void*, void*, std::size_t, Type, Op, Comm, NativeStream) {
        return Result::invalid_usage;
    };
    api.all_reduce = sum;
    api.broadcast = broadcast;
    api.send = [](const void* data, std::size_t bytes, Type type, int peer, Comm comm, NativeStream stream) {
        return one(comm, stream, peer, data, bytes, type, true);
    };
    api.recv = [](void* data, std::size_t bytes, Type type, int peer, Comm comm, NativeStream stream) {
        return one(comm, stream, peer, data, bytes, type, false);
    };
    api.native_stream = [](Stream& stream) -> NativeStream { return &stream; };
    return api;
}

[[maybe_unused]] const bool kRegistered = (register_api(api), true);

}  // namespace

const Api& api() {
    static const Api table = make();
    return table;
}

std::string text_of(const UniqueId& id) {
    return std::string(id.bytes, ::strnlen(id.bytes, 80));
}

Result add(Call call) {
    t_calls.push_back(std::move(call));
    if (t_depth > 0) return Result::success;
    ++t_depth;
    return group_end();
}

const std::vector<Call>& pending() {
    return t_calls;
}

}  // namespace tandem::comm::nccl::stand_in
