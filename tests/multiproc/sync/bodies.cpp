#include "tests/multiproc/sync/bodies.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/log.h"
#include "tests/multiproc/sync/board.h"
#include "tests/multiproc/sync/footprint.h"
#include "tests/multiproc/sync/rank.h"

namespace tandem::sync {
namespace {

using Clock = std::chrono::steady_clock;

int fail(const std::string& why) {
    std::fprintf(stderr, "rank %d: %s\n", comm::rank_environment().rank, why.c_str());
    return 1;
}

int push() {
    Rank rank;
    rank.connect(setting("TEST_ENGINE"));
    for (int version = 1; version <= 2; ++version) {
        const SyncReport report = rank.push(version);
        if (report.staging_bytes > 2 * std::stoul(setting("TEST_BUCKET")))
            return fail("staging is above its cap");
        if (memory_stats("staging").peak_bytes > 2 * std::stoul(setting("TEST_BUCKET")))
            return fail("staging peaked above its cap");
        const WeightsMatch match = rank.session().weights_match();
        if (!match.match) return fail("the engine differs in " + match.first_mismatch);
    }
    return 0;
}

int corrupt() {
    bool now = false;
    SessionOptions options;
    options.before_load = [&now](int bucket, Span slot) {
        if (now && bucket == 2) slot.data[100] ^= std::byte{4};
    };
    Rank rank;
    rank.connect(setting("TEST_ENGINE"), options);
    rank.push(1);
    now = true;
    try {
        rank.push(2);
        return fail("a corrupted bucket passed");
    } catch (const SyncError& error) {
        const std::string what = error.what();
        const bool names = what.find("bucket 2: tensor '") != std::string::npos &&
                           what.find("from rank 0 is corrupted") != std::string::npos;
        if (!names || error.bucket() != 2 || error.phase() != "load") return fail("unclear error: " + what);
    }
    now = false;
    rank.push(3);
    return rank.session().weights_match().match ? 0 : fail("the push after the failed one did not heal");
}

class Rounds {
  public:
    Rounds()
        : board_(setting("TEST_BOARD")),
          mine_(board_->ranks.at(static_cast<std::size_t>(rank_.world().rank()))) {
        set_log_level(LogLevel::error);
    }

    int run() {
        for (int round = 1;; ++round) {
            while (board_->round.load() < round) std::this_thread::sleep_for(std::chrono::microseconds(500));
            try {
                play();
                mine_.rounds = round;
                if (board_->last) return 0;
            } catch (const SyncError& error) {
                note(error);
            } catch (const Error& error) {
                note(error);
                return kJobLost;
            }
        }
    }

  private:
    void play() {
        if (board_->engine[0] != '\0') {
            SessionOptions options;
            if (!Rank::relayed()) options.before_load = [this](int bucket, Span) { hold(bucket); };
            rank_.connect(board_->engine.data(), options);
        }
        if (board_->first > 0) version_ = board_->first - 1;
        for (int done = 0; board_->pushes == 0 || done < board_->pushes; ++done) {
            const auto start = Clock::now();
            rank_.push(++version_);
            mine_.took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
            ++mine_.pushes;
        }
        const WeightsMatch match = rank_.session().weights_match();
        if (!match.match) throw ProtocolError("the engine differs in " + match.first_mismatch);
    }

    void hold(int bucket) {
        if (bucket == 0 || board_->hold_bucket.load() != bucket) return;
        board_->held = true;
        while (board_->hold_bucket.load() == bucket)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    void note(const std::exception& error) {
        const std::string text = error.what();
        mine_.message.fill('\0');
        std::copy_n(text.begin(), std::min(text.size(), mine_.message.size() - 1), mine_.message.begin());
        ++mine_.failures;
    }

    Rank rank_;
    BoardMemory board_;
    Board::RankPart& mine_;
    std::int64_t version_ = 0;
};

int many() {
    Rank rank;
    const int pushes = std::stoi(setting("TEST_MANY"));
    std::int64_t version = 0;
    for (const Mode mode : {Mode::gather, Mode::direct, Mode::alias, Mode::delta}) {
        rank.connect(setting("TEST_ENGINE"), {}, mode);
        std::vector<Footprint> after_ten;
        for (int i = 1; i <= pushes; ++i) {
            rank.push(++version);
            if (i != 10 && i != pushes) continue;
            rank.world().barrier();
            std::vector<Footprint> now{footprint("self")};
            if (rank.world().rank() == 0) now.push_back(footprint(setting("TEST_ENGINE_PID")));
            rank.world().barrier();
            if (i == 10) after_ten = now;
            if (i != pushes) continue;
            for (std::size_t p = 0; p < now.size(); ++p) {
                const std::string grown = growth(after_ten[p], now[p]);
                if (!grown.empty())
                    return fail(fmt::format("{}, {}: {}", mode_name(mode),
                                            p == 0 ? "this rank" : "the engine", grown));
            }
        }
        if (!rank.session().weights_match().match) return fail("the engine differs");
    }
    return 0;
}

}  // namespace

int run_body(const std::string& name) {
    if (name == "push") return push();
    if (name == "corrupt") return corrupt();
    if (name == "rounds") return Rounds().run();
    if (name == "many") return many();
    return fail("no body '" + name + "'");
}

}  // namespace tandem::sync
