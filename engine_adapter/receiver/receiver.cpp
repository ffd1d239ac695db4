#include "engine_adapter/receiver/receiver.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>

#include "common/error.h"
#include "common/log.h"
#include "common/rare_warnings.h"
#include "common/thread.h"
#include "engine_adapter/channel/messages.h"
#include "engine_adapter/receiver/requests.h"

namespace tandem::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kFrameDeadline =
    std::chrono::seconds(10);  // for the rest of a message once its first byte is there

constexpr auto kRetryAccept = std::chrono::milliseconds(20);

int default_copy_threads() {
    return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
}

// The trainer has given up the bucket whose bytes are being waited for.
bool ends_wait(const nlohmann::json& request) {
    const std::string& op = messages::string_field(request, "op");
    return op == "abort" || op == "begin" || op == "attach" || op == "release" || op == "join" ||
           op == "leave";
}

}  // namespace

class Receiver::Impl {
  public:
    Impl(WeightTarget& target, const ReceiverOptions& options)
        : data_plane_(options.data_plane ? std::make_unique<TcpListener>(*options.data_plane) : nullptr),
          update_(target, options.copy_threads > 0 ? options.copy_threads : default_copy_threads()),
          requests_(
              update_, options.engine, options.depth, options.nccl, [this] { read_ahead(); },
              data_plane_.get()),
          listener_(listen_abstract()),
          greeting_(options.greeting),
          stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (!stop_) throw SystemError("eventfd", errno);
        thread_ = Thread("of the receiver", [this] { run(); });
    }

    ~Impl() {
        ::eventfd_write(stop_.get(), 1);
        thread_.join();
    }

    const std::string& address() const { return listener_.address; }
    int data_port() const { return data_plane_ ? data_plane_->port() : 0; }

  private:
    void run() {
        for (;;) {
            try {
                if (!serve_next()) break;
            } catch (const std::exception& error) {  // of one trainer's message: others are served
                drop_trainer(error.what());
            }
        }
        drop_trainer("the engine is shutting down");
    }

    // Sleeps until a trainer connects or says something, or the receiver is to stop: false then.
    bool serve_next() {
        while (!ahead_.empty()) serve_one();
        std::array<pollfd, 4> fds{pollfd{stop_.get(), POLLIN, 0}, pollfd{listener_.socket.get(), POLLIN, 0},
                                  pollfd{trainer_ ? trainer_->fd() : -1, POLLIN, 0},
                                  pollfd{data_plane_ ? data_plane_->control_ready() : -1, POLLIN, 0}};
        if (::poll(fds.data(), fds.size(), poll_ms()) < 0 && errno != EINTR) {
            log_error("receiver: poll failed: {}", SystemError("poll", errno).what());
            return false;
        }
        if (fds[0].revents != 0) return false;
        if (fds[2].revents != 0) {
            serve_one();
        } else {
            drop_silent_trainer();
        }
        if (fds[1].revents != 0) accept_one();
        if (fds[3].revents != 0) accept_remote();
        return true;
    }

    // When the trainer must have said something by; none: it may take its time.
    std::optional<Clock::time_point> expected_by() const {
        if (!trainer_) return {};
        if (!requests_.greeted()) return last_heard_ + greeting_;
        if (requests_.under_way()) return last_heard_ + requests_.lease();
        return {};
    }
    int poll_ms() const {
        const auto by = expected_by();
        if (!by) return -1;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(*by - Clock::now()).count();
        return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
    }
    void drop_silent_trainer() {
        const auto by = expected_by();
        if (!by || Clock::now() < *by) return;
        drop_trainer(requests_.greeted() ? "the trainer has said nothing for as long as its lease"
                                         : "a trainer that connected has not said hello");
    }

    void accept_one() {
        FileDescriptor socket(
            ::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket) {
            if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
            // Out of descriptors or memory: whoever waits would be found again at once.
            warnings_.say(SystemError("accept", errno).what());
            std::this_thread::sleep_for(kRetryAccept);
            return;
        }
        try {
            require_same_user(socket.get(), "trainer");
            seat(Channel(std::move(socket), "trainer"));
        } catch (const std::exception& error) {
            warnings_.say(error.what());
        }
    }

    void accept_remote() {
        auto accepted = data_plane_->take_control();
        if (!accepted) return;
        try {
            seat(Channel(std::move(accepted->socket), accepted->peer));
        } catch (const std::exception& error) {
            warnings_.say(error.what());
        }
    }

    // The only trainer, if the place is free.
    void seat(Channel channel) {
        channel.interrupt_with(stop_.get());
        // A trainer that has hung up frees its place at once, whatever it said last; one that may be frozen, once
        // somebody else wants it.
        if (trainer_ && trainer_->hung_up()) drop_trainer("the trainer closed the connection");
        if (trainer_ && requests_.greeted() && Clock::now() >= last_heard_ + requests_.lease())
            drop_trainer("another trainer connected, and this one had said nothing for its lease");
        if (trainer_) {
            const TransportError busy("the receiver", "connect", "another trainer is connected", true);
            channel.send(messages::error_reply(0, busy), "refuse", Deadline::after_ms(100));
            return;
        }
        trainer_.emplace(std::move(channel));
        last_id_ = 0;
        last_heard_ = Clock::now();
    }

    // Serves one message of the trainer. An error of the request is answered; a malformed message ends the
    // connection.
    void serve_one() {
        std::int64_t id = 0;
        try {
            const bool waited = !ahead_.empty();
            Message message = waited ? std::move(ahead_.front())
                                     : trainer_->receive("request", Deadline::after(kFrameDeadline));
            if (waited) ahead_.pop_front();
            id = messages::integer_field(message.header, "id", 1);
            if (id <= last_id_)
                throw MalformedMessage(fmt::format("request {} came after request {}", id, last_id_));
            last_id_ = id;
            Reply reply;
            try {
                reply = requests_.answer(message);
                reply.header["id"] = id;
                reply.header["ok"] = true;
            } catch (const MalformedMessage&) {
                throw;
            } catch (const std::exception& error) {
                if (lost_) throw;
                reply = {messages::error_reply(id, error)};
            }
            trainer_->send(reply.header, "reply", Deadline::after(kFrameDeadline),
                           {reply.payload.data(), reply.payload.size()});
        } catch (const MalformedMessage& error) {
            refuse(id, error);
        } catch (const std::exception& error) {
            drop_trainer(error.what());
        }
        last_heard_ = Clock::now();
    }

    // Reads what the trainer says while a request of its waits for bytes that come over NCCL or TCP. Throws when the
    // wait is pointless: the trainer has given the bucket up or is gone, or the receiver is to stop.
    void read_ahead() {
        constexpr std::size_t kMaxAhead = 256;
        lost_ = true;  // assume that the connection is lost unless all of it was read
        pollfd stopping{stop_.get(), POLLIN, 0};
        if (::poll(&stopping, 1, 0) > 0) throw TransportError("the trainer", "request", "stopping");
        while (ahead_.size() < kMaxAhead && trainer_->readable()) {
            Message message = trainer_->receive("request", Deadline::after(kFrameDeadline));
            if (messages::string_field(message.header, "op") == "ping") {
                const nlohmann::json reply = {{"id", messages::integer_field(message.header, "id", 1)},
                                              {"ok", true},
                                              {"busy", !requests_.waits_for_bytes()}};
                trainer_->send(reply, "reply", Deadline::after(kFrameDeadline));
            } else {
                ahead_.push_back(std::move(message));
            }
        }
        lost_ = false;
        if (std::any_of(ahead_.begin(), ahead_.end(), [](const Message& m) { return ends_wait(m.header); }))
            throw Error("the trainer gave up what it had announced");
        requests_.start_receives_ahead(ahead_);
    }

    // Answers a malformed message with its error and ends the connection.
    void refuse(std::int64_t id, const MalformedMessage& error) {
        try {
            trainer_->send(messages::error_reply(id, error), "reply", Deadline::after(kFrameDeadline));
        } catch (const std::exception&) {  // the peer does not listen either
        }
        drop_trainer(error.what());
    }

    void drop_trainer(const std::string& reason) {
        requests_.lose_trainer(reason);
        ahead_.clear();
        lost_ = false;
        trainer_.reset();
    }

    const std::unique_ptr<TcpListener> data_plane_;  // null: none
    VersionUpdate update_;
    Requests requests_;
    Listener listener_;
    const std::chrono::milliseconds greeting_;
    FileDescriptor stop_;
    std::optional<Channel> trainer_;
    std::deque<Message> ahead_;          // received, not yet served
    RareWarnings warnings_{"receiver"};  // anybody on this machine may connect
    std::int64_t last_id_ = 0;           // of the requests that were served: one that comes again is not
    bool lost_ = false;                  // the connection, while a request was waiting
    Clock::time_point last_heard_{};     // a request of the trainer's was served, or it connected
    Thread thread_;                      // last: joined before anything that it uses goes away
};

Receiver::Receiver(WeightTarget& target, ReceiverOptions options)
    : impl_(std::make_unique<Impl>(target, options)) {}
Receiver::~Receiver() = default;
const std::string& Receiver::address() const {
    return impl_->address();
}
int Receiver::data_port() const {
    return impl_->data_port();
}

}  // namespace tandem::engine
