#include "tests/unit/common/comm/fake_nccl.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "common/comm/reduce.h"
#include "tests/emulated_gpu/emulated.h"
#include "tests/emulated_gpu/nccl.h"

namespace tandem::comm::nccl::fake {
namespace {

struct State {
    std::mutex mutex;
    Behaviour behaviour;
    std::vector<std::string> log;
    int alive = 0;
};

State& state() {
    static State instance;
    return instance;
}

void note(const std::string& entry) {
    const std::lock_guard lock(state().mutex);
    state().log.push_back(entry);
}

Behaviour behaviour() {
    const std::lock_guard lock(state().mutex);
    return state().behaviour;
}

struct FakeComm final : ncclComm {
    int collectives = 0;
    std::atomic<int> polls{0};
    std::atomic<int> looks{0};  // since the last launch
    std::atomic<long> sleeps_before{0};
};

// How often this thread gave its core away.
long sleeps() {
    rusage used{};
    ::getrusage(RUSAGE_THREAD, &used);
    return used.ru_nvcsw;
}

FakeComm& fake_of(Comm comm) {
    return static_cast<FakeComm&>(*comm);
}

std::byte* alias(const void* memory) {
    return emulated::host_alias(static_cast<std::byte*>(const_cast<void*>(memory)));
}

// A collective: each rank shows `bytes` of its memory to every other; when all have, `work` runs with them by
// rank.
Result meet(Comm comm, NativeStream stream, const void* send, const std::vector<std::size_t>& bytes,
            const std::function<void(const std::vector<const std::byte*>&)>& work) {
    const int number = ++fake_of(comm).collectives;
    const auto own = static_cast<std::size_t>(comm->rank);
    const auto shown = std::make_shared<std::vector<std::vector<std::byte>>>(bytes.size());
    stand_in::Call call{comm, static_cast<Stream*>(stream), {}};
    for (std::size_t peer = 0; peer < bytes.size(); ++peer) {
        if (peer == own) continue;
        std::vector<std::byte>& copy = (*shown)[peer];
        copy.resize(bytes[peer]);
        call.transfers.push_back({static_cast<int>(peer), alias(send), bytes[own], true, number});
        call.transfers.push_back({static_cast<int>(peer), copy.data(), copy.size(), false, number});
    }
    call.finish = [shown, own, mine = alias(send), work] {
        std::vector<const std::byte*> sends;
        for (const auto& copy : *shown) sends.push_back(copy.data());
        sends[own] = mine;
        work(sends);
    };
    return stand_in::add(std::move(call));
}

Result meet(Comm comm, NativeStream stream, const void* send, std::size_t bytes,
            const std::function<void(const std::vector<const std::byte*>&)>& work) {
    return meet(comm, stream, send, std::vector<std::size_t>(static_cast<std::size_t>(comm->size), bytes),
                work);
}

DType dtype_of_type(Type type) {
    return type == Type::bfloat16 ? DType::bfloat16 : type == Type::int64 ? DType::int64 : DType::float32;
}
ReduceOp op_of(Op op) {
    return op == Op::avg   ? ReduceOp::avg
           : op == Op::max ? ReduceOp::max
           : op == Op::min ? ReduceOp::min
                           : ReduceOp::sum;
}

Result init(Comm* comm, int size, UniqueId id, int rank, Config* config) {
    note(config->blocking == 0 ? "init" : "blocking init");
    const Result result = behaviour().init;
    *comm = nullptr;
    if (failed(result)) return result;
    auto made = std::make_unique<FakeComm>();
    made->rank = rank;
    made->size = size;
    made->carrier = stand_in::over_threads(stand_in::text_of(id), rank, size);
    const std::lock_guard lock(state().mutex);
    ++state().alive;
    *comm = made.release();
    return result;
}

// As NCCL's init, ready only when all ranks have come.
Result get_async_error(Comm comm, Result* answer) {
    const Behaviour now = behaviour();
    FakeComm& fake = fake_of(comm);
    *answer = now.asynchronous;
    if (now.looks_at_launch > 0) {
        const long before = fake.sleeps_before.exchange(sleeps());
        note(fake.looks++ > 0 && before != sleeps() ? "look after a sleep" : "look");
        if (fake.looks <= now.looks_at_launch) *answer = Result::in_progress;
        return Result::success;
    }
    if (now.asynchronous != Result::success) return Result::success;
    if (now.never_ready || !comm->carrier->joined() ||
        fake.polls++ % (now.polls_in_progress + 1) < now.polls_in_progress)
        *answer = Result::in_progress;
    return Result::success;
}

Result end_comm(Comm comm, const char* how) {
    note(how);
    const std::lock_guard lock(state().mutex);
    --state().alive;
    delete comm;
    return Result::success;
}

Result abort_comm(Comm comm) {
    comm->carrier->abort();
    return end_comm(comm, "abort");
}

Result group_end() {
    note("group " + std::to_string(stand_in::pending().size()));
    if (stand_in::pending().empty()) return stand_in::api().group_end();
    for (const stand_in::Call& call : stand_in::pending()) fake_of(call.comm).looks = 0;
    const Result result = stand_in::api().group_end();
    return result == Result::success ? Result::in_progress : result;
}

Api make_api() {
    Api api = stand_in::api();
    api.comm_init_rank_config = init;
    api.comm_finalize = [](Comm) {
        note("finalize");
        return Result::in_progress;
    };
    api.comm_destroy = [](Comm comm) { return end_comm(comm, "destroy"); };
    api.comm_abort = abort_comm;
    api.comm_get_async_error = get_async_error;
    api.comm_register = [](Comm, void* memory, std::size_t bytes, void** handle) {
        note("register " + std::to_string(bytes));
        *handle = memory;
        return behaviour().registration;
    };
    api.comm_deregister = [](Comm, void*) {
        note("deregister");
        return Result::success;
    };
    api.get_error_string = [](Result result) {
        return result == Result::remote_error ? "remote process exited" : "unhandled thing";
    };
    api.get_last_error = [](Comm) { return "the last error's words"; };
    api.group_end = group_end;
    api.all_gather = [](const void* send, void* recv, std::size_t bytes, Type, Comm comm,
                        NativeStream stream) {
        const Result result = behaviour().all_gather;
        if (failed(result)) return result;
        return meet(comm, stream, send, bytes, [to = alias(recv), bytes](const auto& sends) {
            for (std::size_t r = 0; r < sends.size(); ++r) {
                if (to + r * bytes != sends[r]) std::memcpy(to + r * bytes, sends[r], bytes);
            }
        });
    };
    api.reduce_scatter = [](const void* send, void* recv, std::size_t count, Type type, Op op, Comm comm,
                            NativeStream stream) {
        const DType dtype = dtype_of_type(type);
        const std::size_t bytes = count * dtype_size(dtype);
        const auto rank = static_cast<std::size_t>(comm->rank);
        const std::size_t whole = bytes * static_cast<std::size_t>(comm->size);
        return meet(comm, stream, send, whole, [=, to = alias(recv)](const auto& sends) {
            auto pieces = sends;
            for (auto& piece : pieces) piece += rank * bytes;
            reduce(pieces, to, bytes, dtype, op_of(op));
        });
    };
    // Often in place: what is reduced is copied after.
    api.all_reduce = [](const void* send, void* recv, std::size_t count, Type type, Op op, Comm comm,
                        NativeStream stream) {
        const DType dtype = dtype_of_type(type);
        const std::size_t bytes = count * dtype_size(dtype);
        return meet(comm, stream, send, bytes, [=, to = alias(recv)](const auto& sends) {
            std::vector<std::byte> result(bytes);
            reduce(sends, result.data(), bytes, dtype, op_of(op));
            std::memcpy(to, result.data(), bytes);
        });
    };
    api.broadcast = [](const void* send, void* recv, std::size_t bytes, Type, int root, Comm comm,
                       NativeStream stream) {
        note("broadcast");
        const auto from = static_cast<std::size_t>(root);
        std::vector<std::size_t> shown(static_cast<std::size_t>(comm->size));
        shown[from] = bytes;
        return meet(comm, stream, send, shown, [=, to = alias(recv)](const auto& sends) {
            if (to != sends[from]) std::memcpy(to, sends[from], bytes);
        });
    };
    api.send = [](const void* from, std::size_t bytes, Type type, int peer, Comm comm, NativeStream stream) {
        note("send");
        return stand_in::api().send(from, bytes, type, peer, comm, stream);
    };
    return api;
}

}  // namespace

void set(const Behaviour& now) {
    const std::lock_guard lock(state().mutex);
    state().behaviour = now;
}

void reset(const Behaviour& now) {
    const std::lock_guard lock(state().mutex);
    state().behaviour = now;
    state().log.clear();
}

const Api& api() {
    static const Api instance = make_api();
    return instance;
}

std::vector<std::string> log() {
    const std::lock_guard lock(state().mutex);
    return state().log;
}

int count(const std::string& entry) {
    const auto entries = log();
    return static_cast<int>(std::count(entries.begin(), entries.end(), entry));
}

int alive() {
    const std::lock_guard lock(state().mutex);
    return state().alive;
}

}  // namespace tandem::comm::nccl::fake
