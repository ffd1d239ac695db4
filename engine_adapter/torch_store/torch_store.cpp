// The sockets of the torch store: one thread, any number of connections, each of which a Session answers.
#include "engine_adapter/torch_store/torch_store.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include <future>
#include <optional>

#include "common/error.h"
#include "common/store/accepting_thread.h"
#include "common/store/served_connection.h"
#include "engine_adapter/torch_store/session.h"

namespace tandem::engine {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using torch_store::Keys;
using torch_store::Session;

constexpr std::string_view kPrefix = "/";  // that clients put before a name

std::string key_of(const std::string& name) {
    std::string key = std::string(kPrefix) + name;
    require(key.size() <= torch_store::kMaxKey, "torch store: a name of {} bytes; PyTorch takes keys of {}",
            name.size(), torch_store::kMaxKey);
    return key;
}

// What the connections share. One thread.
struct Shared {
    explicit Shared(const TorchStoreOptions& given)
        : options(given), keys(given.max_bytes), connections("torch store", given.max_connections) {}

    const TorchStoreOptions options;
    Keys keys;
    ServedConnections connections;
};

class Connection final : public ServedConnection {
  public:
    Connection(tcp::socket socket, Shared& shared)
        : ServedConnection(std::move(socket), shared.connections),
          patience_(shared.options.patience),
          session_(
              shared.keys, [this] { later(); }, shared.options.secret) {
        ask_whether_the_host_lives();
    }

  private:
    // A client may wait for hours, and its host be gone: two minutes without an answer of the host end it.
    void ask_whether_the_host_lives() {
        using Seconds = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>;
        using Interval = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>;
        using Times = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>;
        boost::system::error_code ignored;
        socket().set_option(asio::socket_base::keep_alive(true), ignored);
        socket().set_option(Seconds(60), ignored);
        socket().set_option(Interval(15), ignored);
        socket().set_option(Times(4), ignored);
    }

    void started() override { go_on(); }

    void received(std::string_view bytes) override {
        reading_ = false;
        session_.feed(bytes);
        go_on();
    }

    void sent() override {
        writing_ = false;
        owes_ = false;
        session_.sent();
        go_on();
    }

    void go_on() {
        if (writing_ || !is_open()) return;
        if (session_.work()) owes_ = false;
        if (session_.proven()) prove();
        const std::string_view answers = session_.answers();
        if (answers.empty()) {
            watch_reading();
            if (!std::exchange(reading_, true)) read();
        } else {
            watch(patience_);
            writing_ = true;
            send(answers);
        }
    }

    // First words, and a request that has begun, may not take for ever, however their bytes trickle.
    void watch_reading() {
        const bool owes = !session_.validated() || session_.mid_request();
        if (owes && !owes_) watch(patience_);
        if (!owes) watch_not();
        owes_ = owes;
    }

    const std::chrono::milliseconds patience_;
    Session session_;
    bool reading_ = false, writing_ = false;
    bool owes_ = false;  // the rest of what it says, since the timer was set
};

}  // namespace

struct TorchStore::Impl {
    Impl(const std::string& host, int port, const TorchStoreOptions& options)
        : shared(options),
          thread("torch store", host, port, shared.connections.warnings, [this](tcp::socket socket) {
              std::make_shared<Connection>(std::move(socket), shared)->start();
          }) {}

    // Calls body() on the thread, which alone knows the keys. What it throws is thrown here.
    template <typename Body>
    auto on_thread(const Body& body) {
        std::packaged_task<decltype(body())()> task(body);
        asio::post(thread.context(), [&task] { task(); });
        return task.get_future().get();
    }

    Shared shared;  // outlives the connections, which the thread holds
    AcceptingThread thread;
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
