// Stands between trainers and the engine's receiver and forwards their messages, descriptors too; at random it loses
// one, says it twice, is late with it or cuts the connection.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine_adapter/channel/channel.h"

namespace tandem::fire {

class Proxy {
  public:
    explicit Proxy(std::uint64_t seed);
    ~Proxy();
    Proxy(const Proxy&) = delete;
    Proxy& operator=(const Proxy&) = delete;

    const std::string& address() const { return listener_.address; }
    void forward_to(const std::string& receiver);  // connections from now on
    void be_faithful() { faithful_ = true; }       // no faults any more
    std::string counts() const;                    // of what it did, for people

  private:
    enum class Fault { none, lost, cut, cut_after, twice, late, too_late };
    static constexpr std::size_t kFaults = 7;

    void accept_all();
    void serve(FileDescriptor socket, std::uint64_t seed);
    Fault choose(std::uint64_t random);

    engine::Listener listener_ = engine::listen_abstract();
    FileDescriptor stop_;  // readable: end
    std::atomic<bool> faithful_{false};
    std::array<std::atomic<std::int64_t>, kFaults> counts_{};
    mutable std::mutex mutex_;
    std::string receiver_;
    std::uint64_t seed_;
    std::vector<std::thread> connections_;  // added to by acceptor_ alone
    std::thread acceptor_;
};

}  // namespace tandem::fire
