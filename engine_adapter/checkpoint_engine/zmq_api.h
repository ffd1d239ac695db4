// The functions of libzmq that we call, as a table that is filled from libzmq.so.5 when it is first needed, so that no
// program depends on it at its start. Types and numbers are those of zmq.h 4.3.4, which its ABI (5) keeps.
#pragma once

#include <cstddef>
#include <string>

namespace tandem::engine::zmq {

inline constexpr int kReq = 3, kRep = 4;                                 // kinds of sockets
inline constexpr int kRcvMore = 13, kLinger = 17, kMaxMessageSize = 22;  // options: int, int (ms), int64
inline constexpr int kDontWait = 1;
inline constexpr short kPollIn = 1, kPollOut = 2;

struct PollItem {
    void* socket = nullptr;
    int fd = 0;
    short events = 0;
    short happened = 0;
};

struct Api {
    void* (*ctx_new)() = nullptr;
    int (*ctx_term)(void* context) = nullptr;
    void* (*socket)(void* context, int kind) = nullptr;
    int (*close)(void* socket) = nullptr;
    int (*bind)(void* socket, const char* address) = nullptr;
    int (*connect)(void* socket, const char* address) = nullptr;
    int (*setsockopt)(void* socket, int option, const void* value, std::size_t bytes) = nullptr;
    int (*getsockopt)(void* socket, int option, void* value, std::size_t* bytes) = nullptr;
    int (*send)(void* socket, const void* bytes, std::size_t count, int flags) = nullptr;
    int (*recv)(void* socket, void* bytes, std::size_t room,
                int flags) = nullptr;  // returns all of the message's bytes
    int (*poll)(PollItem* items, int count, long timeout_ms) = nullptr;
    int (*error)() = nullptr;  // errno, or one of libzmq's own
    const char* (*strerror)(int error) = nullptr;
};

// From libzmq.so.5, or the file that TANDEM_ZMQ names. Throws Error: not found, says what to install.
const Api& loaded();
Api load(const std::string& file);  // throws the same

}  // namespace tandem::engine::zmq
