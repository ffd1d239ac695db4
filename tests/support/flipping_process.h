// A process that keeps changing one byte of memory that it shares with the test, between what it is and
// something else, as fast as it can: what a hostile peer does while its memory is read.
#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <stdexcept>
#include <thread>

namespace tandem::test {

class FlippingProcess {
  public:
    // The memory must be mapped already.
    FlippingProcess() {
        void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) throw std::runtime_error("mmap");
        shared_ = new (page) Shared;
        const pid_t parent = ::getpid();
        child_ = ::fork();
        if (child_ < 0) throw std::runtime_error("fork");
        if (child_ != 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(0);
        flip(*shared_);
    }
    ~FlippingProcess() {
        ::kill(child_, SIGKILL);
        ::waitpid(child_, nullptr, 0);
        ::munmap(shared_, 4096);
    }
    FlippingProcess(const FlippingProcess&) = delete;
    FlippingProcess& operator=(const FlippingProcess&) = delete;

    // From here on that byte is flipped, and no other; null: none. Its value now is one of the two.
    void move_to(std::byte* at) {
        point_to(nullptr);
        if (at == nullptr) return;
        shared_->value = *at;  // which the child does not look at meanwhile
        point_to(at);
    }
    // No longer; the byte has the value that it had.
    void stop() {
        std::byte* const at = shared_->at;
        point_to(nullptr);
        if (at != nullptr) *at = shared_->before;
    }

  private:
    void point_to(std::byte* at) {
        shared_->at = at;
        const auto by = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (shared_->flipped != at) {
            if (std::chrono::steady_clock::now() > by) throw std::runtime_error("the flipping process hangs");
            std::this_thread::yield();
        }
    }

    struct Shared {
        std::atomic<std::byte*> at{nullptr};
        std::atomic<std::byte*> flipped{nullptr};  // `at` as the child has last seen it
        std::atomic<std::byte> value{};
        std::byte before{};
    };

    // Each write takes the line away from its reader: at any moment, also between two reads that should have
    // been one.
    [[noreturn]] static void flip(Shared& shared) {
        for (unsigned random = 1;; random = random * 1'664'525u + 1'013'904'223u) {
            std::byte* const at = shared.at;
            if (at != nullptr) {
                const std::byte value = shared.value;
                shared.before = value;
                for (int i = 0; i < 16; ++i) {
                    *reinterpret_cast<volatile std::byte*>(at) = i % 2 == 0 ? ~value : value;
                    for (unsigned wait = random >> (2 * i) & 7u; wait > 0; --wait) __builtin_ia32_pause();
                }
            }
            shared.flipped = at;
        }
    }

    Shared* shared_ = nullptr;
    pid_t child_ = -1;
};

}  // namespace tandem::test
