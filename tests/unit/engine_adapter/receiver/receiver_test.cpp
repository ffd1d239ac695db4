// A receiver and its client in one process: the life of a version, and everything that must not pass.
#include <sys/resource.h>
#include <sys/socket.h>

#include <ctime>
#include <filesystem>

#include "common/thread.h"
#include "tests/unit/engine_adapter/receiver/receiver_rig.h"

namespace tandem::engine {
namespace {

using testing::HasSubstr;

class ReceiverTest : public ReceiverRig {};

TEST_F(ReceiverTest, TellsWhatTheEngineHolds) {
    const auto engine = connect();
    const Capabilities& capabilities = engine->capabilities();
    EXPECT_EQ(capabilities.engine, "tandem");
    EXPECT_EQ(capabilities.version, 0);
    EXPECT_TRUE(capabilities.alias);
    ASSERT_EQ(capabilities.tensors.size(), 2u);
    EXPECT_EQ(capabilities.tensors[0].name, "a");
    EXPECT_EQ(capabilities.tensors[0].shape, (Shape{4, 16}));
    EXPECT_EQ(capabilities.tensors[1].dtype, DType::bfloat16);
    EXPECT_TRUE(capabilities.tensors[1].parts.empty());
    EXPECT_THAT(receiver_->address(), testing::MatchesRegex("unix-abstract:tandem-[0-9]+-[0-9a-f]+"));
}

TEST_F(ReceiverTest, TellsWhichPartsATensorIsMadeOf) {
    const std::vector<Part> parts{{"q_proj", {0, 0}, {8, 4}, 0, {4, 1}},
                                  {"k_proj", {2, 0}, {2, 4}, 32, {-4, 1}}};
    TestTarget target({{"qkv", {10, 4}, DType::bfloat16, parts}}, false);
    const Receiver receiver(target);
    const Capabilities capabilities = engine::connect(receiver.address(), soon())->capabilities();
    EXPECT_EQ(capabilities.tensors.at(0).parts, parts);
    EXPECT_FALSE(capabilities.alias);
}

TEST_F(ReceiverTest, AWholeVersionLandsAndCommits) {
    const auto engine = connect();
    EXPECT_EQ(engine->held(soon()).version, 0);
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
    EXPECT_EQ(engine->held(soon()).version, 8);
    EXPECT_EQ(engine->held(soon()).manifest, manifest(8));
}

TEST_F(ReceiverTest, SeveralBucketsInFlightAreAnsweredEach) {
    plan_.first = {0, 2, 2, 3};  // the one in the middle is empty
    const auto engine = connect();
    stage(5);
    const auto all = checksums();
    engine->begin(1, soon());
    for (int b = 0; b < 3; ++b) load(*engine, b, all);
    for (const int b : {1, 2, 0}) engine->buckets().wait_loaded(b, soon());
    engine->commit(1, manifest(1), soon());
    expect_weights(5);
}

TEST_F(ReceiverTest, ACorruptedTransferNamesTensorRankAndBucketAndTheEngineRefuses) {
    plan_.first = {0, 0, 0, 0, 3};
    const auto engine = connect();
    push(*engine, 1, 1);
    stage(2);
    const auto all = checksums();
    arena_.data()[300] ^= std::byte{1};  // inside the second half of "a"
    engine->begin(2, soon());
    load(*engine, 3, all);
    const std::string message = message_of<ProtocolError>([&] { engine->buckets().wait_loaded(3, soon()); });
    EXPECT_THAT(message, HasSubstr("bucket 3: tensor 'a' bytes [128, 256) from rank 1 is corrupted"));
    EXPECT_TRUE(target_.refusing());
    EXPECT_EQ(target_.version(), 1);
    EXPECT_EQ(engine->held(soon()).version, 0);
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(2, {}, soon()); }), HasSubstr("is corrupted"));
    engine->abort("giving up", soon());
    EXPECT_EQ(target_.aborts(), 1);  // aborted when it was found; the trainer's abort has nothing left to do
    push(*engine, 3, 3);
    expect_weights(3);
    EXPECT_FALSE(target_.refusing());
    EXPECT_EQ(engine->held(soon()).version, 3);
}

// Every bit of what is in flight is guarded: flipped after the checksums were made, each is found and named.
TEST_F(ReceiverTest, EverySingleBitThatFlipsIsFoundAndNamed) {
    const auto engine = connect();
    stage(0x5a);
    const auto all = checksums();
    std::int64_t version = 0;
    for (const Transfer& t : plan_.transfers) {
        const std::string name = "tensor '" + tensors()[t.tensor].name + "'";
        const std::size_t bytes = t.row_elements * dtype_size(t.from_dtype);
        for (std::size_t bit = 0; bit < 8 * bytes; bit += 7) {
            std::byte& byte = arena_.data()[t.from + bit / 8];
            byte ^= std::byte{1} << (bit % 8);
            engine->begin(++version, soon());
            load(*engine, 0, all);
            ASSERT_THAT(message_of<ProtocolError>([&] { engine->buckets().wait_loaded(0, soon()); }),
                        HasSubstr(name));
            byte ^= std::byte{1} << (bit % 8);
        }
    }
    push_staged(*engine, ++version);
    expect_weights(0x5a);
}

TEST_F(ReceiverTest, AbortBeforeTheFirstBucketLeavesTheOldVersion) {
    const auto engine = connect();
    push(*engine, 1, 1);
    engine->begin(2, soon());
    engine->abort("changed my mind", soon());
    EXPECT_FALSE(target_.refusing());
    EXPECT_EQ(target_.reason(), "changed my mind");
    EXPECT_EQ(engine->held(soon()).version, 1);
    EXPECT_EQ(engine->held(soon()).manifest, manifest(1));
    expect_weights(1);
}

TEST_F(ReceiverTest, CommitWantsEveryBucketAndTheSameManifest) {
    plan_.first = {0, 1, 3};
    const auto engine = connect();
    stage(1);
    const auto all = checksums();
    engine->begin(1, soon());
    load(*engine, 0, all);
    engine->buckets().wait_loaded(0, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(1, manifest(1), soon()); }),
                HasSubstr("version 1 is not whole: bucket 1 (tensor 'a' and what follows) has not arrived"));
    EXPECT_TRUE(target_.refusing());

    const auto load_all = [&](std::int64_t version) {
        engine->begin(version, soon());
        for (const int b : {0, 1}) load(*engine, b, all);
        for (const int b : {0, 1}) engine->buckets().wait_loaded(b, soon());
    };
    load_all(2);
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(2, manifest(3), soon()); }),
                HasSubstr("the manifest of version 2"));
    load_all(3);
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(4, manifest(4), soon()); }),
                HasSubstr("commit of version 4 while 3 is open"));
    load_all(4);
    load(*engine, 0, all);
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->buckets().wait_loaded(0, soon()); }),
                HasSubstr("bucket 0 arrived before in version 4"));
    EXPECT_EQ(target_.commits(), 0);
}

TEST_F(ReceiverTest, StatesAreHeld) {
    const auto fresh = engine::connect(receiver_->address(), soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { fresh->begin(1, soon()); }), HasSubstr("before attach"));
    EXPECT_THAT(message_of<ProtocolError>([&] { fresh->probe(0, 8, 8, soon()); }),
                HasSubstr("before attach"));
    fresh->attach(regions(), plan_, soon());
    const auto& engine = fresh;
    const auto all = checksums();
    const auto without = [](const std::string& what) { return HasSubstr(what + " without an open version"); };
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(1, {}, soon()); }), without("commit"));
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->verify(all, soon()); }), without("verify"));
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->adopt(0, all, soon()); }), without("adopt"));
    load(*engine, 0, all);
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->buckets().wait_loaded(0, soon()); }),
                without("a bucket"));
    engine->buckets().load_delta(0, {}, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->buckets().wait_loaded(0, soon()); }),
                without("a delta"));
    engine->begin(1, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->begin(2, soon()); }),
                HasSubstr("begin of version 2 while version 1 is open"));
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->attach(regions(), plan_, soon()); }),
                HasSubstr("attach while version 1 is open"));
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->probe(0, 8, 8, soon()); }),
                HasSubstr("probe while version 1 is open"));
    engine->abort("", soon());
    target_.set_paused(false);
    EXPECT_THAT(message_of<InvalidArgument>([&] { engine->begin(2, soon()); }),
                HasSubstr("while generating"));
}

TEST_F(ReceiverTest, PlansThatDoNotFitAreRefusedAndTheLastOneStays) {
    const auto engine = connect();
    push(*engine, 1, 1);
    const auto refused = [&](const TransferPlan& plan) {
        return message_of<ProtocolError>([&] { engine->attach(regions(), plan, soon()); });
    };
    const auto with = [&](auto change) {
        TransferPlan plan = halves();
        change(plan.transfers[0]);
        return refused(plan);
    };
    EXPECT_THAT(with([](Transfer& t) { t.tensor = 2; }),
                HasSubstr("tensor number 2 from rank 1, the engine holds 2"));
    EXPECT_THAT(with([](Transfer& t) { t.row_elements = 65; }),
                HasSubstr("tensor 'a' bytes [0, 260) from rank 1 is not inside the tensor's 256 bytes"));
    EXPECT_THAT(with([](Transfer& t) { t.to = ~std::uint64_t{3}; }), HasSubstr("is not inside the tensor"));
    EXPECT_THAT(with([](Transfer& t) { t.from = kRegion - 124; }),
                HasSubstr("is not inside the 8192 bytes of region 0"));
    EXPECT_THAT(with([](Transfer& t) { t.from = ~std::uint64_t{3}; }),
                HasSubstr("is not inside the 8192 bytes"));
    EXPECT_THAT(with([](Transfer& t) { t.region = 1; }), HasSubstr("region 1 of 1"));
    EXPECT_THAT(with([](Transfer& t) { t.row_elements = 31; }),
                HasSubstr("252 of the 256 bytes of tensor 'a'"));
    EXPECT_THAT(with([](Transfer& t) { t.row_elements = 33; }),
                HasSubstr("tensor 'a' bytes [128, 256) from rank 1 is written twice"));
    TransferPlan plan = halves();
    plan.first = {0, 2};
    EXPECT_THAT(refused(plan), HasSubstr("do not follow each other"));
    EXPECT_THROW(engine->attach(regions(), {{}, {}}, soon()), InvalidArgument);
    EXPECT_THROW(engine->attach({{arena_.span(), -1}}, halves(), soon()), InvalidArgument);
    EXPECT_THROW(engine->attach(std::vector<Region>(65, regions()[0]), halves(), soon()), InvalidArgument);
    EXPECT_FALSE(target_.refusing());
    expect_weights(1);
    push(*engine, 2, 2);
    expect_weights(2);
}

TEST_F(ReceiverTest, ATrainerThatGoesAwayInTheMiddleIsAnAbort) {
    plan_.first = {0, 1, 3};
    auto engine = connect();
    engine->begin(1, soon());
    engine.reset();
    wait_for_aborts(1);
    EXPECT_FALSE(target_.refusing());  // nothing had been copied

    engine = connect_again();
    engine->begin(2, soon());
    load(*engine, 0, checksums());
    engine->buckets().wait_loaded(0, soon());
    engine.reset();
    wait_for_aborts(2);
    EXPECT_TRUE(target_.refusing());
    EXPECT_THAT(target_.reason(), HasSubstr("the peer closed the connection"));

    engine = connect_again();
    push(*engine, 3, 9);
    EXPECT_FALSE(target_.refusing());
}

TEST_F(ReceiverTest, TellsTheNewestVersionThatItHasHad) {
    plan_.first = {0, 1, 3};
    auto engine = connect();
    push(*engine, 7, 0x11);
    engine->begin(8, soon());
    load(*engine, 0, checksums());
    engine->buckets().wait_loaded(0, soon());
    engine.reset();
    wait_for_aborts(1);
    ASSERT_TRUE(target_.refusing());
    EXPECT_EQ(connect_again()->capabilities().newest, 7);
}

TEST_F(ReceiverTest, AnEngineThatStopsIsATransportError) {
    const auto engine = connect();
    engine->begin(1, soon());
    receiver_.reset();
    EXPECT_EQ(target_.aborts(), 1);
    EXPECT_THAT(message_of<TransportError>([&] { engine->commit(1, {}, soon()); }),
                HasSubstr("commit with engine"));
    EXPECT_THROW(engine::connect("unix-abstract:tandem-nobody", soon()), TransportError);
    EXPECT_THROW(engine::connect("/tmp/socket", soon()), InvalidArgument);
}

TEST_F(ReceiverTest, OneTrainerAtATime) {
    auto first = connect();
    EXPECT_THAT(message_of<TransportError>([&] { connect(); }), HasSubstr("another trainer is connected"));
    first->begin(1, soon());
    first->abort("", soon());
    first.reset();
    push(*connect_again(), 2, 1);
}

// From another host the end of the one before arrives later than the next one does.
TEST_F(ReceiverTest, ATrainerWaitsForOneThatIsAboutToGo) {
    auto first = connect();
    auto leaves = start_call("leaves", [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        first.reset();
    });
    push(*connect(), 1, 1);
}

TEST_F(ReceiverTest, ARegionThatIsShorterThanAnnouncedIsRefused) {
    const auto engine = engine::connect(receiver_->address(), soon());
    std::vector<Region> lie = regions();
    lie[0].memory.bytes = kRegion + 1;
    EXPECT_THAT(message_of<InvalidArgument>([&] { engine->attach(lie, plan_, soon()); }),
                HasSubstr("announced"));
    engine->attach(regions(), plan_, soon());
    push(*engine, 1, 1);
}

// The receiver waits for some to be closed, says so, and does not ask again and again.
TEST_F(ReceiverTest, SurvivesWithoutDescriptors) {
    const AbstractAddress to = parse_abstract_address(receiver_->address());
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    testing::internal::CaptureStdout();  // where lines of the log go before set_up_logging()
    const FileDescriptor waiting(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const rlimit none{static_cast<rlim_t>(waiting.get()) + 1, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_EQ(::connect(waiting.get(), reinterpret_cast<const sockaddr*>(&to.address), to.length), 0);
    const std::clock_t start = std::clock();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_LT(std::clock() - start, CLOCKS_PER_SEC / 4) << "of the processor, in half a second";
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("accept"));
    EXPECT_THROW(connect(), TransportError) << "the one that waited has the seat";
}

TEST_F(ReceiverTest, AHundredConnectionsLeaveNoDescriptorBehind) {
    const auto open_files = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                             std::filesystem::directory_iterator{});
    };
    const auto before = open_files();
    for (int i = 1; i <= 100; ++i) {
        const auto engine = connect_again();
        push(*engine, i, 1);
        engine->attach({regions()[0], regions()[0]}, plan_, soon());
    }
    // The receiver closes its side of the last connection on its own time.
    for (int i = 0; i < 500 && open_files() > before; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_LE(open_files(), before);
}

}  // namespace
}  // namespace tandem::engine
