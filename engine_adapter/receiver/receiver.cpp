#include "engine_adapter/receiver/receiver.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <optional>
#include <thread>

#include "common/error.h"
#include "common/log.h"
#include "engine_adapter/receiver/updater.h"
#include "engine_adapter/transport/shm/channel.h"

namespace tandem::engine {
namespace {

constexpr int kMaxSlots = 1024;
constexpr auto kFrameDeadline =
    std::chrono::seconds(10);  // for the rest of a message once its first byte is there

int default_copy_threads() {
    return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
}

}  // namespace

class Receiver::Impl {
  public:
    Impl(WeightTarget& target, ReceiverOptions options)
        : options_(std::move(options)),
          updater_(target, options_.copy_threads > 0 ? options_.copy_threads : default_copy_threads()),
          listener_(listen_abstract()),
          stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (!stop_) throw SystemError("eventfd", errno);
        thread_ = std::thread([this] { run(); });
    }

    ~Impl() {
        ::eventfd_write(stop_.get(), 1);
        thread_.join();
    }

    const std::string& address() const { return listener_.address; }

  private:
    // Sleeps until somebody connects, the trainer says something, or the receiver is to stop.
    void run() {
        for (;;) {
            std::array<pollfd, 3> fds{pollfd{stop_.get(), POLLIN, 0},
                                      pollfd{listener_.socket.get(), POLLIN, 0},
                                      pollfd{trainer_ ? trainer_->fd() : -1, POLLIN, 0}};
            if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) {
                spdlog::error("receiver: poll failed: {}", SystemError("poll", errno).what());
                break;
            }
            if (fds[0].revents != 0) break;
            if (fds[2].revents != 0) serve_one();
            if (fds[1].revents != 0) accept_one();
        }
        drop_trainer("the engine is shutting down");
    }

    void accept_one() {
        FileDescriptor socket(
            ::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket) return;
        try {
            require_same_user(socket.get(), "trainer");
            Channel channel(std::move(socket), "trainer");
            channel.interrupt_with(stop_.get());
            if (trainer_) {
                const TransportError busy("the receiver", "connect", "another trainer is connected", true);
                channel.send(wire::error_reply(0, busy), {}, -1, "refuse", Deadline::after_ms(100));
                return;
            }
            trainer_.emplace(std::move(channel));
        } catch (const std::exception& error) {
            spdlog::warn("receiver: {}", error.what());
        }
    }

    // One message of the trainer. An error of the request goes back to it; a message that is none ends the
    // connection.
    void serve_one() {
        std::int64_t id = 0;
        try {
            Message message = trainer_->receive("request", Deadline::after(kFrameDeadline));
            id = wire::integer_field(message.header, "id", 1);
            try {
                std::vector<std::byte> payload;
                nlohmann::json reply = answer(message, payload);
                reply["id"] = id;
                reply["ok"] = true;
                send(reply, {payload.data(), payload.size()});
            } catch (const MalformedMessage&) {
                throw;
            } catch (const TransportError&) {
                throw;
            } catch (const std::exception& error) {
                send(wire::error_reply(id, error), {});
            }
        } catch (const MalformedMessage& error) {
            try {
                send(wire::error_reply(id, error), {});
            } catch (const std::exception&) {  // it does not even listen
            }
            drop_trainer(error.what());
        } catch (const std::exception& error) {
            drop_trainer(error.what());
        }
    }

    void send(const nlohmann::json& reply, ConstSpan payload) {
        trainer_->send(reply, payload, -1, "reply", Deadline::after(kFrameDeadline));
    }

    nlohmann::json answer(Message& message, std::vector<std::byte>& payload) {
        const nlohmann::json& header = message.header;
        const std::string& op = wire::string_field(header, "op");
        if (op == "hello") return hello(header);
        if (op == "attach") return attach(message);
        if (op == "begin") {
            updater_.begin(wire::integer_field(header, "version", 1));
            return nlohmann::json::object();
        }
        if (op == "bucket") return bucket(message);
        if (op == "commit") {
            const std::int64_t version = wire::integer_field(header, "version", 1);
            updater_.commit(version, ops::checksum_from_hex(wire::string_field(header, "manifest")));
            return nlohmann::json::object();
        }
        if (op == "abort") {
            updater_.abort(wire::string_field(header, "reason"));
            return nlohmann::json::object();
        }
        if (op == "checksums") {
            const std::vector<ops::Checksum> all = updater_.checksums();
            const ConstSpan bytes = wire::as_bytes(all);
            payload.assign(bytes.data, bytes.data + bytes.bytes);
            return nlohmann::json::object();
        }
        throw MalformedMessage("unknown request '" + op + "'");
    }

    nlohmann::json hello(const nlohmann::json& header) const {
        if (const std::int64_t protocol = wire::integer_field(header, "protocol", 0);
            protocol != wire::kProtocol) {
            throw ProtocolError(
                fmt::format("the trainer speaks protocol {}, this engine {}", protocol, wire::kProtocol));
        }
        return wire::capabilities_to_json(updater_.capabilities(options_.engine, options_.depth));
    }

    nlohmann::json attach(Message& message) {
        const std::int64_t slots = wire::integer_field(message.header, "slots", 1);
        const auto slot_bytes =
            static_cast<std::size_t>(wire::integer_field(message.header, "slot_bytes", 1));
        if (slots > kMaxSlots || slot_bytes > (std::size_t{1} << 46) / static_cast<std::size_t>(slots)) {
            throw MalformedMessage(fmt::format("attach of {} slots of {} bytes", slots, slot_bytes));
        }
        if (!message.fd) throw MalformedMessage("attach without a file descriptor");
        SharedArena arena =
            SharedArena::open(message.fd.release(), static_cast<std::size_t>(slots) * slot_bytes);
        updater_.attach(std::move(arena), static_cast<int>(slots), slot_bytes);
        return nlohmann::json::object();
    }

    nlohmann::json bucket(const Message& message) {
        const std::int64_t index = wire::integer_field(message.header, "index", 0);
        const std::int64_t slot = wire::integer_field(message.header, "slot", 0);
        const std::int64_t count = wire::integer_field(message.header, "entries", 0);
        if (index > std::numeric_limits<int>::max())
            throw MalformedMessage("a bucket's index is out of range");
        const auto entries = wire::from_bytes<wire::Entry>(message.payload, static_cast<std::size_t>(count));
        return {{"copy_ms", updater_.bucket(static_cast<int>(index), slot, entries)}};
    }

    void drop_trainer(const std::string& reason) {
        try {
            updater_.abort(reason);
        } catch (const std::exception& error) {
            spdlog::error("receiver: abort failed: {}", error.what());
        }
        updater_.detach();
        trainer_.reset();
    }

    ReceiverOptions options_;
    Updater updater_;
    Listener listener_;
    FileDescriptor stop_;
    std::optional<Channel> trainer_;
    std::thread thread_;  // last: joined before anything that it uses goes away
};

Receiver::Receiver(WeightTarget& target, ReceiverOptions options)
    : impl_(std::make_unique<Impl>(target, std::move(options))) {}
Receiver::~Receiver() = default;
const std::string& Receiver::address() const {
    return impl_->address();
}

}  // namespace tandem::engine
