#include "sync/watch/fleet.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "common/stopwatch.h"

namespace tandem::sync {

struct Fleet::Round {
    Version version;
    Clock::time_point begun = Clock::now();
    std::size_t open = 0;  // servers that have not been tried, or are being
    std::vector<ServerOutcome> outcomes;
    bool spoiled = false, spoil_taken = false;
};

struct Fleet::Keeper {
    std::string url;
    std::shared_ptr<Round> held;   // what it was given, in this incarnation
    std::shared_ptr<Round> tried;  // the newest that it was tried with
    std::string incarnation;       // when it was given that
    bool restarted = false;
    bool away = false;
    Clock::time_point next_try, next_ask;
    std::chrono::milliseconds retry{0};
    std::string trouble;
    Thread thread;
};

// --- the threads

Fleet::Fleet(const std::vector<std::string>& servers, FleetPorts ports, FleetReports reports,
             FleetTimes times)
    : ports_(std::move(ports)), reports_(std::move(reports)), times_(times) {
    for (const std::string& url : servers) {
        keepers_.push_back(std::make_unique<Keeper>());
        keepers_.back()->url = url;
    }
    try {
        for (const auto& keeper : keepers_)
            keeper->thread = Thread("for " + keeper->url, [this, one = keeper.get()] { keep(*one); });
    } catch (const SystemError&) {
        stop();  // those that run
        throw;
    }
}

Fleet::~Fleet() {
    stop();
}

void Fleet::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    for (const auto& keeper : keepers_) keeper->thread.join();
}

// --- what the caller says and asks

void Fleet::bring(Version version) {
    const std::lock_guard lock(mutex_);
    const std::shared_ptr<Round> before = newest_;
    newest_ = std::make_shared<Round>();
    newest_->version = std::move(version);
    newest_->open = keepers_.size();
    for (const auto& keeper : keepers_) {
        // Those that were not tried with the one before are not any more.
        if (before && keeper->tried != before) end_attempt(*before, {});
        keeper->next_try = {};
        keeper->retry = times_.first_retry;
    }
    if (before)
        before->version.weights.reset();  // its files may be gone: their room on the disk is given back
    changed_.notify_all();
}

std::optional<Version> Fleet::take_spoiled() {
    const std::lock_guard lock(mutex_);
    if (!newest_ || !newest_->spoiled || std::exchange(newest_->spoil_taken, true)) return {};
    return newest_->version;
}

bool Fleet::tried() const {
    const std::lock_guard lock(mutex_);
    return newest_ && newest_->open == 0;
}

bool Fleet::all_have_newest() const {
    const std::lock_guard lock(mutex_);
    return std::ranges::all_of(keepers_, [&](const auto& keeper) { return keeper->held == newest_; });
}

std::vector<Fleet::Holding> Fleet::holdings() const {
    const std::lock_guard lock(mutex_);
    std::vector<Holding> holdings;
    for (const auto& keeper : keepers_) {
        Holding holding{keeper->url, "", 0, keeper->trouble};
        if (keeper->held) {
            holding.name = keeper->held->version.name;
            holding.version = keeper->held->version.number;
        }
        holdings.push_back(std::move(holding));
    }
    return holdings;
}

// --- a server's thread: bring it the newest version, or see whether it still has it

void Fleet::keep(Keeper& keeper) {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        const auto now = Clock::now();
        const bool wanted = newest_ && keeper.held != newest_ && !newest_->spoiled;
        if (wanted && now >= keeper.next_try) {
            attempt(keeper, lock);
        } else if (keeper.held && now >= keeper.next_ask) {
            ask(keeper, lock);
        } else {
            auto until = now + times_.ask_every;
            if (wanted) until = std::min(until, keeper.next_try);
            if (keeper.held) until = std::min(until, keeper.next_ask);
            changed_.wait_until(lock, until);
        }
    }
}

// Unlocks while the server is spoken to.
void Fleet::attempt(Keeper& keeper, std::unique_lock<std::mutex>& lock) {
    const std::shared_ptr<Round> round = newest_;
    const bool first = std::exchange(keeper.tried, round) != round;
    const auto begun = Clock::now();
    std::string incarnation;
    ServerOutcome outcome;
    const Version version = round->version;
    lock.unlock();
    try {
        // Before the push: one that is restarted meanwhile is found to be another one.
        incarnation = ports_.who(keeper.url);
        outcome = ports_.push(keeper.url, version, keeper.restarted);
    } catch (const std::exception& error) {
        outcome.error = error.what();
    }
    outcome.url = keeper.url;
    lock.lock();
    if (outcome.whole) {
        keeper.held = round;
        keeper.incarnation = incarnation;
        keeper.restarted = keeper.away = false;
        keeper.trouble.clear();
        keeper.next_ask = Clock::now() + times_.ask_every;
    } else {
        round->spoiled = round->spoiled || !version.weights->changed_file().empty();
        keeper.next_try = Clock::now() + keeper.retry;
        keeper.retry = std::min(2 * keeper.retry, times_.longest_retry);
        tell(keeper, outcome.error);
    }
    if (first) {
        end_attempt(*round, std::move(outcome));
    } else if (outcome.whole) {
        reports_.brought(round->version, {outcome}, ms_since(begun) / 1e3, true);
    }
}

// One server less that the version is to be brought to; reports the last.
void Fleet::end_attempt(Round& round, std::optional<ServerOutcome> outcome) {
    if (outcome) round.outcomes.push_back(std::move(*outcome));
    if (--round.open > 0 || round.outcomes.empty()) return;
    reports_.brought(round.version, round.outcomes, ms_since(round.begun) / 1e3, false);
}

void Fleet::ask(Keeper& keeper, std::unique_lock<std::mutex>& lock) {
    std::optional<std::string> who;
    std::string why;
    lock.unlock();
    try {
        who = ports_.who(keeper.url);
    } catch (const std::exception& error) {
        why = error.what();
    }
    lock.lock();
    keeper.next_ask = Clock::now() + times_.ask_every;
    if (!who) {
        keeper.away = true;
        return tell(keeper, why);
    }
    const bool says = !who->empty();
    // One that does not say who it is, and was away, may be another one.
    if (says ? *who != keeper.incarnation : keeper.away) {
        keeper.held.reset();
        keeper.restarted = true;
        keeper.next_try = {};
        keeper.retry = times_.first_retry;
        tell(keeper, says ? "it was restarted" : "it was away, and may have been restarted");
    } else if (keeper.away) {
        keeper.trouble.clear();
    }
    keeper.away = false;
}

void Fleet::tell(Keeper& keeper, const std::string& text) {
    if (std::exchange(keeper.trouble, text) != text) reports_.trouble(keeper.url, text);
}

}  // namespace tandem::sync
