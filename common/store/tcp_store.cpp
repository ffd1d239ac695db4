// The client of the TCP store: one connection, one request at a time. Any failure of the connection is final.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "common/dial.h"
#include "common/error.h"
#include "common/file_descriptor.h"
#include "common/host_port.h"
#include "common/store/store.h"
#include "common/store/tcp_protocol.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kRequest{60};  // for set and add, which take no deadline
// A request on its way gets this long past the caller's deadline: cutting it off would cost the connection.
constexpr std::chrono::seconds kAnswer{2};
constexpr std::chrono::seconds kTry{5};  // to connect, before the name is looked up again
constexpr std::chrono::milliseconds kPause{50};

class TcpStore final : public Store {
  public:
    TcpStore(std::string peer, FileDescriptor socket) : peer_(std::move(peer)), socket_(std::move(socket)) {
        const int one = 1;
        ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    }

    // The first words of a connection. Throws ConfigError when the two sides' secrets differ.
    void greet(const std::optional<JobSecret>& secret, Deadline deadline) {
        unsigned char greeting[wire::kGreeting];
        transfer(POLLIN, reinterpret_cast<char*>(greeting), sizeof(greeting), deadline);
        if (std::memcmp(greeting, wire::kMagic.data(), wire::kMagic.size()) != 0)
            throw ProtocolError(peer_ + ": another program listens there, or a rank of another version");
        const bool asks = greeting[wire::kMagic.size()] != static_cast<unsigned char>(wire::Mode::open);
        if (asks && !secret) refuse("not set here, and rank 0's store asks for it");
        if (!asks && secret) refuse("set here, and rank 0's store has none");
        if (secret) prove(*secret, greeting + wire::kMagic.size() + 1, deadline);
    }

    void set(const std::string& key, const std::string& value) override {
        ask(wire::Operation::set, key, value, Deadline::after(kRequest));
    }

    std::string get(const std::string& key, Deadline deadline) override {
        for (auto pause = std::chrono::milliseconds(1);;
             pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
            const auto answer = Deadline::after(deadline.left() + kAnswer);
            if (auto value = ask(wire::Operation::get, key, "", answer)) return *value;
            if (deadline.passed()) throw DeadlineExceeded(peer_, "get", "nobody has set '" + key + "'");
            std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline.left()));
        }
    }

    std::int64_t add(const std::string& key, std::int64_t amount) override {
        const auto sum = ask(wire::Operation::add, key, std::to_string(amount), Deadline::after(kRequest));
        return parse_store_integer(key, sum.value_or(""));
    }

  private:
    [[noreturn]] void refuse(const std::string& why) const {
        throw ConfigError("environment", "TANDEM_JOB_SECRET",
                          fmt::format("{} ({}); it must be the same on all ranks", why, peer_));
    }

    void prove(const JobSecret& secret, const unsigned char* server_nonce, Deadline deadline) {
        Nonce server;
        std::memcpy(server.data(), server_nonce, server.size());
        const Nonce client = random_nonce();
        const Proof proof = secret.prove("client", server, client);
        std::string words(client.begin(), client.end());
        words.append(proof.begin(), proof.end());
        transfer(POLLOUT, words.data(), words.size(), deadline);
        unsigned char verdict[wire::kVerdict];
        transfer(POLLIN, reinterpret_cast<char*>(verdict), sizeof(verdict), deadline);
        if (verdict[0] != static_cast<unsigned char>(wire::Status::ok))
            refuse("not the one of rank 0's store");
        Proof other;
        std::memcpy(other.data(), verdict + 1, other.size());
        if (!secret.holds(other, "server", server, client)) refuse("not known to who listens there");
    }

    // nullopt: the key is absent.
    std::optional<std::string> ask(wire::Operation operation, const std::string& key,
                                   const std::string& value, Deadline deadline) {
        require(key.size() <= wire::kMaxKey && value.size() <= wire::kMaxValue,
                "store: key of {} bytes with a value of {} bytes; {} and {} are possible", key.size(),
                value.size(), wire::kMaxKey, wire::kMaxValue);
        std::string request(wire::kRequestHeader, '\0');
        auto* header = reinterpret_cast<unsigned char*>(request.data());
        header[0] = static_cast<unsigned char>(operation);
        wire::put_u32(header + 1, static_cast<std::uint32_t>(key.size()));
        wire::put_u32(header + 5, static_cast<std::uint32_t>(value.size()));
        request += key;
        request += value;
        const std::lock_guard lock(mutex_);
        transfer(POLLOUT, request.data(), request.size(), deadline);
        unsigned char answer[wire::kAnswerHeader];
        transfer(POLLIN, reinterpret_cast<char*>(answer), sizeof(answer), deadline);
        const std::uint32_t bytes = wire::get_u32(answer + 1);
        if (bytes > wire::kMaxValue)
            throw ProtocolError(fmt::format("{}: an answer of {} bytes", peer_, bytes));
        std::string text(bytes, '\0');
        transfer(POLLIN, text.data(), text.size(), deadline);
        const auto status = static_cast<wire::Status>(answer[0]);
        if (status == wire::Status::refused) throw InvalidArgument(text);
        if (status == wire::Status::absent) return std::nullopt;
        return text;
    }

    // Sends or receives all of it. A request cut in the middle leaves the connection unusable: it is shut
    // down.
    void transfer(short events, char* data, std::size_t bytes, Deadline deadline) {
        while (bytes > 0) {
            pollfd waiting{socket_.get(), events, 0};
            const auto left =
                std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left()).count() + 1;
            const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<long>(left, 1000)));
            if (ready == 0 && deadline.passed()) {
                ::shutdown(socket_.get(), SHUT_RDWR);
                throw DeadlineExceeded(peer_, "request", "no answer within the deadline");
            }
            if (ready <= 0) continue;
            const ssize_t moved = events == POLLIN ? ::recv(socket_.get(), data, bytes, 0)
                                                   : ::send(socket_.get(), data, bytes, MSG_NOSIGNAL);
            if (moved < 0 && (errno == EINTR || errno == EAGAIN)) continue;
            if (moved == 0) throw TransportError(peer_, "request", "the connection was closed");
            if (moved < 0) throw TransportError(peer_, "request", std::strerror(errno));
            data += moved;
            bytes -= static_cast<std::size_t>(moved);
        }
    }

    std::mutex mutex_;
    std::string peer_;
    FileDescriptor socket_;
};

}  // namespace

std::shared_ptr<Store> connect_tcp_store(const std::string& host, int port, Deadline deadline,
                                         const std::optional<JobSecret>& secret) {
    const std::string peer = "store " + to_host_port(host, port);
    std::string why;
    for (;;) {
        // The server may not be up yet, or have no room yet; what is silent now may answer the next time.
        Dialled dialled = try_to_dial(host, port, deadline.within(kTry));
        why = dialled.why;
        if (why.empty()) {
            const auto store = std::make_shared<TcpStore>(peer, std::move(dialled.sockets.front()));
            try {
                store->greet(secret, deadline);
                return store;
            } catch (const DeadlineExceeded&) {
                throw;
            } catch (const TransportError& error) {
                why = error.what();
            }
        }
        if (deadline.passed()) throw DeadlineExceeded(peer, "connect", why);
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(kPause, deadline.left()));
    }
}

}  // namespace tandem
