// An engine rank's two slots: the next bucket comes over NCCL while the copies still read this one, and no
// slot receives a bucket before the one that it held was read. Over an NCCL of ours between two threads,
// whose copies the test holds up.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <future>

#include "engine_adapter/transport/nccl/member.h"
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
using testing::HasSubstr;

namespace fake = comm::nccl::fake;
using comm::nccl::Comm;
using comm::nccl::Handle;
using comm::nccl::Type;

constexpr Device kEngineGpu{DeviceType::cuda, 1};
constexpr std::size_t kBytes = 1 << 16;  // of a bucket

// Trainer rank 0 as NCCL sees it, and an engine rank; bucket b is kBytes of 'a' + b.
class NcclRooms : public testing::Test {
  protected:
    NcclRooms() {
        fake::reset();
        comm::nccl::UniqueId id{};
        fake::api().get_unique_id(&id);
        auto joined = std::async(std::launch::async, [&] { member_.join(id, 1, 2, soon(), {}); });
        trainer_.emplace(fake::api(), id, 0, 2, "weights", soon());
        joined.get();
    }
    ~NcclRooms() override {
        if (!opened_) open();
        trainer_->abort();
        member_.drop();
    }
    void prepare(std::uint64_t buckets) {
        TransferPlan plan;
        for (std::uint64_t b = 0; b < buckets; ++b) {
            plan.transfers.push_back({0, 0, 0, DType::uint8, 1, kBytes, b * kBytes, 0, b * kBytes, 0});
            plan.first.push_back(b + 1);
            const std::vector<std::byte> bytes(kBytes, static_cast<std::byte>('a' + b));
            test::upload(kTrainerGpu, {bytes.data(), kBytes}, region_.span().subspan(b * kBytes, kBytes));
        }
        member_.prepare(plan);
    }
    static Announced announced(int bucket) { return {bucket + 1, bucket, NcclForm::send, soon()}; }
    bool start(int bucket) { return member_.start_receive(announced(bucket), {}); }
    const std::byte* receive(int bucket) {
        member_.receive(announced(bucket), {});
        return member_.at(0, static_cast<std::uint64_t>(bucket) * kBytes);
    }
    Event send(int bucket) {
        const Span bytes = region_.span().subspan(static_cast<std::size_t>(bucket) * kBytes, kBytes);
        trainer_->launch("send", soon(), [&](const comm::nccl::Api& api, Comm comm) {
            return api.send(bytes.data, bytes.bytes, Type::uint8, 1, comm, api.native_stream(sends_));
        });
        return sends_.record();
    }
    // A copy of the bucket received last, on the engine's stream: reads nothing before open(), then all of
    // it.
    Event copy_held_up(const std::byte* from) {
        copies_.wait(member_.arrived());
        emulated::launch(copies_, [this, from = emulated::host_alias(from)] {
            gate_.get_future().wait();
            read_.assign(from, from + kBytes);
        });
        const Event done = copies_.record();
        member_.release_after(done);
        return done;
    }
    void open() {
        opened_ = true;
        gate_.set_value();
    }
    static bool all(const std::byte* data, char value) {
        return std::all_of(data, data + kBytes,
                           [&](std::byte b) { return b == static_cast<std::byte>(value); });
    }
    bool holds(const std::byte* slot, char value) const { return all(emulated::host_alias(slot), value); }

    const ExportArena region_ = ExportArena::create(kTrainerGpu, 8 * kBytes);
    std::promise<void> gate_;
    bool opened_ = false;
    std::vector<std::byte> read_;
    Stream sends_ = Stream::make(kTrainerGpu, "sends");
    Stream copies_ = Stream::make(kEngineGpu, "copies");
    NcclMember member_{kEngineGpu, &fake::api()};
    std::optional<Handle> trainer_;
};

TEST_F(NcclRooms, TheNextBucketComesWhileThisOneIsRead) {
    prepare(3);
    EXPECT_TRUE(start(0));
    EXPECT_TRUE(start(1));
    EXPECT_FALSE(start(2));  // two slots, and nothing was read
    for (const int bucket : {0, 1, 2}) send(bucket);
    const Event copied = copy_held_up(receive(0));
    EXPECT_TRUE(holds(receive(1), 'b'));  // all of it, and in a slot of its own
    EXPECT_EQ(copied.poll(), Poll::pending);
    open();
    copied.wait(soon());
    EXPECT_TRUE(all(read_.data(), 'a'));
}

TEST_F(NcclRooms, ARoomTakesNothingBeforeItWasRead) {
    prepare(4);
    start(0);
    send(0);
    const std::byte* const slot = receive(0);
    const Event copied = copy_held_up(slot);
    // Both may be launched now, the second one behind the copies.
    EXPECT_TRUE(start(1));
    EXPECT_TRUE(start(2));
    EXPECT_FALSE(start(3));
    send(1);
    const Event sent = send(2);
    EXPECT_TRUE(holds(receive(1), 'b'));
    member_.release_after({});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(sent.poll(), Poll::pending);  // nobody takes it
    EXPECT_TRUE(holds(slot, 'a'));
    open();
    copied.wait(soon());
    EXPECT_TRUE(all(read_.data(), 'a'));
    EXPECT_EQ(receive(2), slot);
    EXPECT_TRUE(holds(slot, 'c'));
    sent.wait(soon());
}

TEST_F(NcclRooms, OneBucketHasOneRoom) {
    prepare(1);
    start(0);
    send(0);
    EXPECT_TRUE(holds(receive(0), 'a'));
    EXPECT_EQ(memory_stats("receiver.nccl").live_bytes, kBytes);
    prepare(3);
    EXPECT_EQ(memory_stats("receiver.nccl").live_bytes, 2 * kBytes);
}

TEST_F(NcclRooms, WhatIsOnItsWayEndsWithTheGroup) {
    prepare(3);
    start(0);
    start(1);
    member_.drop();
    EXPECT_FALSE(member_.joined());
    EXPECT_THAT(error_of([&] { start(0); }), HasSubstr("before a group was joined"));
    EXPECT_EQ(fake::count("abort"), 1);
}

TEST_F(NcclRooms, AnotherOrderThanTheTrainersIsRefused) {
    prepare(3);
    start(0);
    EXPECT_THAT(error_of([&] { receive(1); }), HasSubstr("another bucket was announced first"));
}

}  // namespace
}  // namespace tandem::engine
