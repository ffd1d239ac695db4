// A thread that listens at the addresses of a host and runs all that happens to its connections: a server of one thread.
#pragma once

#include <functional>
#include <list>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/listening_sockets.h"
#include "common/rare_warnings.h"
#include "common/thread.h"

namespace tandem {

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

    int port() const { return listening_.port; }
    bool loopback() const { return listening_.loopback; }  // listens for this host only
    boost::asio::io_context& context() { return context_; }

  private:
    // At one of the addresses.
    struct Listener {
        Listener(boost::asio::io_context& context, ListeningSockets::One& at);

        boost::asio::ip::tcp::acceptor acceptor;
        boost::asio::steady_timer retry;
    };
    void accept(Listener& listener);
    void accept_later(Listener& listener, const std::string& why);
    void run();

    RareWarnings& warnings_;
    const Admit admit_;
    ListeningSockets listening_;  // its sockets are the listeners'
    boost::asio::io_context context_{1};
    std::list<Listener> listeners_;
    Thread thread_;
};

}  // namespace tandem
