// A thread that listens at a TCP address and runs all that happens to its connections: a server of one thread.
#pragma once

#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/rare_warnings.h"
#include "common/thread.h"

namespace tandem::comm {

class AcceptingThread {
  public:
    using Admit = std::function<void(boost::asio::ip::tcp::socket)>;

    // admit(socket), on the thread, for each connection; what it throws is a warning. `who` begins errors' messages, as
    // `warnings`, of the thread, which must outlive it. Port 0 takes a free one. Throws BadInput: `host` is unknown;
    // SystemError: the address cannot be listened on.
    AcceptingThread(const std::string& who, const std::string& host, int port, RareWarnings& warnings,
                    Admit admit);
    // Joins. What is under way on its sockets is dropped then.
    ~AcceptingThread();
    AcceptingThread(const AcceptingThread&) = delete;
    AcceptingThread& operator=(const AcceptingThread&) = delete;

    int port() const;
    bool loopback() const;  // listens for this host only
    boost::asio::io_context& context() { return context_; }

  private:
    void listen(const std::string& who, const std::string& host, int port);
    void accept();
    void accept_later(const std::string& why);
    void run();

    RareWarnings& warnings_;
    const Admit admit_;
    boost::asio::io_context context_{1};
    boost::asio::ip::tcp::acceptor acceptor_{context_};
    boost::asio::steady_timer retry_{context_};
    Thread thread_;
};

}  // namespace tandem::comm
