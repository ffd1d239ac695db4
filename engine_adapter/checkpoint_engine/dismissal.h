// Tells a worker that its load is over, wherever in it the worker is. One that gets this as its first message answers, and
// then waits for another (0.4.2), or does not (0.1.2); later none answers.
#pragma once

#include <string>

#include "engine_adapter/checkpoint_engine/request_socket.h"

namespace tandem::engine::checkpoint_engine {

class Dismissal {
  public:
    // answered: it has answered a message before, as far as is known.
    Dismissal(zmq::RequestSocket& socket, bool answered) : socket_(socket), answered_(answered) {}

    // As far as it goes without waiting. True: nothing more is to be said.
    bool step(const std::string& message) {
        if (done_) return true;
        if (socket_.asked()) {  // it owes an answer to what came before, or to this
            if (!socket_.try_receive()) return false;
            answered_ = true;
        }
        if (!socket_.try_send(message)) return false;
        told_ = true;
        return done_ = answered_;
    }
    bool told() const { return told_; }
    zmq::RequestSocket& socket() const { return socket_; }

  private:
    zmq::RequestSocket& socket_;
    bool answered_;
    bool told_ = false, done_ = false;
};

}  // namespace tandem::engine::checkpoint_engine
