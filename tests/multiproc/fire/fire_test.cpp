// A hostile day: an engine that generates, trainers that push every 100 ms through a proxy that loses, repeats, delays
// and cuts, while everybody is killed and frozen at random. It costs time and nothing else: every sample is made by
// the one version that it names, nobody hangs, nothing is left behind. TANDEM_FIRE_SECONDS: for how long in each mode.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

#include "sync/session/modes.h"
#include "tests/multiproc/fire/clients.h"
#include "tests/multiproc/fire/engine.h"
#include "tests/multiproc/fire/proxy.h"
#include "tests/multiproc/fire/trainer.h"
#include "tests/multiproc/sync/footprint.h"
#include "tests/support/eventually.h"
#include "tests/support/named_shared_memory.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::fire {
namespace {

using std::chrono::milliseconds;
using sync::Mode;
using test::eventually;

constexpr double kTolerance = 1e-5;
constexpr milliseconds kFrozenForLong{kLeaseMs + 1500};
// A push may wait for pause, begin, transfer, commit, abort and resume in turn, and be frozen meanwhile.
constexpr std::int64_t kLongestPushMs = 7 * kPatienceMs + kFrozenForLong.count() + 2000;

std::chrono::seconds duration() {
    const char* text = std::getenv("TANDEM_FIRE_SECONDS");
    return std::chrono::seconds(text == nullptr ? 4 : std::strtol(text, nullptr, 10));
}

class Fire : public testing::TestWithParam<Mode> {
  protected:
    Fire() {
        proxy_.address().copy(board_->address.data(), board_->address.size() - 1);
        sockets_at_rest_ = sync::sockets_of(engine_.pid());
    }

    void one_fault() {
        const auto freeze = [this](milliseconds least, milliseconds most) {
            std::this_thread::sleep_for(
                milliseconds(std::uniform_int_distribution<long>(least.count(), most.count())(random_)));
        };
        const int rank = static_cast<int>(random_() % 2);
        const auto kind = random_() % 100;
        if (kind < 25) {
            ++faults_["killed a rank"];
            trainer_->signal(rank, SIGKILL);
        } else if (kind < 50) {
            ++faults_["froze a rank"];
            trainer_->signal(rank, SIGSTOP);
            freeze(milliseconds(20), milliseconds(800));
            trainer_->signal(rank, SIGCONT);
        } else if (kind < 60) {
            ++faults_["froze a trainer past its lease, beside another"];
            for (const int r : {0, 1}) trainer_->signal(r, SIGSTOP);
            Trainer other(GetParam(), board_);
            std::this_thread::sleep_for(kFrozenForLong);
            for (const int r : {0, 1}) trainer_->signal(r, SIGCONT);
            std::this_thread::sleep_for(milliseconds(random_() % 1000));
            expect_no_crash(other);
        } else if (kind < 80) {
            ++faults_["froze the engine"];
            engine_.signal(SIGSTOP);
            freeze(milliseconds(20), milliseconds(600));
            engine_.signal(SIGCONT);
        } else if (kind < 90) {
            ++faults_["froze the engine past the deadline"];
            engine_.signal(SIGSTOP);
            freeze(milliseconds(kPatienceMs), milliseconds(2 * kPatienceMs));
            engine_.signal(SIGCONT);
        } else {
            ++faults_["killed the engine"];
            engine_.kill_and_restart();
        }
    }

    // False when there was nothing to check.
    bool check_a_few(Clients& clients) {
        const std::vector<e2e::Sample> samples = clients.take();
        for (const e2e::Sample& sample : samples) {
            ++checked_;
            versions_.insert(sample.version);
            EXPECT_EQ(sample.output.size(), sample.logprobs.size());
            EXPECT_FALSE(sample.output.empty());
            for (std::size_t set = 0; set < sets_.count(); ++set) {
                const bool fits = sets_.misfit(sample, set) <= kTolerance;
                EXPECT_EQ(fits, set == sets_.of_version(sample.version))
                    << "version " << sample.version << ", set " << set << ", " << sample.output.size()
                    << " tokens";
            }
        }
        return !samples.empty();
    }

    static void expect_no_crash(Trainer& trainer) { EXPECT_THAT(trainer.crashes(), testing::IsEmpty()); }

    // A sample of a version that was pushed from now on.
    bool healed(Clients& clients) {
        const std::int64_t now = board_->version;
        return eventually([&] {
            check_a_few(clients);
            return clients.newest_version() > now;
        });
    }

    void expect_nothing_left() {
        EXPECT_TRUE(eventually([&] { return sync::sockets_of(engine_.pid()) <= sockets_at_rest_; }))
            << sync::sockets_of(engine_.pid()) << " sockets, " << sockets_at_rest_ << " at first";
        std::vector<std::string> still;  // what it reads in place
        if (GetParam() == Mode::alias) still = {"alias arena"};
        EXPECT_TRUE(eventually([&] { return sync::shared_memory_of(engine_.pid()) == still; }))
            << testing::PrintToString(sync::shared_memory_of(engine_.pid())) << " is mapped";
        EXPECT_EQ(engine_.terminate(), 0) << engine_.log();
        EXPECT_THAT(sync::shared_memory_of(::getpid()), testing::IsEmpty());
        test::expect_no_shared_memory_left(named_before_);
        EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    }

    const std::set<std::string> named_before_ = test::named_shared_memory();
    std::mt19937_64 random_{static_cast<unsigned>(GetParam()) + 10u};
    BoardMemory board_;
    Proxy proxy_{random_()};
    Engine engine_{proxy_};
    e2e::WeightSets sets_{engine::tiny_config(), 3};
    std::unique_ptr<Trainer> trainer_;
    int sockets_at_rest_ = 0;
    std::int64_t checked_ = 0;
    std::set<std::int64_t> versions_;
    std::map<std::string, int> faults_;
};

TEST_P(Fire, EverySampleIsOfOneVersionAndNobodyHangs) {
    trainer_ = std::make_unique<Trainer>(GetParam(), board_);
    ASSERT_TRUE(eventually([&] { return board_->pushes > 0; }));
    Clients clients(engine_.url(), 3);
    Availability availability(engine_.url());

    const Deadline end = Deadline::after(duration());
    while (!end.passed() && !HasFailure()) {
        const Deadline next = Deadline::after(milliseconds(300 + random_() % 1700));
        while (!next.passed()) {
            if (!check_a_few(clients)) std::this_thread::sleep_for(milliseconds(5));
        }
        one_fault();
        EXPECT_TRUE(engine_.running()) << engine_.log();
    }

    proxy_.be_faithful();
    EXPECT_TRUE(healed(clients)) << engine_.log();
    availability.stop();
    clients.stop();
    while (check_a_few(clients)) {
    }
    board_->stop = true;
    EXPECT_EQ(trainer_->end(), 0);
    expect_no_crash(*trainer_);
    EXPECT_EQ(clients.unanswered(), 0);
    EXPECT_LT(board_->longest_ms, kLongestPushMs);
    expect_nothing_left();

    std::printf("%s: %lld pushes, %lld failed, %lld sessions, %d trainers; longest push %lld ms\n",
                std::string(sync::mode_name(GetParam())).c_str(), static_cast<long long>(board_->pushes),
                static_cast<long long>(board_->failures), static_cast<long long>(board_->sessions),
                trainer_->starts(), static_cast<long long>(board_->longest_ms));
    std::printf("  messages: %s\n  faults: ", proxy_.counts().c_str());
    for (const auto& [fault, times] : faults_) std::printf("%s: %d; ", fault.c_str(), times);
    std::printf(
        "\n  %lld samples of %zu versions, none mixed; could generate %.1f %% of the time, longest gap %.1f "
        "s\n",
        static_cast<long long>(checked_), versions_.size(), 100 * availability.share(),
        availability.longest_gap_s());
    for (const auto& [refusal, times] : clients.refusals())
        std::printf("  %d x %s\n", times, refusal.c_str());
}

INSTANTIATE_TEST_SUITE_P(Modes, Fire, testing::Values(Mode::gather, Mode::direct, Mode::alias, Mode::delta),
                         [](const auto& info) { return std::string(sync::mode_name(info.param)); });

}  // namespace
}  // namespace tandem::fire
