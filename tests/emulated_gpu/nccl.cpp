// Rank r of a communicator listens at an abstract address made of the id and r, and connects to the ranks
// below it: one connection a pair. A message is its length and its bytes; both sides know the order.
#include "tests/emulated_gpu/nccl.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/emulated_gpu/emulated.h"

namespace tandem::comm::nccl {
namespace {

constexpr int kLookMs = 5;  // at the abort flag

// What outlives the communicator on streams that are not past it yet.
struct Mesh {
    ~Mesh() {
        for (const auto& [peer, fd] : sockets) ::close(fd);
        if (listener >= 0) ::close(listener);
    }
    int listener = -1;
    std::map<int, int> sockets;  // peer -> connection
    std::atomic<bool> aborted{false};
    std::atomic<bool> joined{false};
};

}  // namespace
}  // namespace tandem::comm::nccl

struct ncclComm {
    int rank = 0;
    int size = 0;
    std::string id;
    std::shared_ptr<tandem::comm::nccl::Mesh> mesh = std::make_shared<tandem::comm::nccl::Mesh>();
    std::thread joining;
};

namespace tandem::comm::nccl {
namespace {

sockaddr_un address_of(const std::string& id, int rank, socklen_t& length) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const int used =
        std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "%s.%d", id.c_str(), rank);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(used));
    return address;
}

// Moves all of it; false when the communicator was aborted or the peer is gone.
bool transfer(Mesh& mesh, int fd, std::byte* data, std::size_t bytes, bool sending) {
    while (bytes > 0) {
        if (mesh.aborted) return false;
        const ssize_t n = sending ? ::send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                                  : ::recv(fd, data, bytes, MSG_DONTWAIT);
        if (n > 0) {
            data += n;
            bytes -= static_cast<std::size_t>(n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return false;
        } else {
            pollfd one{fd, static_cast<short>(sending ? POLLOUT : POLLIN), 0};
            ::poll(&one, 1, kLookMs);
        }
    }
    return true;
}

// As over NVLink, a lost peer is not noticed: who waits for it waits until an abort.
void wait_for_abort(const Mesh& mesh) {
    while (!mesh.aborted) std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
}

void exchange(Mesh& mesh, int peer, std::byte* data, std::size_t bytes, bool sending) {
    if (!transfer(mesh, mesh.sockets.at(peer), data, bytes, sending)) wait_for_abort(mesh);
}

int connect_to(const ncclComm& comm, int peer) {
    socklen_t length = 0;
    const sockaddr_un address = address_of(comm.id, peer, length);
    while (!comm.mesh->aborted) {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
            ::send(fd, &comm.rank, sizeof(comm.rank), MSG_NOSIGNAL) == sizeof(comm.rank))
            return fd;
        ::close(fd);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return -1;
}

void join(ncclComm& comm) {
    Mesh& mesh = *comm.mesh;
    for (int peer = 0; peer < comm.rank; ++peer) {
        const int fd = connect_to(comm, peer);
        if (fd < 0) return;
        mesh.sockets[peer] = fd;
    }
    while (static_cast<int>(mesh.sockets.size()) < comm.size - 1) {
        if (mesh.aborted) return;
        pollfd one{mesh.listener, POLLIN, 0};
        if (::poll(&one, 1, kLookMs) <= 0) continue;
        const int fd = ::accept4(mesh.listener, nullptr, nullptr, SOCK_CLOEXEC);
        int peer = -1;
        if (fd < 0) continue;
        if (::recv(fd, &peer, sizeof(peer), MSG_WAITALL) == sizeof(peer) && peer > comm.rank &&
            peer < comm.size) {
            mesh.sockets[peer] = fd;
        } else {
            ::close(fd);
        }
    }
    mesh.joined = true;
}

Result init(Comm* comm, int size, UniqueId id, int rank, Config*) {
    auto made = std::make_unique<ncclComm>();
    made->rank = rank;
    made->size = size;
    made->id = std::string(id.bytes, ::strnlen(id.bytes, 80));
    made->mesh->listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = 0;
    const sockaddr_un address = address_of(made->id, rank, length);
    if (::bind(made->mesh->listener, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(made->mesh->listener, size) != 0)
        return Result::system_error;
    made->joining = std::thread([pointer = made.get()] { join(*pointer); });
    *comm = made.release();
    return Result::in_progress;
}

Result unique_id(UniqueId* id) {
    std::random_device random;
    std::memset(id->bytes, 0, sizeof(id->bytes));
    std::snprintf(id->bytes, sizeof(id->bytes), "tandem-nccl-%d-%08x%08x", ::getpid(), random(), random());
    return Result::success;
}

Result end(Comm comm) {
    comm->mesh->aborted = true;
    comm->joining.join();
    delete comm;
    return Result::success;
}

Result async_error(Comm comm, Result* state) {
    *state = comm->mesh->joined ? Result::success : Result::in_progress;
    return Result::success;
}

struct Call {
    std::shared_ptr<Mesh> mesh;
    Stream* stream;
    int peer;
    std::byte* data;
    std::size_t bytes;
    bool sending;
};
thread_local std::vector<Call> t_calls;
thread_local int t_depth = 0;

// A launch's calls on one connection follow each other; connections go on side by side, so that no order of
// sends and receives holds up another.
void run(const std::vector<Call>& calls) {
    std::map<std::pair<int, bool>, std::vector<const Call*>> lanes;
    for (const Call& call : calls) lanes[{call.peer, call.sending}].push_back(&call);
    std::vector<std::thread> threads;
    for (const auto& [key, lane] : lanes) {
        threads.emplace_back([&lane] {
            for (const Call* call : lane)
                exchange(*call->mesh, call->peer, emulated::host_alias(call->data), call->bytes,
                         call->sending);
        });
    }
    for (std::thread& thread : threads) thread.join();
}

Result group_end() {
    if (--t_depth > 0 || t_calls.empty()) return Result::success;
    Stream& stream = *t_calls.front().stream;
    emulated::launch(stream, [calls = std::move(t_calls)] { run(calls); });
    t_calls = {};
    return Result::success;
}

Result add(Comm comm, NativeStream stream, int peer, const void* data, std::size_t bytes, bool sending) {
    if (peer < 0 || peer >= comm->size || peer == comm->rank) return Result::invalid_argument;
    auto* memory = static_cast<std::byte*>(const_cast<void*>(data));
    t_calls.push_back({comm->mesh, static_cast<Stream*>(stream), peer, memory, bytes, sending});
    if (t_depth > 0) return Result::success;
    ++t_depth;  // outside of a group a call is a launch of its own
    return group_end();
}

Result broadcast(const void* send, void* recv, std::size_t bytes, Type type, int root, Comm comm,
                 NativeStream stream) {
    if (type != Type::uint8 || send != recv) return Result::invalid_usage;
    if (comm->rank != root) return add(comm, stream, root, recv, bytes, false);
    Result result = Result::success;
    for (int peer = 0; peer < comm->size && result == Result::success; ++peer) {
        if (peer != root) result = add(comm, stream, peer, send, bytes, true);
    }
    return result;
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
    api.get_last_error = [](Comm) { return "it has broadcast in place, send and recv, of bytes"; };
    api.group_start = [] {
        if (t_depth++ == 0) t_calls.clear();
        return Result::success;
    };
    api.group_end = group_end;
    api.all_gather = [](const void*, void*, std::size_t, Type, Comm, NativeStream) {
        return Result::invalid_usage;
    };
    api.reduce_scatter = [](const void*, void*, std::size_t, Type, Op, Comm, NativeStream) {
        return Result::invalid_usage;
    };
    api.all_reduce = [](const void*, void*, std::size_t, Type, Op, Comm, NativeStream) {
        return Result::invalid_usage;
    };
    api.broadcast = broadcast;
    api.send = [](const void* data, std::size_t bytes, Type type, int peer, Comm comm, NativeStream stream) {
        return type == Type::uint8 ? add(comm, stream, peer, data, bytes, true) : Result::invalid_usage;
    };
    api.recv = [](void* data, std::size_t bytes, Type type, int peer, Comm comm, NativeStream stream) {
        return type == Type::uint8 ? add(comm, stream, peer, data, bytes, false) : Result::invalid_usage;
    };
    api.native_stream = [](Stream& stream) -> NativeStream { return &stream; };
    return api;
}

[[maybe_unused]] const bool kRegistered = (register_api(emulated_api), true);

}  // namespace

const Api& emulated_api() {
    static const Api api = make();
    return api;
}

}  // namespace tandem::comm::nccl
