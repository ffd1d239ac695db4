// The engine's end of the data plane's address: lets in who proves to know the engine's key, or the token of the push
// that is under way, and hands their sockets on. A stranger costs a place among many (common/admission.h) for some seconds.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>

#include "common/admission.h"
#include "common/deadline.h"
#include "common/file_descriptor.h"
#include "common/listening_sockets.h"
#include "common/rare_warnings.h"
#include "common/thread.h"
#include "engine_adapter/transport/tcp/handshake.h"

namespace tandem::engine {

struct TcpListen {
    std::string host = "127.0.0.1";  // without brackets; at all of its addresses (common/listening_sockets.h)
    std::string port = "0";          // 0: a free one
    std::string key = {};            // that a control connection needs; empty: none
    bool anybody = false;            // without a key a control connection is open to all; else there is none
    std::chrono::milliseconds patience{10'000};  // for a handshake
};

class TcpListener {
  public:
    // Throws ConfigError: the address is unknown, or in use.
    explicit TcpListener(const TcpListen& options);
    ~TcpListener();
    TcpListener(const TcpListener&) = delete;
    TcpListener& operator=(const TcpListener&) = delete;

    int port() const { return listening_.port; }

    struct Accepted {
        FileDescriptor socket;
        std::string peer;  // "trainer 10.0.0.1:4711"
    };
    // Readable when there is one to take.
    int control_ready() const { return ready_.get(); }
    std::optional<Accepted> take_control();

    // Data connections that prove `token` go to `take`, on the listener's thread, until another call; those of an
    // earlier token are refused. When this returns, no earlier `take` runs.
    void expect_data(const std::string& token, std::function<void(Accepted)> take);
    void expect_none();

  private:
    struct Guest {
        Guest(FileDescriptor taken, TcpListener& listener);

        FileDescriptor socket;  // none: it has left
        std::string peer;
        Deadline deadline;
        Admission::Place place;
        Nonce nonce = random_nonce();
        std::array<char, tcp::kHelloBytes> said{};
        std::size_t got = 0;
    };
    void run();
    bool serve_next();
    bool accept_one(int listening);  // false: nobody waits there
    bool read_some(Guest& guest);    // false: it is to go
    bool judge(Guest& guest);
    tcp::Asks asks() const;

    const TcpListen options_;
    const ListeningSockets listening_;
    FileDescriptor stop_, ready_;
    Admission admission_;  // the thread's, as the guests
    std::list<Guest> guests_;
    RareWarnings warnings_{"data plane"};
    std::mutex mutex_;
    std::deque<Accepted> controls_;
    std::optional<JobSecret> token_;
    std::function<void(Accepted)> take_;
    Thread thread_;  // last
};

}  // namespace tandem::engine
