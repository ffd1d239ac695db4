#include "engine_adapter/transport/tcp/member.h"

#include <sys/socket.h>

#include <cerrno>
#include <chrono>

#include "common/error.h"
#include "common/log.h"

namespace tandem::engine {
namespace {

constexpr auto kCheckEvery = std::chrono::milliseconds(20);
constexpr const char* kSlotTag = "receiver.tcp";

double mebibytes(std::uint64_t bytes) {
    return static_cast<double>(bytes) / 1048576.0;
}

// All of `bytes`, or how many there were before the end.
std::size_t receive_all(int socket, std::byte* to, std::size_t bytes) {
    std::size_t got = 0;
    while (got < bytes) {
        const ssize_t n = ::recv(socket, to + got, bytes - got, MSG_WAITALL);
        if (n == 0) break;
        if (n > 0) {
            got += static_cast<std::size_t>(n);
        } else if (errno != EINTR) {
            throw SystemError("recv", errno);
        }
    }
    return got;
}

}  // namespace

void TcpMember::open(std::uint64_t largest_bytes) {
    close();
    const std::lock_guard lock(mutex_);
    for (Slot& slot : slots_) {
        slot.promised = slot.arrived = 0;
        slot.taken = false;
    }
    released_ = 0;
    largest_ = largest_bytes;
    stopping_ = false;
    failure_.clear();
}

void TcpMember::add(FileDescriptor socket, const std::string& peer) {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    Connection& connection = connections_.emplace_back(Connection{std::move(socket), peer, {}});
    peer_ = peer.substr(0, peer.rfind(':'));  // all come from one
    try {
        connection.thread = Thread("for a data connection", [this, &connection] { run(connection); });
    } catch (...) {
        // Or the trainer would take it that there was no place, and come again.
        const std::string refused = tcp::refusal_verdict();
        ::send(connection.socket.get(), refused.data(), refused.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        connections_.pop_back();
        throw;
    }
}

void TcpMember::close() noexcept {
    std::list<Connection> ending;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        for (Connection& connection : connections_) ::shutdown(connection.socket.get(), SHUT_RDWR);
        ending.splice(ending.end(), connections_);
    }
    changed_.notify_all();
    ending.clear();  // waits for their threads
}

void TcpMember::free_memory() {
    const std::lock_guard lock(mutex_);
    for (Slot& slot : slots_) slot = {};
}

void TcpMember::note_failure(const std::string& why) {
    {
        const std::lock_guard lock(mutex_);
        if (failure_.empty() && !stopping_) failure_ = why;
    }
    changed_.notify_all();
}

void TcpMember::run(Connection& connection) {
    try {
        while (receive_frame(connection)) {
        }
        note_failure(connection.peer + " closed a data connection");
    } catch (const std::exception& error) {
        note_failure(fmt::format("data connection of {}: {}", connection.peer, error.what()));
    }
    ::shutdown(connection.socket.get(), SHUT_RDWR);  // so that the trainer hears of it too
}

bool TcpMember::receive_frame(Connection& connection) {
    const int socket = connection.socket.get();
    tcp::FrameHeader header;
    auto* const raw = reinterpret_cast<std::byte*>(&header);
    const std::size_t got = receive_all(socket, raw, sizeof(header));
    if (got == 0) return false;
    if (got < sizeof(header)) throw ProtocolError("it ends in the middle of a frame");
    std::byte* const to = place_for(header);
    if (to == nullptr) return false;  // stopping
    if (receive_all(socket, to, header.bytes) < header.bytes)
        throw ProtocolError("it ends in the middle of a frame");
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_[header.serial % kSlots];
    slot.arrived += header.bytes;
    if (slot.arrived == slot.total || !slot.taken) changed_.notify_all();
    return true;
}

// Waits for the slot. Null: stopping.
std::byte* TcpMember::place_for(const tcp::FrameHeader& header) {
    std::unique_lock lock(mutex_);
    if (header.total > largest_ || header.bytes == 0 || header.bytes > header.total ||
        header.offset > header.total - header.bytes) {
        throw ProtocolError(fmt::format("a frame of {} bytes at {} of {}, where no bucket has more than {}",
                                        header.bytes, header.offset, header.total, largest_));
    }
    Slot& slot = slots_[header.serial % kSlots];
    const auto ours = [&] { return slot.taken && slot.serial == header.serial; };
    // Another connection may still be writing into a bucket that was given up.
    const auto free = [&] { return !slot.taken && slot.arrived == slot.promised; };
    changed_.wait(lock, [&] {
        return stopping_ || header.serial < released_ ||
               (header.serial < released_ + kSlots && (ours() || free()));
    });
    if (stopping_) return nullptr;
    if (header.serial < released_)
        throw ProtocolError(fmt::format("a frame of bucket number {}, which is over", header.serial));
    if (!ours()) {
        if (slot.memory.bytes() < header.total) {
            slot.memory = {};
            slot.memory = Buffer(header.total, kSlotTag);
        }
        slot.serial = header.serial;
        slot.total = header.total;
        slot.promised = slot.arrived = 0;
        slot.taken = true;
    }
    if (slot.total != header.total) {
        throw ProtocolError(fmt::format("bucket number {} has {} bytes, and then {}", header.serial,
                                        slot.total, header.total));
    }
    // No byte is written behind the last one, when the bucket is being read.
    if (header.bytes > slot.total - slot.promised)
        throw ProtocolError(fmt::format("bucket number {} comes with more bytes than it has", header.serial));
    slot.promised += header.bytes;
    return slot.memory.data() + header.offset;
}

const std::byte* TcpMember::receive(std::uint64_t serial, std::uint64_t bytes, const std::string& phase,
                                    Deadline deadline, const std::function<void()>& check) {
    if (bytes == 0) return nullptr;
    for (;;) {
        std::string failure;
        std::uint64_t arrived = 0;
        {
            std::unique_lock lock(mutex_);
            const Slot& slot = slots_[serial % kSlots];
            const auto here = [&] { return slot.taken && slot.serial == serial; };
            const auto whole = [&] { return here() && slot.arrived == slot.total; };
            changed_.wait_for(lock, kCheckEvery, [&] { return whole() || !failure_.empty(); });
            if (here() && slot.total != bytes) {
                throw ProtocolError(
                    fmt::format("{}: {} sends {} bytes for {}", phase, peer_, slot.total, bytes));
            }
            if (whole()) return slot.memory.data();
            if (here()) arrived = slot.arrived;
            failure = failure_;
        }
        check();  // what the trainer says tells more
        if (!failure.empty()) throw TransportError(peer_, phase, failure, true);
        if (deadline.passed()) {
            throw DeadlineExceeded(peer_, phase,
                                   fmt::format("{:.1f} of {:.1f} MiB came within the deadline",
                                               mebibytes(arrived), mebibytes(bytes)),
                                   true);
        }
    }
}

void TcpMember::release(std::uint64_t serial) {
    {
        const std::lock_guard lock(mutex_);
        slots_[serial % kSlots].taken = false;
        released_ = serial + 1;
    }
    changed_.notify_all();
}

}  // namespace tandem::engine
