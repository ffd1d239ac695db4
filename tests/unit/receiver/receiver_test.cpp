// A receiver and its client in one process: the life of a version, and everything that must not pass.
#include "engine_adapter/receiver/receiver.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <thread>

#include "common/device/shared_arena.h"
#include "engine_adapter/receiver/client.h"
#include "tests/unit/receiver/test_target.h"

namespace tandem::engine {
namespace {

using testing::HasSubstr;

Deadline soon() {
    return Deadline::after_ms(5000);
}

template <typename E>
std::string message_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const E& error) {
        return error.what();
    }
    return "no such error";
}

// Two tensors of 256 and 100 bytes, a staging area of two slots.
class ReceiverTest : public testing::Test {
  protected:
    static constexpr std::size_t kSlot = 4096;

    ReceiverTest()
        : target_({{"a", {4, 16}, DType::float32}, {"b", {50}, DType::bfloat16}}),
          receiver_(std::make_unique<Receiver>(target_)),
          arena_(SharedArena::create("test", 2 * kSlot)),
          staging_{arena_.span(), arena_.fd(), 2, kSlot} {}

    std::unique_ptr<Engine> connect() {
        auto engine = connect_receiver(receiver_->address(), soon());
        engine->attach(staging_, soon());
        return engine;
    }

    // Entry of `bytes` bytes of `value` staged at bucket_offset of the slot, with its true checksum.
    BucketEntry stage(const std::string& name, std::size_t offset, std::size_t bytes, int slot,
                      std::size_t at, int value) {
        const Span to = staging_.slot(slot).subspan(at, bytes);
        std::memset(to.data, value, bytes);
        return {name, offset, at, bytes, ops::checksum(to), 1};
    }
    Bucket everything(int value) {
        return {0,
                0,
                {stage("a", 0, 128, 0, 0, value), stage("a", 128, 128, 0, 256, value),
                 stage("b", 0, 100, 0, 512, value)}};
    }
    static ops::Checksum manifest(std::int64_t version, const Engine& engine, const Bucket& bucket) {
        const std::vector<ops::Checksum> a{bucket.entries[0].checksum, bucket.entries[1].checksum};
        const std::vector<ops::Checksum> b{bucket.entries[2].checksum};
        return manifest_checksum(version, engine.capabilities().tensors, {ops::combine(a), ops::combine(b)});
    }
    void push(Engine& engine, std::int64_t version, int value) {
        const Bucket bucket = everything(value);
        engine.begin(version, soon());
        engine.load_async(bucket, soon());
        EXPECT_GE(engine.wait_loaded(0, soon()), 0.0);
        engine.commit(version, manifest(version, engine, bucket), soon());
    }
    void expect_weights(int value) const {
        for (const WeightSlot& weight : target_.weights()) {
            for (std::size_t i = 0; i < weight.memory.bytes; ++i) {
                ASSERT_EQ(std::to_integer<int>(weight.memory.data[i]), value)
                    << weight.info.name << " byte " << i;
            }
        }
    }
    void wait_for_aborts(int count) const {
        for (int i = 0; i < 500 && target_.aborts() < count; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ASSERT_EQ(target_.aborts(), count);
    }

    TestTarget target_;
    std::unique_ptr<Receiver> receiver_;
    SharedArena arena_;
    StagingArea staging_;
};

TEST_F(ReceiverTest, TellsWhatTheEngineHolds) {
    const auto engine = connect();
    const Capabilities& capabilities = engine->capabilities();
    EXPECT_EQ(capabilities.engine, "tandem");
    EXPECT_EQ(capabilities.version, 0);
    ASSERT_EQ(capabilities.tensors.size(), 2u);
    EXPECT_EQ(capabilities.tensors[0].name, "a");
    EXPECT_EQ(capabilities.tensors[0].shape, (Shape{4, 16}));
    EXPECT_EQ(capabilities.tensors[1].dtype, DType::bfloat16);
    EXPECT_THAT(receiver_->address(), testing::MatchesRegex("unix-abstract:tandem-[0-9]+-[0-9a-f]+"));
}

TEST_F(ReceiverTest, AWholeVersionLandsAndCommits) {
    const auto engine = connect();
    push(*engine, 7, 0x11);
    expect_weights(0x11);
    EXPECT_EQ(target_.version(), 7);
    push(*engine, 8, 0x22);
    expect_weights(0x22);
    EXPECT_EQ(target_.version(), 8);
    const auto held = engine->checksums(soon());
    ASSERT_EQ(held.size(), 2u);
    EXPECT_EQ(held[0], ops::checksum(target_.weights()[0].memory));
    EXPECT_EQ(held[1], ops::checksum(target_.weights()[1].memory));
}

TEST_F(ReceiverTest, SeveralBucketsInFlightAreAnsweredEach) {
    const auto engine = connect();
    const Bucket first{0, 0, {stage("a", 0, 256, 0, 0, 5)}};
    const Bucket second{1, 1, {stage("b", 0, 100, 1, 64, 5)}};
    engine->begin(1, soon());
    engine->load_async(first, soon());
    engine->load_async(second, soon());
    engine->wait_loaded(1, soon());
    engine->wait_loaded(0, soon());
    const ops::Checksum a = ops::combine({&first.entries[0].checksum, 1});
    const ops::Checksum b = ops::combine({&second.entries[0].checksum, 1});
    engine->commit(1, manifest_checksum(1, engine->capabilities().tensors, {a, b}), soon());
    expect_weights(5);
}

TEST_F(ReceiverTest, ACorruptedEntryNamesTensorRankAndBucketAndTheEngineRefuses) {
    const auto engine = connect();
    push(*engine, 1, 1);
    Bucket bucket = everything(2);
    bucket.index = 3;
    staging_.slot(0).data[300] ^= std::byte{1};  // inside the second half of "a"
    engine->begin(2, soon());
    engine->load_async(bucket, soon());
    const std::string message = message_of<ProtocolError>([&] { engine->wait_loaded(3, soon()); });
    EXPECT_THAT(message, HasSubstr("bucket 3: tensor 'a' bytes [128, 256) from rank 1 is corrupted"));
    EXPECT_TRUE(target_.refusing());
    EXPECT_EQ(target_.version(), 1);
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(2, {}, soon()); }), HasSubstr("is corrupted"));
    engine->abort("giving up", soon());
    EXPECT_EQ(target_.aborts(), 1);  // aborted when it was found; the trainer's abort has nothing left to do
    push(*engine, 3, 3);
    expect_weights(3);
    EXPECT_FALSE(target_.refusing());
}

TEST_F(ReceiverTest, AbortBeforeTheFirstBucketLeavesTheOldVersion) {
    const auto engine = connect();
    push(*engine, 1, 1);
    engine->begin(2, soon());
    engine->abort("changed my mind", soon());
    EXPECT_FALSE(target_.refusing());
    EXPECT_EQ(target_.reason(), "changed my mind");
    expect_weights(1);
}

TEST_F(ReceiverTest, CommitWantsEveryByteAndTheSameManifest) {
    const auto engine = connect();
    engine->begin(1, soon());
    engine->load_async({0, 0, {stage("a", 0, 128, 0, 0, 1), stage("b", 0, 100, 0, 512, 1)}}, soon());
    engine->wait_loaded(0, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(1, {}, soon()); }),
                HasSubstr("version 1 is not whole: tensor 'a' lacks bytes from 128 of 256"));
    EXPECT_TRUE(target_.refusing());

    engine->begin(2, soon());
    const Bucket bucket = everything(2);
    engine->load_async(bucket, soon());
    engine->wait_loaded(0, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(2, manifest(3, *engine, bucket), soon()); }),
                HasSubstr("the manifest of version 2"));

    engine->begin(3, soon());
    engine->load_async(bucket, soon());
    engine->wait_loaded(0, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(4, manifest(4, *engine, bucket), soon()); }),
                HasSubstr("commit of version 4 while 3 is open"));
}

TEST_F(ReceiverTest, StatesAreHeld) {
    const auto engine = connect();
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(1, {}, soon()); }),
                HasSubstr("commit without an open version"));
    engine->load_async(everything(1), soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->wait_loaded(0, soon()); }),
                HasSubstr("a bucket without an open version"));
    engine->begin(1, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->begin(2, soon()); }),
                HasSubstr("begin of version 2 while 1 is open"));
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->attach(staging_, soon()); }),
                HasSubstr("attach while a version is open"));
    engine->abort("", soon());
    target_.set_paused(false);
    EXPECT_THAT(message_of<InvalidArgument>([&] { engine->begin(2, soon()); }),
                HasSubstr("while generating"));
}

TEST_F(ReceiverTest, EntriesThatDoNotFitAreRefusedBeforeAnythingIsCopied) {
    const auto engine = connect();
    push(*engine, 1, 1);
    const auto refused = [&](BucketEntry entry, int slot = 0) {
        static std::int64_t version = 10;
        engine->begin(++version, soon());
        engine->load_async({5, slot, {std::move(entry)}}, soon());
        return message_of<ProtocolError>([&] { engine->wait_loaded(5, soon()); });
    };
    const auto entry = [](std::size_t offset, std::size_t at, std::size_t bytes) {
        return BucketEntry{"a", offset, at, bytes, {}, 2};
    };
    EXPECT_THAT(refused(entry(0, 0, 257)), HasSubstr("is not inside the tensor's 256 bytes"));
    EXPECT_THAT(refused(entry(256, 0, 1)), HasSubstr("is not inside the tensor's 256 bytes"));
    EXPECT_THAT(refused(entry(~std::size_t{0}, 0, 8)), HasSubstr("is not inside the tensor"));
    EXPECT_THAT(refused(entry(0, kSlot - 7, 8)), HasSubstr("is not inside the slot's 4096 bytes"));
    EXPECT_THAT(refused(entry(0, ~std::size_t{0}, 8)), HasSubstr("is not inside the slot"));
    EXPECT_THAT(refused(entry(0, 0, 0)), HasSubstr("is not inside the tensor"));
    EXPECT_THAT(refused(entry(0, 0, 8), 2), HasSubstr("bucket 5: slot 2 of 2"));
    EXPECT_FALSE(target_.refusing());
    expect_weights(1);

    engine->begin(30, soon());
    engine->load_async({0, 0, {stage("a", 0, 128, 0, 0, 1), stage("a", 64, 64, 0, 256, 1)}}, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->wait_loaded(0, soon()); }),
                HasSubstr("tensor 'a' bytes [64, 128) from rank 1 overlaps"));
    EXPECT_THROW(engine->load_async({0, 0, {{"unknown", 0, 0, 8, {}, 0}}}, soon()), InvalidArgument);
}

TEST_F(ReceiverTest, ATrainerThatGoesAwayInTheMiddleIsAnAbort) {
    auto engine = connect();
    engine->begin(1, soon());
    engine.reset();
    wait_for_aborts(1);
    EXPECT_FALSE(target_.refusing());  // nothing had been copied

    engine = connect();
    engine->begin(2, soon());
    engine->load_async({0, 0, {stage("a", 0, 128, 0, 0, 1)}}, soon());
    engine->wait_loaded(0, soon());
    engine.reset();
    wait_for_aborts(2);
    EXPECT_TRUE(target_.refusing());
    EXPECT_THAT(target_.reason(), HasSubstr("the peer closed the connection"));

    engine = connect();
    push(*engine, 3, 9);
    EXPECT_FALSE(target_.refusing());
}

TEST_F(ReceiverTest, AnEngineThatStopsIsATransportError) {
    const auto engine = connect();
    engine->begin(1, soon());
    receiver_.reset();
    EXPECT_EQ(target_.aborts(), 1);
    EXPECT_THAT(message_of<TransportError>([&] { engine->commit(1, {}, soon()); }),
                HasSubstr("commit with engine"));
    EXPECT_THROW(connect_receiver("unix-abstract:tandem-nobody", soon()), TransportError);
    EXPECT_THROW(connect_receiver("/tmp/socket", soon()), InvalidArgument);
}

TEST_F(ReceiverTest, OneTrainerAtATime) {
    auto first = connect();
    EXPECT_THAT(message_of<TransportError>([&] { connect(); }), HasSubstr("another trainer is connected"));
    first->begin(1, soon());
    first->abort("", soon());
    first.reset();
    // The receiver notices the end of the first on its own time.
    for (int i = 0;; ++i) {
        try {
            first = connect();
            break;
        } catch (const TransportError&) {
            ASSERT_LT(i, 500);
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
    push(*first, 2, 1);
}

TEST_F(ReceiverTest, AStagingAreaThatIsShorterThanAnnouncedIsRefused) {
    const auto engine = connect_receiver(receiver_->address(), soon());
    StagingArea lie = staging_;
    lie.slots = 3;
    EXPECT_THAT(message_of<InvalidArgument>([&] { engine->attach(lie, soon()); }), HasSubstr("announced"));
    engine->attach(staging_, soon());
    push(*engine, 1, 1);
}

TEST_F(ReceiverTest, AHundredConnectionsLeaveNoDescriptorBehind) {
    const auto open_files = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                             std::filesystem::directory_iterator{});
    };
    const auto once = [&](std::int64_t version) {
        const auto engine = connect();
        push(*engine, version, 1);
    };
    const auto retry = [&](std::int64_t version) {
        for (int i = 0; i < 500; ++i) {
            try {
                return once(version);
            } catch (const TransportError&) {  // the last one has not been noticed to be gone
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
            }
        }
        FAIL() << "the receiver stays busy";
    };
    const auto before = open_files();
    for (int i = 1; i <= 100; ++i) retry(i);
    // The receiver closes its side of the last connection on its own time.
    for (int i = 0; i < 500 && open_files() > before; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_LE(open_files(), before);
}

}  // namespace
}  // namespace tandem::engine
