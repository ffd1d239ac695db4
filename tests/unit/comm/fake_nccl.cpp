#include "tests/unit/comm/fake_nccl.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "common/comm/reduce.h"
#include "tests/emulated_gpu/emulated.h"

namespace tandem::comm::nccl::fake {
namespace {

struct Message {
    const std::byte* from;
    std::size_t bytes;
    bool taken = false;
};

// The ranks that have one id. A collective is met by its number in the order of the calls.
struct Group {
    struct Meeting {
        std::vector<const std::byte*> sends;
        int came = 0;
        int left = 0;
    };
    explicit Group(int size_in) : size(size_in) {}
    const int size;
    std::mutex mutex;
    std::condition_variable changed;
    int joined = 0;
    std::map<int, Meeting> meetings;
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> mail;
};

struct State {
    std::mutex mutex;
    Behaviour behaviour;
    std::vector<std::string> log;
    std::map<std::string, std::shared_ptr<Group>> groups;
    int next_id = 0;
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

}  // namespace
}  // namespace tandem::comm::nccl::fake

struct ncclComm {
    std::shared_ptr<tandem::comm::nccl::fake::Group> group;
    int rank = 0;
    int calls = 0;
    std::atomic<int> polls{0};
    std::atomic<std::chrono::steady_clock::time_point> launched{};
    std::shared_ptr<std::atomic<bool>> aborted = std::make_shared<std::atomic<bool>>(false);
};

namespace tandem::comm::nccl::fake {
namespace {

// What one call does on its stream. Waits for peers end with the abort.
struct Call {
    Comm comm;
    Stream* stream;
    std::function<void()> begin;  // of all calls of the launch, before any ends
    std::function<void()> end;
    std::function<void()> leave;  // of all calls of the launch, when all have ended
};

thread_local std::vector<Call> t_calls;

template <typename Ready>
bool wait(Group& group, const std::atomic<bool>& aborted, const Ready& ready) {
    std::unique_lock lock(group.mutex);
    while (!ready() && !aborted) group.changed.wait_for(lock, std::chrono::milliseconds(5));
    return !aborted;
}

Result add(Comm comm, NativeStream stream, std::function<void()> begin, std::function<void()> end) {
    t_calls.push_back({comm, static_cast<Stream*>(stream), std::move(begin), std::move(end), [] {}});
    return Result::success;
}

// A collective: everybody shows its send; when all have, `work` runs with them; nobody goes on before all are
// done.
Result meet(Comm comm, NativeStream stream, const void* send,
            const std::function<void(const std::vector<const std::byte*>&)>& work) {
    const int number = comm->calls++;
    const auto group = comm->group;
    const auto aborted = comm->aborted;
    const auto* bytes = emulated::host_alias(static_cast<const std::byte*>(send));
    const auto begin = [=, rank = static_cast<std::size_t>(comm->rank)] {
        const std::lock_guard lock(group->mutex);
        auto& meeting = group->meetings[number];
        meeting.sends.resize(static_cast<std::size_t>(group->size));
        meeting.sends[rank] = bytes;
        ++meeting.came;
        group->changed.notify_all();
    };
    const auto end = [=] {
        auto& meeting = [&]() -> Group::Meeting& {
            const std::lock_guard lock(group->mutex);
            return group->meetings[number];
        }();
        if (!wait(*group, *aborted, [&] { return meeting.came == group->size; })) return;
        work(meeting.sends);
        {
            const std::lock_guard lock(group->mutex);
            ++meeting.left;
            group->changed.notify_all();
        }
        wait(*group, *aborted, [&] { return meeting.left == group->size; });
    };
    return add(comm, stream, begin, end);
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
std::byte* alias(void* memory) {
    return emulated::host_alias(static_cast<std::byte*>(memory));
}

Result get_unique_id(UniqueId* id) {
    const std::lock_guard lock(state().mutex);
    std::memset(id->bytes, 0, sizeof(id->bytes));
    std::snprintf(id->bytes, sizeof(id->bytes), "fake %d", state().next_id++);
    return Result::success;
}

Result init(Comm* comm, int size, UniqueId id, int rank, Config* config) {
    note(config->blocking == 0 ? "init" : "blocking init");
    const Result result = behaviour().init;
    *comm = nullptr;
    if (result != Result::success && result != Result::in_progress) return result;
    auto made = std::make_unique<ncclComm>();
    made->rank = rank;
    const std::lock_guard lock(state().mutex);
    auto& group = state().groups[id.bytes];
    if (!group) group = std::make_shared<Group>(size);
    made->group = group;
    {
        const std::lock_guard in_group(group->mutex);
        ++group->joined;
    }
    ++state().alive;
    *comm = made.release();
    return result;
}

// As NCCL's init, ready only when all ranks have come.
Result get_async_error(Comm comm, Result* answer) {
    const Behaviour now = behaviour();
    bool all_joined = true;
    {
        const std::lock_guard lock(comm->group->mutex);
        all_joined = comm->group->joined == comm->group->size;
    }
    *answer = now.asynchronous;
    if (now.launch_takes.count() > 0) {
        note("look");
        if (std::chrono::steady_clock::now() - comm->launched.load() < now.launch_takes)
            *answer = Result::in_progress;
        return Result::success;
    }
    if (now.asynchronous != Result::success) return Result::success;
    if (now.never_ready || !all_joined || comm->polls++ % (now.polls_in_progress + 1) < now.polls_in_progress)
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
    *comm->aborted = true;
    comm->group->changed.notify_all();
    return end_comm(comm, "abort");
}

Result group_end() {
    note("group " + std::to_string(t_calls.size()));
    if (t_calls.empty()) return Result::success;
    Stream& stream = *t_calls.front().stream;
    for (const Call& call : t_calls) call.comm->launched = std::chrono::steady_clock::now();
    emulated::launch(stream, [calls = std::move(t_calls)] {
        for (const Call& call : calls) call.begin();
        for (const Call& call : calls) call.end();
        for (const Call& call : calls) call.leave();
    });
    t_calls.clear();
    return Result::in_progress;
}

Api make_api() {
    Api api;
    api.get_version = [](int* version) {
        *version = 22809;
        return Result::success;
    };
    api.get_unique_id = get_unique_id;
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
    api.group_start = [] {
        t_calls.clear();
        return Result::success;
    };
    api.group_end = group_end;
    api.all_gather = [](const void* send, void* recv, std::size_t bytes, Type, Comm comm,
                        NativeStream stream) {
        const Result result = behaviour().all_gather;
        if (result != Result::success && result != Result::in_progress) return result;
        return meet(comm, stream, send, [to = alias(recv), bytes](const auto& sends) {
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
        return meet(comm, stream, send, [=, to = alias(recv)](const auto& sends) {
            auto pieces = sends;
            for (auto& piece : pieces) piece += rank * bytes;
            reduce(pieces, to, bytes, dtype, op_of(op));
        });
    };
    // In place: the results lie beside the inputs until all have read them.
    api.all_reduce = [](const void* send, void* recv, std::size_t count, Type type, Op op, Comm comm,
                        NativeStream stream) {
        const DType dtype = dtype_of_type(type);
        const std::size_t bytes = count * dtype_size(dtype);
        const auto result = std::make_shared<std::vector<std::byte>>(bytes);
        const Result first = meet(comm, stream, send, [=](const auto& sends) {
            reduce(sends, result->data(), bytes, dtype, op_of(op));
        });
        t_calls.back().end = [end = t_calls.back().end, result, to = alias(recv), bytes] {
            end();
            std::memcpy(to, result->data(), bytes);
        };
        return first;
    };
    api.broadcast = [](const void* send, void* recv, std::size_t bytes, Type, int root, Comm comm,
                       NativeStream stream) {
        note("broadcast");
        return meet(comm, stream, send, [=, to = alias(recv)](const auto& sends) {
            const std::byte* from = sends[static_cast<std::size_t>(root)];
            if (to != from) std::memcpy(to, from, bytes);
        });
    };
    api.send = [](const void* from, std::size_t bytes, Type, int peer, Comm comm, NativeStream stream) {
        note("send");
        const auto message = std::make_shared<Message>();
        message->from = emulated::host_alias(static_cast<const std::byte*>(from));
        message->bytes = bytes;
        const auto group = comm->group;
        const auto begin = [=, rank = comm->rank] {
            const std::lock_guard lock(group->mutex);
            group->mail[{rank, peer}].push_back(message);
            group->changed.notify_all();
        };
        const auto leave = [=, aborted = comm->aborted] {
            wait(*group, *aborted, [&] { return message->taken; });
        };
        t_calls.push_back({comm, static_cast<Stream*>(stream), begin, [] {}, leave});
        return Result::success;
    };
    api.recv = [](void* to, std::size_t bytes, Type, int peer, Comm comm, NativeStream stream) {
        const auto group = comm->group;
        const auto aborted = comm->aborted;
        const auto end = [=, rank = comm->rank, to = alias(to)] {
            auto& queue = [&]() -> std::deque<std::shared_ptr<Message>>& {
                const std::lock_guard lock(group->mutex);
                return group->mail[{peer, rank}];
            }();
            if (!wait(*group, *aborted, [&] { return !queue.empty(); })) return;
            const std::lock_guard lock(group->mutex);
            std::memcpy(to, queue.front()->from, bytes);
            queue.front()->taken = true;
            queue.pop_front();
            group->changed.notify_all();
        };
        return add(
            comm, stream, [] {}, end);
    };
    api.native_stream = [](Stream& stream) -> NativeStream { return &stream; };
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
    state().groups.clear();
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
