// Two engine ranks in one NCCL group: what each gets, who is late, and how each side ends when something
// fails. Nothing here may hang: every wait has a deadline.
#include <chrono>
#include <optional>

#include "engine_adapter/connect.h"
#include "tests/contract/transport/engine_here.h"
#include "tests/contract/transport/nccl_rig.h"
#include "tests/emulated_gpu/emulated.h"
#include "tests/support/error_of.h"
#include "tests/support/soon.h"
#include "tests/unit/common/comm/fake_nccl.h"

namespace tandem::engine {
namespace {

using test::soon;

using test::error_of;

namespace fake = comm::nccl::fake;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kHalf = TransportRig::kBytes / 2;

// Tensor "a" in two buckets, "b" in a third; `shift` bytes further on in the region.
TransferPlan plan_at(std::uint64_t shift) {
    TransferPlan plan;
    plan.transfers = {{0, 0, 0, DType::bfloat16, 1, kHalf / 2, shift, 0, 0, 0},
                      {0, 0, 0, DType::bfloat16, 1, kHalf / 2, shift + kHalf, 0, kHalf, 0},
                      {1, 0, 0, DType::float32, 1, 1 << 18, shift + 2 * kHalf, 0, 0, 0}};
    plan.first = {0, 1, 2, 3};
    return plan;
}

class NcclEngines : public testing::Test {
  protected:
    NcclEngines() {
        fake::reset();
        for (std::size_t i = 0; i < image_.size(); ++i)
            image_[i] = static_cast<std::byte>(0x3f - i / 4096 % 7 + i % 2);
        test::upload(kTrainerGpu, {image_.data(), image_.size()}, arena_.span());
    }
    ~NcclEngines() override {
        hold_.reset();
        clients_.clear();
        engines_.clear();
        EXPECT_EQ(fake::alive(), 0);
    }

    void add(int gpu) {
        ReceiverOptions options;
        options.nccl = &fake::api();
        engines_.push_back(std::make_unique<EngineHere>(Device{DeviceType::cuda, gpu}, options));
    }
    void start() {
        add(1);
        add(2);
        connect();
    }
    // The second copies no bucket that has come until its abort.
    void hold_the_second() { hold_.emplace(Device{DeviceType::cuda, 2}, "receiver"); }
    void connect() {
        clients_ = connect_ranks({engines_[0]->address(), engines_[1]->address()}, soon(),
                                 {.nccl = NcclOptions{kTrainerGpu, {}, &fake::api()}});
    }
    void attach(std::uint64_t shift_of_the_second = 0) {
        for (std::size_t e = 0; e < 2; ++e) {
            clients_[e]->attach({{arena_.span(), -1, kTrainerGpu}},
                                plan_at(shifts_[e] = e == 0 ? 0 : shift_of_the_second), soon());
        }
    }
    void begin(std::int64_t version) {
        for (const auto& client : clients_) client->begin(version, soon());
    }
    ops::Checksum checksum_of(std::size_t engine, int bucket) const {
        const Transfer t = plan_at(shifts_[engine]).transfers[static_cast<std::size_t>(bucket)];
        return ops::checksum(
            {image_.data() + t.from, static_cast<std::size_t>(t.row_elements) * dtype_size(t.from_dtype)});
    }
    void load(std::size_t engine, int bucket, Deadline deadline = soon()) {
        const ops::Checksum checksum = checksum_of(engine, bucket);
        clients_[engine]->buckets().load(bucket, {&checksum, 1}, deadline);
    }
    void push(std::int64_t version) {
        begin(version);
        for (int bucket = 0; bucket < 3; ++bucket) {
            load(0, bucket);
            load(1, bucket);
        }
        for (int bucket = 0; bucket < 3; ++bucket) {
            for (const auto& client : clients_) client->buckets().wait_loaded(bucket, soon());
        }
        for (std::size_t e = 0; e < 2; ++e) {
            std::vector<std::byte> held = engines_[e]->weights(0);
            const std::vector<std::byte> rest = engines_[e]->weights(1);
            held.insert(held.end(), rest.begin(), rest.end());
            EXPECT_EQ(std::memcmp(held.data(), image_.data() + shifts_[e], held.size()), 0) << "engine " << e;
            std::vector<ops::Checksum> all;
            for (int bucket = 0; bucket < 3; ++bucket) all.push_back(checksum_of(e, bucket));
            clients_[e]->commit(version,
                                manifest_checksum(version, TransportRig::tensors(), plan_at(shifts_[e]), all),
                                soon());
            EXPECT_EQ(engines_[e]->target().version(), version);
        }
    }
    void abort_both() {
        hold_.reset();
        for (const auto& client : clients_) client->abort("a test", soon());
    }

    const ExportArena arena_ = ExportArena::create(kTrainerGpu, TransportRig::kRegionBytes);
    std::vector<std::byte> image_ = std::vector<std::byte>(TransportRig::kRegionBytes);
    std::vector<std::unique_ptr<EngineHere>> engines_;
    std::vector<std::unique_ptr<Engine>> clients_;
    std::uint64_t shifts_[2] = {0, 0};
    std::optional<emulated::Hold> hold_;
};

TEST_F(NcclEngines, WhatAllWantIsBroadcastOnce) {
    start();
    attach();
    push(2);
    EXPECT_EQ(fake::count("broadcast"), 3 * 3);  // a bucket's on each rank
    EXPECT_EQ(fake::count("send"), 0);
    EXPECT_EQ(fake::count("init"), 3);  // without blocking
    push(3);
    EXPECT_EQ(fake::count("init"), 3);
    clients_.clear();
    EXPECT_EQ(fake::count("finalize"), 3);  // an orderly end
    EXPECT_EQ(fake::count("abort"), 0);
}

TEST_F(NcclEngines, SlicesOfTheirOwnAreSent) {
    start();
    attach(1 << 20);
    push(2);
    EXPECT_EQ(fake::count("broadcast"), 0);
    EXPECT_EQ(fake::count("send"), 2 * 3);
}

TEST_F(NcclEngines, BucketsInDifferentOrdersAreRefused) {
    start();
    attach();
    begin(2);
    load(0, 0);
    EXPECT_THAT(error_of([&] { load(0, 1); }), HasSubstr("before every engine rank was told of bucket 0"));
    load(1, 0);
    for (const auto& client : clients_) client->buckets().wait_loaded(0, soon());
}

TEST_F(NcclEngines, CannotBeReadInPlace) {
    start();
    attach();
    EXPECT_FALSE(clients_[0]->capabilities().alias);
    begin(2);
    const std::vector<ops::Checksum> any(3);
    EXPECT_THAT(error_of([&] { clients_[0]->adopt(0, any, soon()); }), HasSubstr("come over NCCL"));
}

TEST_F(NcclEngines, MemoryOfAnotherRankOrGpuIsRefused) {
    start();
    std::vector<std::byte> host(4096);
    EXPECT_THAT(error_of([&] {
                    clients_[0]->attach({{{host.data(), host.size()}, -1, {}}}, plan_at(0), soon());
                }),
                HasSubstr("sends from cuda:0, and a region is on cpu"));
    RegionHandle others;
    others.pid = 1;
    EXPECT_THAT(error_of([&] {
                    clients_[0]->attach({{arena_.span(), -1, kTrainerGpu, others}}, plan_at(0), soon());
                }),
                HasSubstr("another rank's: use mode gather"));
}

TEST_F(NcclEngines, TwoRanksOnOneGpuAreRefusedBeforeNcclDoes) {
    add(1);
    add(1);
    connect();
    EXPECT_THAT(error_of([&] { attach(); }),
                AllOf(HasSubstr(engines_[0]->address()), HasSubstr(engines_[1]->address()),
                      HasSubstr("both on gpu 1"), HasSubstr("cuda_ipc")));
    EXPECT_EQ(fake::count("init"), 0);
}

TEST_F(NcclEngines, AnInitThatNeverEndsHasADeadlineAndCanBeRepeated) {
    start();
    fake::Behaviour never;
    never.never_ready = true;
    fake::set(never);
    EXPECT_THROW(clients_[0]->attach({{arena_.span(), -1, kTrainerGpu}}, plan_at(0), Deadline::after_ms(300)),
                 DeadlineExceeded);
    fake::set({});
    attach();
    push(2);
}

TEST_F(NcclEngines, AnInitThatIsRefusedSaysWhy) {
    start();
    fake::Behaviour refuses;
    refuses.init = comm::nccl::Result::invalid_usage;
    fake::set(refuses);
    EXPECT_THAT(error_of([&] { attach(); }), HasSubstr("NCCL: unhandled thing"));
    fake::set({});
    attach();
    push(2);
}

// The first has bucket 1 while the second has not copied a byte of bucket 0: it takes part in the broadcast
// meanwhile.
TEST_F(NcclEngines, TheNextBucketComesBeforeThisOneIsCopied) {
    start();
    attach();
    begin(2);
    hold_the_second();
    for (const int bucket : {0, 1}) {
        load(0, bucket);
        load(1, bucket);
    }
    clients_[0]->buckets().wait_loaded(0, soon());
    clients_[0]->buckets().wait_loaded(1, soon());
    EXPECT_EQ(engines_[1]->weights(0), std::vector<std::byte>(2 * kHalf));
    abort_both();
}

// The second is slow with bucket 0 and holds bucket 1, so nobody gets bucket 2: the deadline of the first
// names the second.
TEST_F(NcclEngines, WhoIsLateIsNamed) {
    start();
    attach();
    begin(2);
    hold_the_second();
    for (const int bucket : {0, 1, 2}) {
        load(0, bucket);
        load(1, bucket);
    }
    for (const int bucket : {0, 1}) clients_[0]->buckets().wait_loaded(bucket, soon());
    const std::string error =
        error_of([&] { clients_[0]->buckets().wait_loaded(2, Deadline::after_ms(200)); });
    EXPECT_THAT(error, AllOf(HasSubstr("load bucket 2 with engine " + engines_[1]->address()),
                             Not(HasSubstr(engines_[0]->address()))));
    abort_both();
}

// The same when the first itself has given up before the trainer did.
TEST_F(NcclEngines, WhoIsLateIsNamedWhateverTheOthersSay) {
    start();
    attach();
    begin(2);
    hold_the_second();
    for (const int bucket : {0, 1, 2}) {
        load(0, bucket, Deadline::after_ms(300));
        load(1, bucket);
    }
    for (const int bucket : {0, 1}) clients_[0]->buckets().wait_loaded(bucket, soon());
    const std::string error = error_of([&] { clients_[0]->buckets().wait_loaded(2, soon()); });
    EXPECT_THAT(error, AllOf(HasSubstr("load bucket 2 with engine " + engines_[1]->address()),
                             Not(HasSubstr("trainer"))));
    abort_both();
}

// A bucket that the second never hears of: the first waits for it in NCCL, and an abort ends that.
TEST_F(NcclEngines, AnAbortReachesAnEngineThatWaitsForBytes) {
    start();
    attach();
    begin(2);
    load(0, 0);
    const auto begun = std::chrono::steady_clock::now();
    abort_both();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(3));
    push(3);  // in a new group
    EXPECT_EQ(fake::count("init"), 6);
}

TEST_F(NcclEngines, AnEngineWhoseBytesDoNotComeHasADeadline) {
    start();
    attach();
    begin(2);
    const ops::Checksum any{};
    clients_[0]->buckets().load(0, {&any, 1}, Deadline::after_ms(200));
    EXPECT_THAT(error_of([&] { clients_[0]->buckets().wait_loaded(0, soon()); }),
                HasSubstr("load bucket 0 with trainer rank 0: its bytes did not come over NCCL"));
    abort_both();
    push(3);
}

TEST_F(NcclEngines, AnAsynchronousErrorEndsBothSides) {
    start();
    attach();
    begin(2);
    load(0, 0);
    fake::Behaviour broken;
    broken.asynchronous = comm::nccl::Result::remote_error;
    fake::set(broken);
    EXPECT_THAT(error_of([&] { clients_[0]->buckets().wait_loaded(0, soon()); }),
                testing::AnyOf(HasSubstr("NCCL reports error 6"), HasSubstr("remote process exited")));
    fake::set({});
    abort_both();
    push(3);
}

TEST_F(NcclEngines, ATrainerThatGoesEndsTheWaitOfAnEngine) {
    start();
    attach();
    begin(2);
    load(0, 0);
    clients_.clear();
    for (int i = 0; i < 2000 && engines_[0]->target().aborts() == 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(engines_[0]->target().aborts(), 1);
    EXPECT_FALSE(engines_[0]->target().refusing());  // nothing was written
    connect();
    attach();
    push(2);
}

TEST_F(NcclEngines, AnEngineThatGoesEndsTheWaitOfTheOthers) {
    start();
    attach();
    begin(2);
    load(0, 0);
    const std::string gone = engines_[1]->address();
    engines_[1]->stop();
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_THAT(error_of([&] { clients_[0]->buckets().wait_loaded(0, soon()); }),
                HasSubstr("load bucket 0 with engine " + gone + ": the engine is gone"));
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(3));
    clients_[0]->abort("the other one is gone", soon());
    EXPECT_FALSE(engines_[0]->target().refusing());
}

}  // namespace
}  // namespace tandem::engine
