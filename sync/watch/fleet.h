// The servers that a watch keeps at its newest version, each by a thread of its own: one that is slow, away or restarted
// holds up nobody else, and is brought up to date when it answers again. What a server holds is known by what was pushed into
// this incarnation of it, not by the version that it says it has.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/thread.h"
#include "sync/push/push.h"
#include "sync/watch/version_folders.h"

namespace tandem::sync {

// Each may be called from any thread, and by several at once.
struct FleetPorts {
    // restarted: since it was given a version, so that whatever it says it has, it may be given this one.
    std::function<ServerOutcome(const std::string& url, const Version& version, bool restarted)> push;
    // Its process: another text after each start; empty: it does not say. Throws Error where nobody answers.
    std::function<std::string(const std::string& url)> who;
};

// Called by one thread at a time.
struct FleetReports {
    // A version at all servers that it was to be brought to: those that failed are among them, and tried again.
    // again: at one, which was away or restarted.
    std::function<void(const Version& version, const std::vector<ServerOutcome>& outcomes, double seconds,
                       bool again)>
        brought;
    // Of a server, once for each text: that it failed, is away, was restarted.
    std::function<void(const std::string& url, const std::string& text)> trouble;
};

struct FleetTimes {
    std::chrono::milliseconds ask_every{1000};  // who it is
    std::chrono::milliseconds first_retry{1000};
    std::chrono::milliseconds longest_retry{5'000};
};

class Fleet {
  public:
    Fleet(const std::vector<std::string>& servers, FleetPorts ports, FleetReports reports,
          FleetTimes times = {});
    ~Fleet();  // stop()

    // From now on every server is to have this one. Returns at once.
    void bring(Version version);
    // The newest, once, where its files were written to while they were read: no server is given it any more.
    std::optional<Version> take_spoiled();
    // Every server has been tried with the newest version; whether all have it.
    bool tried() const;
    bool all_have_newest() const;

    struct Holding {
        std::string url;
        std::string name;          // of the version that it was given; empty: none
        std::int64_t version = 0;  // 0: none
        std::string trouble;       // the last
    };
    std::vector<Holding> holdings() const;
    // Waits for pushes that are at their commit; the others end by themselves (PushOptions::stop).
    void stop();

  private:
    using Clock = std::chrono::steady_clock;
    struct Round;   // one version's way to all servers
    struct Keeper;  // one server
    void keep(Keeper& keeper);
    void attempt(Keeper& keeper, std::unique_lock<std::mutex>& lock);
    void ask(Keeper& keeper, std::unique_lock<std::mutex>& lock);
    void end_attempt(Round& round, std::optional<ServerOutcome> outcome);
    void tell(Keeper& keeper, const std::string& text);

    FleetPorts ports_;
    FleetReports reports_;
    FleetTimes times_;
    mutable std::mutex mutex_;  // of all that follows
    std::condition_variable changed_;
    std::shared_ptr<Round> newest_;
    bool stopping_ = false;
    std::vector<std::unique_ptr<Keeper>> keepers_;
};

}  // namespace tandem::sync
