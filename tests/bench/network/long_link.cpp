// A link of a given rate and delay between two network namespaces, in user space, for kernels without netem: a TUN device
// in each, and two threads for each direction that pass packets on, each after its turn at the rate and the delay.
// Packets are what TCP hands down (up to 64 KiB: segmentation is left to nobody), so that a core carries gigabytes a
// second. What finds the queue full is dropped.
//
//   long_link NAMESPACE_A NAMESPACE_B GBIT_PER_S ROUND_TRIP_MS      devices "long0" there, up and without addresses
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kLargestPacket = 65536 + 64;

void check(bool ok, const std::string& what) {
    if (!ok) throw std::runtime_error(what + ": " + std::strerror(errno));
}

int open_tun(const std::string& name_of_namespace) {
    const int there = ::open(("/run/netns/" + name_of_namespace).c_str(), O_RDONLY | O_CLOEXEC);
    check(there >= 0 && ::setns(there, CLONE_NEWNET) == 0, "network namespace " + name_of_namespace);
    ::close(there);
    const int tun = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    check(tun >= 0, "/dev/net/tun");
    ifreq request{};
    std::strcpy(request.ifr_name, "long0");
    request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    check(::ioctl(tun, TUNSETIFF, &request) == 0, "TUNSETIFF");
    check(::ioctl(tun, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) == 0, "TUNSETOFFLOAD");
    return tun;
}

class Direction {
  public:
    Direction(int from, int to, double bytes_per_s, Clock::duration delay)
        : from_(from),
          to_(to),
          bytes_per_s_(bytes_per_s),
          delay_(delay),
          // Twice what is on the way at any time.
          limit_(static_cast<std::size_t>(2 * bytes_per_s * std::chrono::duration<double>(delay).count()) +
                 (8 << 20)) {}
    void start() {
        std::thread([this] { take(); }).detach();
        std::thread([this] { pass_on(); }).detach();
    }

  private:
    struct Packet {
        std::vector<char> bytes;
        Clock::time_point due;
    };
    void take() {
        for (;;) {
            Packet packet{reused(), {}};
            packet.bytes.resize(kLargestPacket);
            const ssize_t n = ::read(from_, packet.bytes.data(), packet.bytes.size());
            if (n <= 0) continue;
            packet.bytes.resize(static_cast<std::size_t>(n));
            const auto now = Clock::now();
            if (free_at_ < now) free_at_ = now;
            free_at_ += std::chrono::duration_cast<Clock::duration>(
                std::chrono::duration<double>(static_cast<double>(n) / bytes_per_s_));
            packet.due = free_at_ + delay_;
            const std::lock_guard lock(mutex_);
            if (queued_ + packet.bytes.size() > limit_) continue;
            queued_ += packet.bytes.size();
            queue_.push_back(std::move(packet));
            changed_.notify_one();
        }
    }
    void pass_on() {
        for (;;) {
            Packet packet;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [this] { return !queue_.empty(); });
                packet = std::move(queue_.front());
                queue_.pop_front();
                queued_ -= packet.bytes.size();
            }
            std::this_thread::sleep_until(packet.due);
            if (::write(to_, packet.bytes.data(), packet.bytes.size()) < 0) std::perror("long_link: write");
            const std::lock_guard lock(mutex_);
            if (spare_.size() < 64) spare_.push_back(std::move(packet.bytes));
        }
    }
    std::vector<char> reused() {
        const std::lock_guard lock(mutex_);
        if (spare_.empty()) return {};
        std::vector<char> bytes = std::move(spare_.back());
        spare_.pop_back();
        return bytes;
    }

    const int from_, to_;
    const double bytes_per_s_;
    const Clock::duration delay_;
    const std::size_t limit_;
    Clock::time_point free_at_{};
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Packet> queue_;
    std::size_t queued_ = 0;  // bytes
    std::vector<std::vector<char>> spare_;
};

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 5)
        throw std::runtime_error("usage: long_link NAMESPACE_A NAMESPACE_B GBIT_PER_S ROUND_TRIP_MS");
    const double bytes_per_s = std::stod(argv[3]) * 1e9 / 8;
    const auto delay = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double, std::milli>(std::stod(argv[4]) / 2));
    const int a = open_tun(argv[1]), b = open_tun(argv[2]);
    Direction there(a, b, bytes_per_s, delay), back(b, a, bytes_per_s, delay);
    there.start();
    back.start();
    std::puts("ready");
    std::fflush(stdout);
    for (;;) ::pause();
} catch (const std::exception& error) {
    std::fprintf(stderr, "long_link: %s\n", error.what());
    return 1;
}
