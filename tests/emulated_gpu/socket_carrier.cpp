// Ranks of one host, in processes or threads of their own. Rank r listens at an abstract address made of the
// id and r, and connects to the ranks below it: one connection a pair. Both sides know the order and the
// lengths of messages.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "common/error.h"
#include "tests/emulated_gpu/carrier.h"

namespace tandem::comm::nccl::stand_in {
namespace {

constexpr int kLookMs = 5;  // at the abort flag

sockaddr_un address_of(const std::string& id, int rank, socklen_t& length) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const int used =
        std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "%s.%d", id.c_str(), rank);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(used));
    return address;
}

class Sockets final : public Carrier {
  public:
    Sockets(std::string id, int rank, int size)
        : id_(std::move(id)), rank_(rank), size_(size), listener_(listen_at(id_, rank, size)) {
        joining_ = std::thread([this] { join(); });
    }
    ~Sockets() override {
        abort();
        for (const auto& [peer, fd] : sockets_) ::close(fd);
        ::close(listener_);
    }
    Sockets(const Sockets&) = delete;
    Sockets& operator=(const Sockets&) = delete;

    bool joined() override { return joined_; }

    void abort() override {
        aborted_ = true;
        if (joining_.joinable()) joining_.join();
    }

    bool move(const std::vector<Transfer>& transfers) override {
        std::map<std::pair<int, bool>, std::vector<const Transfer*>> lanes;
        for (const Transfer& transfer : transfers)
            lanes[{transfer.peer, transfer.sending}].push_back(&transfer);
        const auto to_self = lanes[{rank_, true}];
        const auto from_self = lanes[{rank_, false}];
        for (std::size_t i = 0; i < std::min(to_self.size(), from_self.size()); ++i)
            std::memcpy(from_self[i]->data, to_self[i]->data, from_self[i]->bytes);
        lanes.erase({rank_, true});
        lanes.erase({rank_, false});
        std::vector<std::thread> threads;
        for (const auto& [key, lane] : lanes) {
            threads.emplace_back([this, &lane] {
                for (const Transfer* transfer : lane) exchange(*transfer);
            });
        }
        for (std::thread& thread : threads) thread.join();
        return !aborted_;
    }

  private:
    static int listen_at(const std::string& id, int rank, int size) {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) throw SystemError("socket", errno);
        socklen_t length = 0;
        const sockaddr_un address = address_of(id, rank, length);
        if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0 || ::listen(fd, size) != 0) {
            const int error = errno;
            ::close(fd);
            throw SystemError("bind and listen", error);
        }
        return fd;
    }

    int connect_to(int peer) const {
        socklen_t length = 0;
        const sockaddr_un address = address_of(id_, peer, length);
        while (!aborted_) {
            const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
                ::send(fd, &rank_, sizeof(rank_), MSG_NOSIGNAL) == sizeof(rank_))
                return fd;
            ::close(fd);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return -1;
    }

    void join() {
        for (int peer = 0; peer < rank_; ++peer) {
            const int fd = connect_to(peer);
            if (fd < 0) return;
            sockets_[peer] = fd;
        }
        while (static_cast<int>(sockets_.size()) < size_ - 1) {
            if (aborted_) return;
            pollfd one{listener_, POLLIN, 0};
            if (::poll(&one, 1, kLookMs) <= 0) continue;
            const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
            int peer = -1;
            if (fd < 0) continue;
            if (::recv(fd, &peer, sizeof(peer), MSG_WAITALL) == sizeof(peer) && peer > rank_ &&
                peer < size_) {
                sockets_[peer] = fd;
            } else {
                ::close(fd);
            }
        }
        joined_ = true;
    }

    // Moves all of it; false when the communicator was aborted or the peer is gone.
    bool transfer(int fd, std::byte* data, std::size_t bytes, bool sending) const {
        while (bytes > 0) {
            if (aborted_) return false;
            const ssize_t n = sending ? ::send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                                      : ::recv(fd, data, bytes, MSG_DONTWAIT);
            if (n > 0) {
                data += n;
                bytes -= static_cast<std::size_t>(n);
            } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
                return false;
            } else {
                pollfd one{fd, static_cast<short>(sending ? POLLOUT : POLLIN), 0};
                ::poll(&one, 1, kLookMs);
            }
        }
        return true;
    }

    void exchange(const Transfer& one) const {
        if (transfer(sockets_.at(one.peer), one.data, one.bytes, one.sending)) return;
        while (!aborted_) std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }

    const std::string id_;
    const int rank_;
    const int size_;
    const int listener_;
    std::map<int, int> sockets_;  // peer -> connection
    std::atomic<bool> aborted_{false};
    std::atomic<bool> joined_{false};
    std::thread joining_;
};

}  // namespace

std::shared_ptr<Carrier> over_sockets(const std::string& id, int rank, int size) {
    return std::make_shared<Sockets>(id, rank, size);
}

}  // namespace tandem::comm::nccl::stand_in
