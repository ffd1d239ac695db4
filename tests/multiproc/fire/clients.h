// Those who want samples, whatever happens: threads that ask without pause from construction to stop(), and one that
// tells for which share of the time the engine could generate.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/multiproc/e2e/rig.h"

namespace tandem::fire {

class Clients {
  public:
    Clients(const std::string& url, int count);
    ~Clients() { stop(); }
    Clients(const Clients&) = delete;
    Clients& operator=(const Clients&) = delete;

    std::vector<e2e::Sample> take();  // a few of those that have come; empty: there are no more
    void stop();
    std::int64_t newest_version() const { return newest_version_; }
    // After stop(): refusals, by what was said, numbers aside; questions that nobody answered in time.
    const std::map<std::string, int>& refusals() const { return refusals_; }
    int unanswered() const { return unanswered_; }

  private:
    // Clients wait while so many have not been taken: who checks them must keep up.
    static constexpr std::size_t kAhead = 100;
    void run(const std::string& url, std::uint64_t client);
    bool far_ahead();

    std::atomic<bool> stopping_{false};
    std::atomic<std::int64_t> newest_version_{0};
    std::mutex mutex_;
    std::vector<e2e::Sample> samples_;
    std::map<std::string, int> refusals_;
    int unanswered_ = 0;
    std::vector<std::thread> threads_;
};

// Asks for one token every 10 ms. The engine could generate while answers came less than kGap apart.
class Availability {
  public:
    explicit Availability(const std::string& url);
    ~Availability() { stop(); }
    Availability(const Availability&) = delete;
    Availability& operator=(const Availability&) = delete;

    void stop();
    double share() const;  // of the time since the first answer
    double longest_gap_s() const { return longest_; }

  private:
    static constexpr std::chrono::milliseconds kGap{50};
    void run(const std::string& url);

    std::atomic<bool> stopping_{false};
    double able_ = 0;  // seconds
    double unable_ = 0;
    double longest_ = 0;
    std::thread thread_;
};

}  // namespace tandem::fire
