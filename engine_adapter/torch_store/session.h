// One client of the torch store: bytes in and bytes out, without its socket.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "engine_adapter/torch_store/keys.h"
#include "engine_adapter/torch_store/request_reader.h"

namespace tandem::engine::torch_store {

class Session {
  public:
    // `keys` outlives the session. `woken`: there is an answer to what the client waited for; called while another
    // changes the keys, so it must only take note. `secret`: what a key must hold to be told (torch_store.h).
    Session(Keys& keys, std::function<void()> woken, std::string secret = "");

    // What came from the client, any part of it. Throws ProtocolError when the connection is to end, saying why.
    void feed(std::string_view bytes);
    // Does what was asked for, until there is an answer to send or nothing left to do. False: nothing was. Throws as
    // feed().
    bool work();
    // The answers so far, to be sent whole; empty: none. Valid until sent(), which is due before the next call.
    std::string_view answers();
    void sent();

    bool validated() const { return validated_; }  // has said that it is a client of this protocol
    bool proven() const { return validated_ && (secret_.empty() || knows_secret_); }
    bool mid_request() const { return reader_.mid_request(); }

  private:
    void require_secret(const Request& request);
    void answer(Request request);
    void answer_keys(const Request& request);
    void answer_queue(Request request);
    template <typename Number>
    void say(Number number) {
        put(out_, number);
    }
    void say_text(std::string_view text);
    void account();

    Keys& keys_;
    const std::string secret_;
    bool validated_ = false, knows_secret_ = false;
    RequestReader reader_;
    std::string out_, sending_;
    Charge charge_;
    Waiter waiter_;
};

}  // namespace tandem::engine::torch_store
