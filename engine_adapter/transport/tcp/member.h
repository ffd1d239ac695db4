// An engine rank's end of a trainer's data connections: a thread for each receives frames straight into one of a few
// slots, so that the next buckets arrive while the one before is copied into the weights. A slot takes a later bucket
// only when the one that it held was read, or given up, and no thread writes to it any more: until then the connections
// wait, and TCP tells the trainer's end.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>

#include "common/deadline.h"
#include "common/device/memory.h"
#include "common/file_descriptor.h"
#include "common/thread.h"
#include "engine_adapter/transport/tcp/handshake.h"

namespace tandem::engine {

class TcpMember {
  public:
    static constexpr std::size_t kSlots = 3;

    TcpMember() = default;
    ~TcpMember() { close(); }
    TcpMember(const TcpMember&) = delete;
    TcpMember& operator=(const TcpMember&) = delete;

    // Loads are counted from 0 again, over connections that are to come. Ends those before. largest: a bucket of more
    // bytes is refused.
    void open(std::uint64_t largest_bytes);
    void add(FileDescriptor socket, const std::string& peer);  // any thread
    // Ends all connections and their threads. Memory stays for the next.
    void close() noexcept;
    void free_memory();  // closed

    // Returns when bucket number `serial` of `bytes` is whole; its memory stays until release(serial). Throws
    // DeadlineExceeded, TransportError (a connection ended), ProtocolError (other bytes than announced), or what `check`
    // throws, which is called now and then; all name `phase`.
    const std::byte* receive(std::uint64_t serial, std::uint64_t bytes, const std::string& phase,
                             Deadline deadline, const std::function<void()>& check);
    // Of every bucket, in their order, whether its bytes were received or not.
    void release(std::uint64_t serial);

  private:
    struct Slot {
        Buffer memory;
        std::uint64_t serial = 0;
        std::uint64_t total = 0;
        std::uint64_t promised = 0;  // in frames whose headers came
        std::uint64_t arrived = 0;
        bool taken = false;  // by `serial`
    };
    struct Connection {
        FileDescriptor socket;
        std::string peer;
        Thread thread;
    };
    void run(Connection& connection);
    bool receive_frame(Connection& connection);  // false: the connection has ended between two frames
    std::byte* place_for(const tcp::FrameHeader& header);
    void note_failure(const std::string& why);

    std::mutex mutex_;
    std::condition_variable changed_;
    std::array<Slot, kSlots> slots_;
    std::list<Connection> connections_;
    std::uint64_t released_ = 0;  // buckets
    std::uint64_t largest_ = 0;
    bool stopping_ = false;
    std::string peer_ = "the trainer";
    std::string failure_;
};

}  // namespace tandem::engine
