#include "engine_adapter/checkpoint_engine/request_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>
#include <vector>

#include "common/error.h"
#include "engine_adapter/checkpoint_engine/zmq_api.h"

namespace tandem::engine::zmq {
namespace {

constexpr std::size_t kLongestAnswer = std::size_t{64} << 10;
constexpr std::int64_t kLongestMessage = 16 << 20;  // a peer that sends more is dropped
constexpr int kLingerMs = 1000;

[[noreturn]] void fail(const std::string& what) {
    throw Error(fmt::format("ZeroMQ: {}: {}", what, loaded().strerror(loaded().error())));
}

}  // namespace

Context::Context() : context_(loaded().ctx_new()) {
    if (context_ == nullptr) fail("a context");
}

Context::~Context() {
    while (loaded().ctx_term(context_) != 0 && loaded().error() == EINTR) {
    }
}

RequestSocket::RequestSocket(const Context& context, std::filesystem::path file)
    : file_(std::move(file)), socket_(loaded().socket(context.get(), kReq)) {
    if (socket_ == nullptr) fail("a socket");
    const Api& api = loaded();
    api.setsockopt(socket_, kLinger, &kLingerMs, sizeof(kLingerMs));
    api.setsockopt(socket_, kMaxMessageSize, &kLongestMessage, sizeof(kLongestMessage));
    if (api.bind(socket_, address().c_str()) == 0) return;
    const int error = api.error();
    api.close(socket_);
    throw Error(fmt::format("ZeroMQ: listening at {}: {}", file_.string(), api.strerror(error)));
}

RequestSocket::~RequestSocket() {
    loaded().close(socket_);
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
}

bool RequestSocket::try_send(std::string_view message) {
    const Api& api = loaded();
    while (api.send(socket_, message.data(), message.size(), kDontWait) < 0) {
        if (api.error() == EAGAIN) return false;
        if (api.error() != EINTR) fail("sending at " + file_.string());
    }
    asked_ = true;
    return true;
}

std::optional<std::string> RequestSocket::try_receive() {
    const Api& api = loaded();
    std::string answer(kLongestAnswer, '\0');
    int bytes = 0;
    while ((bytes = api.recv(socket_, answer.data(), answer.size(), kDontWait)) < 0) {
        if (api.error() == EAGAIN) return std::nullopt;
        if (api.error() != EINTR) fail("receiving at " + file_.string());
    }
    asked_ = false;
    int more = 0;
    std::size_t size = sizeof(more);
    if (api.getsockopt(socket_, kRcvMore, &more, &size) == 0 && more != 0)
        throw ProtocolError(fmt::format("an answer of several parts at {}", file_.string()));
    answer.resize(std::min(static_cast<std::size_t>(bytes), answer.size()));
    return answer;
}

void RequestSocket::wait_any(std::span<RequestSocket* const> sockets, std::chrono::milliseconds longest) {
    std::vector<PollItem> items;
    for (const RequestSocket* one : sockets)
        items.push_back({one->socket_, 0, one->asked_ ? kPollIn : kPollOut, 0});
    loaded().poll(items.data(), static_cast<int>(items.size()), longest.count());  // a signal ends it early
}

}  // namespace tandem::engine::zmq
