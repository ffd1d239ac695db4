// One client of a server of one thread (accepting_thread.h): its socket, how long it may take for what, and its place among
// the others. What it says and hears is a subclass's.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/admission.h"
#include "common/rare_warnings.h"

namespace tandem {

// What the connections of a server share.
struct ServedConnections {
    // Fewer where the process may open fewer descriptors. `who`: the server, for its warnings.
    ServedConnections(const std::string& who, std::size_t max_connections);

    Admission admission;
    std::array<char, std::size_t{64} << 10> incoming;
    RareWarnings warnings;  // anybody may connect
};

// Held by what is under way on its socket, and no longer. Whatever goes wrong with it ends it, with a warning, and nothing
// else.
class ServedConnection : public std::enable_shared_from_this<ServedConnection> {
  public:
    ServedConnection(boost::asio::ip::tcp::socket socket, ServedConnections& others);
    virtual ~ServedConnection();
    ServedConnection(const ServedConnection&) = delete;
    ServedConnection& operator=(const ServedConnection&) = delete;

    void start();
    void close();

  protected:
    // All on the thread; what they throw ends the connection.
    virtual void started() = 0;
    virtual void received(std::string_view bytes) = 0;  // after read(); none: there was nothing after all
    virtual void sent() = 0;                            // after send()

    void read();                       // not while reading
    void send(std::string_view text);  // not while sending; `text` stays until sent()
    void later();                      // calls started() again, behind what the thread does now

    // It ends unless one of them is called again within `time`.
    void watch(std::chrono::milliseconds time);
    void watch_not();
    // It has said who it is, and keeps its place. Throws where no more can.
    void prove();
    bool is_open() const { return socket_.is_open(); }
    ServedConnections& others() { return others_; }
    boost::asio::ip::tcp::socket& socket() { return socket_; }

  private:
    template <typename Body>
    void guarded(const Body& body);
    void make_room();
    void take_what_is_there();

    boost::asio::ip::tcp::socket socket_;
    boost::asio::steady_timer timer_;
    ServedConnections& others_;
    Admission::Place place_;
};

}  // namespace tandem
