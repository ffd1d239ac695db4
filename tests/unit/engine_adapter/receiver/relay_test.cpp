// Buckets by a relay, as the receiver takes them: from words that the tests write as a trainer's ranks would.
#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "common/cores.h"
#include "engine_adapter/receiver/relay_lanes.h"
#include "tests/support/eventually.h"
#include "tests/unit/engine_adapter/receiver/receiver_rig.h"

namespace tandem::engine {
namespace {

using test::eventually;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kRanks = 3;

class WordsMemory {
  public:
    explicit WordsMemory(std::size_t ranks = kRanks, std::size_t engines = 2)
        : arena_(SharedArena::create("words", RelayWords::bytes(ranks, engines))),
          words_(arena_.span(), ranks, engines) {}
    const RelayWords& operator*() const { return words_; }
    const RelayWords* operator->() const { return &words_; }
    Region region() const { return {arena_.span(), arena_.fd()}; }

  private:
    SharedArena arena_;
    RelayWords words_;
};

std::vector<std::int64_t> cores_of(std::size_t ranks) {
    const std::vector<int> usable = usable_cores();
    std::vector<std::int64_t> cores;
    for (std::size_t rank = 0; rank < ranks; ++rank) cores.push_back(usable[rank * usable.size() / ranks]);
    return cores;
}

TEST(RelayWords, AreEachOfOneWriter) {
    const WordsMemory words;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
        words->write(rank, 10 + rank);
        for (std::size_t engine = 0; engine < 2; ++engine) words->take(engine, rank, 100 * engine + rank);
    }
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(words->written(rank), 10 + rank);
        EXPECT_EQ(words->taken(0, rank), rank);
        EXPECT_EQ(words->taken(1, rank), 100 + rank);
    }
    EXPECT_FALSE(words->stopped(0));
    words->stop(7);
    words->stop(3, 1);  // somebody late, of a relay before
    EXPECT_EQ(words->stopped_by(), RelayWords::kTrainer);
    EXPECT_TRUE(words->stopped(7));
    EXPECT_TRUE(words->stopped(3));
    EXPECT_FALSE(words->stopped(8)) << "of the relay after it";
    words->stop(8, 1);
    EXPECT_EQ(words->stopped_by(), 1);
    std::byte small[64];
    EXPECT_THROW(RelayWords({small, sizeof(small)}, 1, 1), InvalidArgument);
}

// Ranks as threads, each with slots of its own: every bucket is taken once, in order, when it has been written and before its
// slot is written again; from whatever count the relay begins.
TEST(RelayLanes, TakeEachBucketOnceWhileItStands) {
    constexpr std::uint64_t kBuckets = 60, kSlots = 2;
    const WordsMemory words;
    WeightWriter writer({}, static_cast<int>(kRanks));
    for (const std::uint64_t from : {std::uint64_t{0}, kBuckets, std::uint64_t{1} << 40}) {
        std::array<std::array<std::uint64_t, kSlots>, kRanks> slots{};
        std::array<std::vector<std::uint64_t>, kRanks> taken;
        std::vector<std::thread> ranks;
        for (std::size_t rank = 0; rank < kRanks; ++rank) {
            ranks.emplace_back([&, rank] {
                RelayLooks looks;
                for (std::uint64_t b = 0; b < kBuckets; ++b) {
                    while (b >= kSlots && words->taken(1, rank) < from + b + 1 - kSlots) looks.again();
                    slots[rank][b % kSlots] = 1000 * rank + b;
                    words->write(rank, from + b + 1);
                }
            });
        }
        take_relayed({*words, 1, from, [] {}}, cores_of(kRanks), kBuckets, writer,
                     [&](std::size_t bucket, std::size_t rank) {
                         taken[rank].push_back(slots[rank][bucket % kSlots]);
                     });
        for (std::thread& rank : ranks) rank.join();
        for (std::size_t rank = 0; rank < kRanks; ++rank) {
            std::vector<std::uint64_t> expected(kBuckets);
            std::iota(expected.begin(), expected.end(), 1000 * rank);
            EXPECT_EQ(taken[rank], expected);
            EXPECT_EQ(words->taken(0, rank), 0u) << "another engine's word";
        }
    }
}

TEST(RelayLanes, EndForWhoeverFails) {
    const WordsMemory words;
    WeightWriter writer({}, static_cast<int>(kRanks));
    const auto relay = [&](std::uint64_t from, const std::function<void()>& check,
                           const std::function<void(std::size_t, std::size_t)>& take) {
        return message_of<Error>([&] {
            take_relayed({*words, 0, from, check}, cores_of(kRanks), 4, writer, take);
        });
    };
    for (std::size_t rank = 0; rank < kRanks; ++rank) words->write(rank, 2);
    EXPECT_THAT(relay(
                    0, [] {},
                    [](std::size_t bucket, std::size_t rank) {
                        if (bucket == 1 && rank == 2) throw ProtocolError("torn");
                    }),
                HasSubstr("torn"));
    EXPECT_TRUE(words->stopped(0));
    // Nobody writes more: what the receiver hears ends it.
    for (std::size_t rank = 0; rank < kRanks; ++rank) words->write(rank, 5);
    EXPECT_THAT(relay(
                    4, [] { throw TransportError("the trainer", "relay", "hung up"); },
                    [](std::size_t, std::size_t) {}),
                HasSubstr("hung up"));
    EXPECT_TRUE(words->stopped(4));
    std::thread other([&] { words->stop(8); });
    EXPECT_THAT(relay(
                    8, [] {}, [](std::size_t, std::size_t) {}),
                HasSubstr("gave up"));
    other.join();
    // More than there is says that all is there, and less than before that nothing is.
    std::vector<std::size_t> seen;
    words->write(0, ~std::uint64_t{0});
    words->write(1, 16);
    words->write(2, 16);
    EXPECT_EQ(relay(
                  12, [] {},
                  [&](std::size_t bucket, std::size_t rank) {
                      if (rank == 0) seen.push_back(bucket);
                  }),
              "no such error");
    EXPECT_THAT(seen, ElementsAre(0u, 1u, 2u, 3u));
}

class RelayTest : public ReceiverRig {
  protected:
    RelayTest() : ReceiverRig({.copy_threads = 2}) {
        plan_ = buckets();
        plan_.cores = cores_of(2);
    }
    // "a" in halves from ranks 0 and 1, and "b" from rank 1: two buckets.
    static TransferPlan buckets() {
        TransferPlan plan = halves();
        plan.transfers[0].source_rank = 0;
        plan.first = {0, 2, 3};
        return plan;
    }
    void start(Engine& engine, Deadline deadline = soon()) {
        engine.buckets().relay()->take({words_.region(), 2, 1, 0, from_}, deadline);
    }
    void write(std::uint64_t count) {
        for (std::size_t rank = 0; rank < 2; ++rank) words_->write(rank, from_ + count);
    }
    // A version of bytes of `value`, taken but not verified.
    std::unique_ptr<Engine> relayed(std::int64_t version, int value) {
        auto engine = connect_again();
        stage(value);
        engine->begin(version, soon());
        start(*engine);
        write(2);
        EXPECT_GE(engine->buckets().relay()->wait_taken(soon()), 0);
        return engine;
    }

    WordsMemory words_{2, 1};
    std::uint64_t from_ = 0;
};

TEST_F(RelayTest, ComesWhereThePlanSaysOnWhichCoresItsRanksWrite) {
    EXPECT_NE(connect()->buckets().relay(), nullptr);
    plan_.cores.clear();
    const auto engine = connect_again();
    EXPECT_EQ(engine->buckets().relay(), nullptr);
    // More cores than the receiver has threads.
    plan_.cores = {0, 1, 2};
    engine->attach(regions(), plan_, soon());
    EXPECT_EQ(engine->buckets().relay(), nullptr);
}

TEST_F(RelayTest, IsTakenAsItIsWrittenAndVerifiedAtTheEnd) {
    const auto engine = connect();
    for (int version = 1; version <= 3; ++version, from_ += 2) {
        stage(version);
        engine->begin(version, soon());
        start(*engine);
        EXPECT_FALSE(engine->buckets().relay()->answered());
        words_->write(0, from_ + 1);
        ASSERT_TRUE(eventually([&] { return words_->taken(0, 0) == from_ + 1; }));
        EXPECT_LE(words_->taken(0, 1), from_) << "nothing of rank 1's";
        write(2);
        ASSERT_TRUE(eventually([&] { return engine->buckets().relay()->answered(); }));
        EXPECT_GE(engine->buckets().relay()->wait_taken(soon()), 0);
        EXPECT_EQ(words_->taken(0, 1), from_ + 2);
        engine->verify(checksums(), soon());
        engine->commit(version, manifest(version), soon());
        expect_weights(version);
    }
}

TEST_F(RelayTest, IsNoVersionUntilItIsVerified) {
    auto engine = relayed(1, 5);
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(1, manifest(1), soon()); }),
                HasSubstr("what came was not verified"));
    EXPECT_TRUE(target_.refusing());
    engine.reset();
    from_ = 2;
    engine = relayed(2, 6);
    auto wrong = checksums();
    wrong[2].low ^= 1;
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->verify(wrong, soon()); }),
                testing::AllOf(HasSubstr("tensor 'b'"), HasSubstr("from rank 1 is corrupted")));
    engine.reset();
    from_ = 4;
    engine = relayed(3, 7);
    engine->verify(checksums(), soon());
    engine->commit(3, manifest(3), soon());
    expect_weights(7);
}

// What is written behind a relay is read again when it is verified.
TEST_F(RelayTest, IsNotWhatALaterBucketSays) {
    const auto engine = relayed(1, 5);
    stage(6);
    load(*engine, 0, checksums());
    engine->buckets().wait_loaded(0, soon());
    EXPECT_THROW(engine->verify(checksums(), soon()), ProtocolError) << "bucket 1 is still of fives";
}

TEST_F(RelayTest, OutOfOrderIsRefused) {
    const auto engine = connect();
    start(*engine);
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->buckets().relay()->wait_taken(soon()); }),
                HasSubstr("without an open version"));
    EXPECT_TRUE(words_->stopped(from_)) << "its ranks need not wait";
    EXPECT_THROW(engine->buckets().relay()->wait_taken(soon()), InvalidArgument);
    from_ = 2;
    engine->begin(1, soon());
    start(*engine);
    EXPECT_THROW(start(*engine), InvalidArgument);
    words_->stop(from_);
    EXPECT_THROW(engine->buckets().relay()->wait_taken(soon()), ProtocolError);
    from_ = 4;
    for (const Relay& wrong :
         {Relay{words_.region(), 1, 1, 0, from_}, Relay{words_.region(), 2, 1, 1, from_}}) {
        engine->begin(2, soon());
        engine->buckets().relay()->take(wrong, soon());
        EXPECT_THROW(engine->buckets().relay()->wait_taken(soon()), ProtocolError);
        from_ += 2;
    }
    // Words that are not there.
    engine->begin(2, soon());
    engine->buckets().relay()->take({words_.region(), 2, 1 << 12, 0, from_}, soon());
    EXPECT_THROW(engine->buckets().relay()->wait_taken(soon()), Error);
}

TEST_F(RelayTest, EndsWithItsDeadlineWithAnAbortAndWithItsTrainer) {
    auto engine = connect();
    engine->begin(1, soon());
    start(*engine, Deadline::after_ms(50));
    write(1);
    EXPECT_THAT(message_of<DeadlineExceeded>([&] { engine->buckets().relay()->wait_taken(soon()); }),
                HasSubstr("not all buckets were written in time"));
    EXPECT_TRUE(words_->stopped(from_));
    from_ = 2;
    engine->begin(2, soon());
    start(*engine);
    write(1);
    engine->abort("enough", soon());
    EXPECT_TRUE(words_->stopped(from_));
    from_ = 4;
    engine->begin(3, soon());
    start(*engine);
    write(1);
    ASSERT_TRUE(eventually([&] { return words_->taken(0, 1) == from_ + 1; }));
    engine.reset();
    ASSERT_TRUE(eventually([&] { return words_->stopped(from_); }));
    from_ = 6;
    engine = relayed(4, 9);
    engine->verify(checksums(), soon());
    engine->commit(4, manifest(4), soon());
    expect_weights(9);
}

TEST_F(RelayTest, OfAProbeWritesNoWeights) {
    const auto engine = connect();
    push(*engine, 1, 3);
    const auto probe = [&](const RelayProbe& what) {
        engine->buckets().relay()->take_probe({words_.region(), 2, 1, 0, from_}, what, soon());
        write(what.buckets);
        from_ += what.buckets;
        return engine->buckets().relay()->wait_taken(soon());
    };
    EXPECT_GT(probe({40, 4096, 1000, 2}), 0);
    EXPECT_GT(probe({3, kRegion, 1 << 20, 1}), 0);
    EXPECT_THROW(probe({3, kRegion, 1 << 20, 2}), ProtocolError);
    EXPECT_THROW(probe({3, 64, 64, 1}), InvalidArgument);  // a rank's part is less than a line
    EXPECT_THROW(probe({3, std::uint64_t{1} << 60, 64, 16}), InvalidArgument);
    engine->begin(2, soon());
    EXPECT_THROW(probe({3, 4096, 64, 1}), ProtocolError);
    expect_weights(3);
}

}  // namespace
}  // namespace tandem::engine
