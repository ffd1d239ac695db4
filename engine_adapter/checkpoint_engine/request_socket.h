// The asking end of ZeroMQ's request and reply, at a socket file: one message out, one back, and so on.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem::engine::zmq {

class Context {
  public:
    Context();  // throws Error: no libzmq (zmq_api.h)
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    void* get() const { return context_; }

  private:
    void* context_;
};

class RequestSocket {
  public:
    // Binds it. The context outlives it. Throws Error naming the file.
    RequestSocket(const Context& context, std::filesystem::path file);
    ~RequestSocket();  // what was sent a moment ago still goes out, for up to a second
    RequestSocket(const RequestSocket&) = delete;
    RequestSocket& operator=(const RequestSocket&) = delete;

    std::string address() const { return "ipc://" + file_.string(); }
    bool asked() const { return asked_; }  // and not answered yet
    // False: nobody has connected, or they are gone. Only where nothing is asked.
    bool try_send(std::string_view message);
    // nullopt: there is no answer yet. Throws ProtocolError: one of several parts. One that is longer than 64 KiB is cut.
    std::optional<std::string> try_receive();

    // Until one of them can be sent to, or has an answer where it was asked; or a while has passed.
    static void wait_any(std::span<RequestSocket* const> sockets, std::chrono::milliseconds longest);

  private:
    std::filesystem::path file_;
    void* socket_;
    bool asked_ = false;
};

}  // namespace tandem::engine::zmq
