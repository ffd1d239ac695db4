#include "engine_adapter/transport/tcp/sender.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "common/error.h"
#include "engine_adapter/transport/tcp/dial.h"
#include "engine_adapter/transport/tcp/handshake.h"

namespace tandem::engine {
namespace {

// What a connection takes at a time: large beside a header and a lock, small beside a bucket.
constexpr std::uint64_t kChunk = 256 << 10;

// Blocks until the system has all of it.
void send_all(int socket, std::vector<iovec>& list) {
    std::size_t first = 0;
    while (first < list.size()) {
        msghdr message{};
        message.msg_iov = list.data() + first;
        message.msg_iovlen = list.size() - first;
        const ssize_t n = ::sendmsg(socket, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw SystemError("sendmsg", errno);
        auto sent = static_cast<std::size_t>(n);
        for (; first < list.size() && sent >= list[first].iov_len; ++first) sent -= list[first].iov_len;
        if (sent == 0) continue;
        list[first].iov_base = static_cast<char*>(list[first].iov_base) + sent;
        list[first].iov_len -= sent;
    }
}

}  // namespace

TcpSender::TcpSender(std::vector<FileDescriptor> sockets) : sockets_(std::move(sockets)) {
    try {
        for (const FileDescriptor& socket : sockets_)
            threads_.emplace_back("that sends weights", [this, fd = socket.get()] { run(fd); });
    } catch (...) {
        stop();
        throw;
    }
}

TcpSender::~TcpSender() {
    stop();
}

void TcpSender::stop() noexcept {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    for (const FileDescriptor& socket : sockets_) ::shutdown(socket.get(), SHUT_RDWR);
    threads_.clear();
}

void TcpSender::post(std::uint64_t serial, PackedBucket bucket) {
    if (bucket.bytes() == 0) return;
    {
        const std::lock_guard lock(mutex_);
        jobs_.push_back({serial, std::move(bucket)});
    }
    changed_.notify_all();
}

bool TcpSender::wait_sent(std::uint64_t serial, Deadline deadline) {
    std::unique_lock lock(mutex_);
    const auto sent = [&] {
        return std::none_of(jobs_.begin(), jobs_.end(), [&](const Job& job) { return job.serial == serial; });
    };
    sent_.wait_until(lock, deadline.at(), [&] { return sent() || !failure_.empty(); });
    return sent();
}

std::string TcpSender::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

void TcpSender::run(int socket) try {
    std::vector<iovec> list;
    std::vector<std::byte> scratch;
    const auto open_job = [this] {
        return std::find_if(jobs_.begin(), jobs_.end(),
                            [](const Job& job) { return job.taken < job.bucket.bytes(); });
    };
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return stopping_ || open_job() != jobs_.end(); });
        if (stopping_) return;
        const auto job = open_job();
        tcp::FrameHeader header;
        header.serial = job->serial;
        header.offset = job->taken;
        header.total = job->bucket.bytes();
        header.bytes = std::min(kChunk, header.total - header.offset);
        job->taken += header.bytes;
        ++job->working;
        lock.unlock();
        job->bucket.pieces(header.offset, header.offset + header.bytes, list, scratch);
        list.insert(list.begin(), {&header, sizeof(header)});
        send_all(socket, list);
        lock.lock();
        if (--job->working > 0 || job->taken < header.total) continue;
        jobs_.erase(job);
        sent_.notify_all();
    }
} catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty() && !stopping_)
        failure_ = fmt::format("data connection to {}: {}", tcp::peer_name(socket), error.what());
    sent_.notify_all();
}

}  // namespace tandem::engine
