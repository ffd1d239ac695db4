// The sockets of the torch store: one thread, any number of connections, each of which a Session answers.
#include "engine_adapter/torch_store/torch_store.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <future>
#include <list>
#include <optional>

#include "common/comm/accepting_thread.h"
#include "common/error.h"
#include "common/rare_warnings.h"
#include "engine_adapter/torch_store/session.h"

namespace tandem::engine {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using torch_store::Keys;
using torch_store::Session;

constexpr std::string_view kPrefix = "/";  // that clients put before a name

std::string key_of(const std::string& name) {
    std::string key = std::string(kPrefix) + name;
    require(key.size() <= torch_store::kMaxKey, "torch store: a name of {} bytes; PyTorch takes keys of {}",
            name.size(), torch_store::kMaxKey);
    return key;
}

class Connection;

// What the connections share. One thread.
struct Shared {
    explicit Shared(const TorchStoreOptions& given) : options(given), keys(given.max_bytes) {}

    const TorchStoreOptions options;
    Keys keys;
    std::size_t connections = 0;
    std::list<Connection*> silent;  // no first words yet; the longest there first
    std::array<char, std::size_t{64} << 10> incoming;
    RareWarnings warnings{"torch store"};  // anybody may connect
};

// One client. Whatever goes wrong ends it.
class Connection : public std::enable_shared_from_this<Connection> {
  public:
    Connection(tcp::socket socket, Shared& shared)
        : socket_(std::move(socket)),
          timer_(socket_.get_executor()),
          shared_(shared),
          session_(shared.keys, [this] { go_on_later(); }) {
        ++shared_.connections;
        silent_ = shared_.silent.insert(shared_.silent.end(), this);
    }
    ~Connection() {
        end_silence();
        --shared_.connections;
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void start() {
        guarded([this] {
            socket_.set_option(tcp::no_delay(true));
            socket_.non_blocking(true);
            ask_whether_the_host_lives();
            go_on();
        });
    }

    void close() {
        end_silence();
        error_code ignored;
        socket_.close(ignored);
        timer_.cancel();
    }

  private:
    template <typename Body>
    void guarded(const Body& body) {
        try {
            body();
        } catch (const std::exception& error) {  // its words, memory, or the socket
            shared_.warnings.say(fmt::format("{}; its connection ends", error.what()));
            close();
        }
    }

    // A client may wait for hours, and its host be gone: two minutes without an answer of the host end it.
    void ask_whether_the_host_lives() {
        using Seconds = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>;
        using Interval = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>;
        using Times = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>;
        socket_.set_option(asio::socket_base::keep_alive(true));
        socket_.set_option(Seconds(60));
        socket_.set_option(Interval(15));
        socket_.set_option(Times(4));
    }

    void watch() {
        timer_.expires_after(shared_.options.patience);
        timer_.async_wait([weak = weak_from_this()](error_code) {
            const auto self = weak.lock();
            if (!self || self->timer_.expiry() > asio::steady_timer::clock_type::now()) return;  // set again
            self->close();
        });
    }
    void watch_not() { timer_.expires_at(asio::steady_timer::time_point::max()); }

    void go_on_later() {
        asio::post(socket_.get_executor(), [weak = weak_from_this()] {
            if (const auto self = weak.lock()) self->guarded([&] { self->go_on(); });
        });
    }

    void go_on() {
        if (writing_ || !socket_.is_open()) return;
        if (session_.work()) owes_ = false;
        if (session_.validated()) end_silence();
        const std::string_view answers = session_.answers();
        if (!answers.empty()) return send(answers);
        watch_reading();
        if (!reading_) read();
    }

    // First words, and a request that has begun, may not take for ever, however their bytes trickle.
    void watch_reading() {
        const bool owes = !session_.validated() || session_.mid_request();
        if (owes && !owes_) watch();
        if (!owes) watch_not();
        owes_ = owes;
    }

    void read() {
        reading_ = true;
        socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
            self->reading_ = false;
            if (error) return self->close();
            self->guarded([&] { self->take_what_is_there(); });
        });
    }

    void take_what_is_there() {
        error_code error;
        const std::size_t bytes = socket_.read_some(asio::buffer(shared_.incoming), error);
        if (error == asio::error::would_block || error == asio::error::try_again) return go_on();
        if (error) return close();
        session_.feed({shared_.incoming.data(), bytes});
        go_on();
    }

    void send(std::string_view answers) {
        watch();
        writing_ = true;
        asio::async_write(socket_, asio::buffer(answers.data(), answers.size()),
                          [self = shared_from_this()](error_code error, std::size_t) {
                              self->writing_ = false;
                              if (error) return self->close();
                              self->guarded([&] {
                                  self->session_.sent();
                                  self->owes_ = false;
                                  self->go_on();
                              });
                          });
    }

    void end_silence() {
        if (silent_) shared_.silent.erase(*silent_);
        silent_.reset();
    }

    tcp::socket socket_;
    asio::steady_timer timer_;
    Shared& shared_;
    Session session_;
    bool reading_ = false, writing_ = false;
    bool owes_ = false;  // the rest of what it says, since the timer was set
    std::optional<std::list<Connection*>::iterator> silent_;
};

}  // namespace

struct TorchStore::Impl {
    Impl(const std::string& host, int port, const TorchStoreOptions& options)
        : shared(options), thread("torch store", host, port, shared.warnings, [this](tcp::socket socket) {
              admit(std::move(socket));
          }) {}

    void admit(tcp::socket socket) {
        if (shared.connections >= shared.options.max_connections) {
            shared.warnings.say(fmt::format("{} connections; one ends", shared.connections));
            if (shared.silent.empty()) return;
            shared.silent.front()->close();
        }
        std::make_shared<Connection>(std::move(socket), shared)->start();
    }

    // Calls body() on the thread, which alone knows the keys. What it throws is thrown here.
    template <typename Body>
    auto on_thread(const Body& body) {
        std::packaged_task<decltype(body())()> task(body);
        asio::post(thread.context(), [&task] { task(); });
        return task.get_future().get();
    }

    Shared shared;  // outlives the connections, which the thread holds
    comm::AcceptingThread thread;
};

TorchStore::TorchStore(const std::string& host, int port, const TorchStoreOptions& options)
    : impl_(std::make_unique<Impl>(host, port, options)) {}

TorchStore::~TorchStore() = default;

int TorchStore::port() const {
    return impl_->thread.port();
}

void TorchStore::set(const std::string& name, const std::string& value) {
    const std::string key = key_of(name);
    require(value.size() <= torch_store::kMaxValue, "torch store: {} bytes for '{}'; PyTorch takes {}",
            value.size(), name, torch_store::kMaxValue);
    impl_->on_thread([&] { impl_->shared.keys.set(key, value); });
}

std::int64_t TorchStore::add(const std::string& name, std::int64_t amount) {
    const std::string key = key_of(name);
    return impl_->on_thread([&] { return impl_->shared.keys.add(key, amount); });
}

std::string TorchStore::get(const std::string& name, Deadline deadline) {
    const std::string key = key_of(name);
    Keys& keys = impl_->shared.keys;
    std::promise<void> arrival;
    std::optional<torch_store::Waiter> waiter;  // the thread's, from its first word to its last
    impl_->on_thread([&] {
        waiter.emplace(keys, false, [&] { arrival.set_value(); });
        try {
            if (keys.wait(*waiter, {key})) arrival.set_value();
        } catch (...) {
            waiter.reset();
            throw;
        }
    });
    arrival.get_future().wait_until(deadline.at());
    std::optional<std::string> value;
    impl_->on_thread([&] {
        waiter.reset();
        if (const std::string* found = keys.find(key)) value = *found;
    });
    if (!value)
        throw DeadlineExceeded("the clients of the torch store", fmt::format("waiting for '{}'", name),
                               "nobody has set it");
    return *std::move(value);
}

std::set<std::string> TorchStore::awaited() {
    const std::set<std::string> keys = impl_->on_thread([&] { return impl_->shared.keys.awaited(); });
    std::set<std::string> names;
    for (const std::string& key : keys) {
        if (key.starts_with(kPrefix)) names.insert(key.substr(kPrefix.size()));
    }
    return names;
}

}  // namespace tandem::engine
