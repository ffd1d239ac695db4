#include "common/comm/gloo/mesh.h"

#include <gloo/common/error.h>
#include <gloo/transport/address.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "common/error.h"
#include "common/log.h"

namespace tandem::comm::gloo {
namespace {

constexpr std::uint64_t kControlSlot = 1;  // no group's: theirs are hashes
constexpr std::chrono::milliseconds kGoodbye{3000};
constexpr std::chrono::milliseconds kLastWords{1000};
constexpr std::chrono::milliseconds kNewsOfAbort{300};
constexpr std::chrono::milliseconds kAnswers{1000};

// Gloo writes to sockets without asking for no signal: a peer that has gone would end this process.
void survive_broken_pipes() {
    struct sigaction now {};
    if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

std::string address_key(int rank) {
    return "tandem/gloo/" + std::to_string(rank);
}

struct Counted {
    explicit Counted(std::atomic<int>& what) : count(what) { ++count; }
    ~Counted() { --count; }
    std::atomic<int>& count;
};

std::string names(const std::vector<int>& ranks) {
    std::string text;
    for (const int rank : ranks) text += (text.empty() ? "" : ", ") + Mesh::rank_name(rank);
    return text;
}

}  // namespace

struct Mesh::Message {
    // A rank that is asked answers from its listening thread: it waits itself, or it does not.
    enum class Kind : std::uint32_t { none, abort, goodbye, ask, waits, does_not_wait } kind = Kind::none;
    char who[64] = "";
    char reason[1024] = "";

    Span span() { return {reinterpret_cast<std::byte*>(this), sizeof(*this)}; }
};

Mesh::Mesh(Store& store, int rank, int size, const ListenAddress& address, Deadline deadline)
    : rank_(rank),
      size_(size),
      left_(static_cast<std::size_t>(size)),
      held_up_(static_cast<std::size_t>(size)) {
    survive_broken_pipes();
    try {
        ::gloo::transport::tcp::attr attributes;
        attributes.hostname = address.ip;
        device_ = ::gloo::transport::tcp::CreateDevice(attributes);
    } catch (const std::exception& error) {
        throw TransportError("the network", "rendezvous",
                             fmt::format("listening on {} (interface {}, from {}): {}", address.ip,
                                         address.interface, address.reason, error.what()));
    }
    connect(store, deadline);
    if (size_ > 1) listener_ = Thread("that listens to Gloo's peers", [this] { listen_to_peers(); });
}

// Each pair listens on a port of its own: a rank publishes one address a peer, of equal lengths, in rank
// order.
void Mesh::connect(Store& store, Deadline deadline) {
    context_ = device_->createContext(rank_, size_);
    // Gloo waits five times this long for a connection.
    context_->setTimeout(std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left()) / 5 +
                         std::chrono::milliseconds(1));
    std::string own;
    std::size_t length = 0;
    for (int peer = 0; peer < size_; ++peer) {
        if (peer != rank_) length = context_->createPair(peer)->address().bytes().size();
    }
    for (int peer = 0; peer < size_; ++peer) {
        std::vector<char> bytes(length);
        if (peer != rank_) bytes = context_->getPair(peer)->address().bytes();
        own.append(bytes.begin(), bytes.end());
    }
    store.set(address_key(rank_), own);
    std::vector<std::string> published(static_cast<std::size_t>(size_));
    std::vector<int> late;
    for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        try {
            published[static_cast<std::size_t>(peer)] = store.get(address_key(peer), deadline);
        } catch (const DeadlineExceeded&) {
            late.push_back(peer);
        }
    }
    if (!late.empty()) throw DeadlineExceeded(names(late), "rendezvous", "not there within the deadline");
    for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        const std::string& all = published[static_cast<std::size_t>(peer)];
        const std::size_t each = all.size() / static_cast<std::size_t>(size_);
        const char* mine = all.data() + each * static_cast<std::size_t>(rank_);
        try {
            context_->getPair(peer)->connect(std::vector<char>(mine, mine + each));
        } catch (const std::exception& error) {
            throw TransportError(rank_name(peer), "connect",
                                 fmt::format("{}; both hosts must reach each other on the interface chosen "
                                             "(TANDEM_IFACE names another)",
                                             error.what()));
        }
    }
}

Mesh::~Mesh() {
    Message goodbye;
    goodbye.kind = Message::Kind::goodbye;
    bool aborted = false;
    {
        const std::lock_guard lock(mutex_);
        aborted = aborted_;
    }
    if (!aborted && size_ > 1) tell_all(goodbye);
    {
        std::unique_lock lock(mutex_);
        const auto all_left = [&] {
            const auto left = std::count(left_.begin(), left_.end(), true);
            return aborted_ || left == size_ - 1;
        };
        changed_.wait_for(lock, kGoodbye, all_left);
    }
    // Messages that were sent should get out before the connections close.
    std::vector<Transfer> telling;
    {
        const std::lock_guard lock(mutex_);
        telling.swap(telling_);
    }
    Waits last_words;  // waits_ may have been woken for good
    const Deadline last = Deadline::after(kLastWords);
    for (Transfer& transfer : telling) last_words.wait(transfer, last);
    listener_waits_.wake_all();
    if (listener_.joinable()) listener_.join();
    telling.clear();
    context_.reset();
    device_.reset();
}

void Mesh::listen_to_peers() {
    for (;;) {
        Message message;
        try {
            Transfer transfer = Transfer::recv_any(*context_, message.span(), kControlSlot);
            int from = -1;
            const auto outcome =
                listener_waits_.wait(transfer, Deadline::after(std::chrono::hours(1000)), &from);
            if (outcome != Waits::Outcome::done) return;
            note(message, from);
        } catch (const std::exception& error) {
            log_debug("gloo: no more news of peers: {}", error.what());
            return;
        }
    }
}

void Mesh::note(const Message& message, int from) {
    {
        const std::lock_guard lock(mutex_);
        const auto peer = static_cast<std::size_t>(from);
        if (message.kind == Message::Kind::goodbye) left_[peer] = true;
        if (message.kind == Message::Kind::waits) held_up_[peer] = true;
        if (message.kind == Message::Kind::does_not_wait) held_up_[peer] = false;
        if (message.kind == Message::Kind::ask) {
            Message answer;
            answer.kind = waiting_ > 0 ? Message::Kind::waits : Message::Kind::does_not_wait;
            tell(from, answer);
        }
        if (message.kind == Message::Kind::abort && !aborted_) {
            aborted_ = true;
            abort_who_.assign(message.who, ::strnlen(message.who, sizeof(message.who)));
            abort_reason_.assign(message.reason, ::strnlen(message.reason, sizeof(message.reason)));
        }
        if (!aborted_) {
            changed_.notify_all();
            return;
        }
    }
    changed_.notify_all();
    waits_.wake_all();
}

void Mesh::tell_all(const Message& message) noexcept {
    const std::lock_guard lock(mutex_);
    for (int peer = 0; peer < size_; ++peer) {
        if (peer != rank_) tell(peer, message);
    }
}

bool Mesh::tell(int peer, const Message& message) noexcept {
    try {
        sent_.push_back(std::make_unique<Message>(message));
        telling_.push_back(Transfer::send(*context_, sent_.back()->span(), peer, kControlSlot));
        return true;
    } catch (const std::exception&) {
        return false;  // it has gone, and its own connections tell it
    }
}

void Mesh::abort_as(const std::string& who, const std::string& reason) noexcept {
    Message message;
    message.kind = Message::Kind::abort;
    {
        const std::lock_guard lock(mutex_);
        if (aborted_) return;
        aborted_ = true;
        std::memcpy(message.who, who.data(), std::min(who.size(), sizeof(message.who) - 1));
        std::memcpy(message.reason, reason.data(), std::min(reason.size(), sizeof(message.reason) - 1));
        abort_who_ = message.who;
        abort_reason_ = message.reason;
    }
    tell_all(message);
    changed_.notify_all();
    waits_.wake_all();
}

std::uint32_t Mesh::count_split(const std::string& name, const std::vector<int>& ranks) {
    const std::lock_guard lock(mutex_);
    return splits_[{name, ranks}]++;
}

std::optional<AbortNote> Mesh::aborted() const {
    const std::lock_guard lock(mutex_);
    if (!aborted_) return std::nullopt;
    return AbortNote{abort_who_, abort_reason_};
}

void Mesh::throw_if_aborted(std::string_view phase) const {
    const std::lock_guard lock(mutex_);
    if (aborted_) {
        throw TransportError(abort_who_, std::string(phase), "the job was aborted: " + abort_reason_);
    }
}

Transfer Mesh::send(ConstSpan memory, int peer, std::uint64_t slot, std::string_view phase) {
    try {
        return Transfer::send(*context_, memory, peer, slot);
    } catch (const ::gloo::Exception&) {
        fail_closed(peer, phase);
    }
}

Transfer Mesh::recv(Span memory, int peer, std::uint64_t slot, std::string_view phase) {
    try {
        return Transfer::recv(*context_, memory, peer, slot);
    } catch (const ::gloo::Exception&) {
        fail_closed(peer, phase);
    }
}

bool Mesh::is_late(Transfer& transfer, std::string_view phase, Deadline deadline) {
    switch (waits_.wait(transfer, deadline)) {
        case Waits::Outcome::done:
            break;
        case Waits::Outcome::woken:
            throw_if_aborted(phase);
            break;
        case Waits::Outcome::closed:
            fail_closed(transfer.peer(), phase);
        case Waits::Outcome::late:
            return true;
    }
    return false;
}

void Mesh::wait(std::span<Transfer> transfers, std::string_view phase, Deadline deadline) {
    const Counted counted(waiting_);
    std::vector<int> late;
    for (Transfer& transfer : transfers) {
        if (is_late(transfer, phase, deadline)) late.push_back(transfer.peer());
    }
    if (!late.empty()) fail_late(std::move(late), phase);
}

void Mesh::wait_first(std::span<Transfer> transfers, std::string_view phase, Deadline deadline) {
    const Counted counted(waiting_);
    if (is_late(transfers[0], phase, deadline)) wait(transfers, phase, deadline);
}

void Mesh::wait_for_abort(std::string_view phase, Deadline deadline) {
    {
        std::unique_lock lock(mutex_);
        changed_.wait_until(lock, deadline.at(), [&] { return aborted_; });
    }
    throw_if_aborted(phase);
    fail_late({rank_}, phase);
}

void Mesh::fail_late(std::vector<int> late, std::string_view phase) {
    std::sort(late.begin(), late.end());
    late.erase(std::unique(late.begin(), late.end()), late.end());
    late = without_held_up(late, phase);
    const std::string after = fmt::format("not there after {} s", double(timeout_ms.load()) / 1000);
    abort(fmt::format("{} with {}: {}", phase, names(late), after));
    throw DeadlineExceeded(names(late), std::string(phase), after);
}

// A rank in the middle of a collective is late for those a step ahead of it, while it waits for
// another that is not there at all: that one is to be named. Where all wait for each other, all are.
std::vector<int> Mesh::without_held_up(const std::vector<int>& late, std::string_view phase) {
    const auto answer_of = [&](int peer) -> std::optional<bool>& {
        return held_up_[static_cast<std::size_t>(peer)];
    };
    Message ask;
    ask.kind = Message::Kind::ask;
    std::unique_lock lock(mutex_);
    for (const int peer : late) {
        answer_of(peer).reset();
        if (peer == rank_ || !tell(peer, ask)) answer_of(peer) = false;
    }
    const auto answered = [&](int peer) { return answer_of(peer).has_value(); };
    changed_.wait_for(lock, kAnswers,
                      [&] { return aborted_ || std::all_of(late.begin(), late.end(), answered); });
    std::vector<int> missing;
    for (const int peer : late) {
        if (!answer_of(peer).value_or(false)) missing.push_back(peer);
    }
    const bool aborted = aborted_;
    lock.unlock();
    // A faster rank has asked the same question already, and the peers that it told do not wait any more.
    if (aborted) throw_if_aborted(phase);
    return missing.empty() ? late : missing;
}

// The peer may have ended because of an abort: its words are then on their way here.
void Mesh::fail_closed(int peer, std::string_view phase) {
    {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kNewsOfAbort, [&] { return aborted_; });
    }
    throw_if_aborted(phase);
    const std::string text = "its connection has closed";
    abort_as(rank_name(peer), text);
    throw TransportError(rank_name(peer), std::string(phase), text);
}

}  // namespace tandem::comm::gloo
