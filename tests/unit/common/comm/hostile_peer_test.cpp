// What a rank does with a job's memory that somebody else has written: files that only look like a job, and a member of
// the group that writes whatever it likes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "common/comm/ipc/collectives.h"
#include "common/comm/ipc/exchange.h"
#include "common/comm/ipc/rank.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kHeapBytes = std::size_t{4} << 20;

// Why a copy of a job of two ranks is refused after `change`, empty when it is not.
std::string refusal(const std::function<void(JobControl&)>& change, off_t longer = 0,
                    int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
    const auto job = Job::create(2, kHeapBytes);
    std::byte head[4096];
    std::memcpy(head, job->memory().data, sizeof(head));
    change(*reinterpret_cast<JobControl*>(head));
    const int copy = ::memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(::pwrite(copy, head, sizeof(head), 0), static_cast<ssize_t>(sizeof(head)));
    EXPECT_EQ(::ftruncate(copy, static_cast<off_t>(job->memory().bytes) + longer), 0);
    EXPECT_EQ(::fcntl(copy, F_ADD_SEALS, seals), 0);
    try {
        Job::open(copy, 2);
        ::close(copy);
    } catch (const Error& error) {
        EXPECT_EQ(::fcntl(copy, F_GETFD), -1) << "taken over, so closed";
        return error.what();
    }
    return "";
}

TEST(HostileJob, OpensWhatCreateMakes) {
    EXPECT_EQ(refusal([](JobControl&) {}), "");
}

TEST(HostileJob, IsOfAsManyRanksAsThisOneKnows) {
    EXPECT_THAT(refusal([](JobControl& c) { c.world_size = 3; }),
                HasSubstr("made for 3 ranks, WORLD_SIZE is 2"));
    EXPECT_THAT(refusal([](JobControl& c) { c.world_size = 0x8000'0002; }), HasSubstr("WORLD_SIZE is 2"));
}

TEST(HostileJob, LiesAsItsSizesSay) {
    for (const std::uint64_t bytes :
         {std::uint64_t{0}, std::uint64_t{1}, kHeapBytes + 64, kHeapBytes * 2, std::uint64_t{1} << 62,
          ~std::uint64_t{0}, std::uint64_t{0} - (std::uint64_t{2} << 20)}) {
        EXPECT_THAT(refusal([&](JobControl& c) { c.heap_bytes = bytes; }), HasSubstr("bytes")) << bytes;
        EXPECT_THAT(refusal([&](JobControl& c) { c.heaps_offset = bytes; }), HasSubstr("need")) << bytes;
        EXPECT_THAT(refusal([&](JobControl& c) { c.total_bytes = bytes; }), HasSubstr("need")) << bytes;
    }
    EXPECT_THAT(refusal([](JobControl&) {}, 4096), HasSubstr("need"));
    EXPECT_THAT(refusal([](JobControl&) {}, -4096), HasSubstr("need"));
    EXPECT_THAT(refusal([](JobControl&) {}, 0, F_SEAL_GROW), HasSubstr("sealed"));
}

TEST(HostileJob, KeepsItsSizesWhateverIsWrittenLater) {
    const auto job = Job::create(2, kHeapBytes);
    const auto view = Job::open(::dup(job->fd()), 2);
    const Span heap = view->heap(1);
    auto& control = *reinterpret_cast<JobControl*>(job->memory().data);
    control.world_size = 200;
    control.heap_bytes = control.heaps_offset = control.total_bytes = ~std::uint64_t{0};
    EXPECT_EQ(view->world_size(), 2);
    EXPECT_EQ(view->heap(1).data, heap.data);
    EXPECT_EQ(view->heap(1).bytes, heap.bytes);
    EXPECT_EQ(view->offset_of({view->memory().data + view->memory().bytes, 1}), kNowhere);
    EXPECT_THROW(view->at(view->memory().bytes, 1), ProtocolError);
    EXPECT_THROW(view->at(view->memory().bytes - 8, 9), ProtocolError);
    EXPECT_THROW(view->at(~std::uint64_t{0} - 3, 8), ProtocolError);
}

TEST(HostileJob, ReasonsWithoutAnEndAreCut) {
    const auto job = Job::create(1, kHeapBytes);
    job->abort("rank 0", "why");
    auto& control = *reinterpret_cast<JobControl*>(job->memory().data);
    std::memset(control.abort_who, 'w', sizeof(control.abort_who));
    std::memset(control.abort_reason, 'r', sizeof(control.abort_reason));
    EXPECT_EQ(job->abort_who(), std::string(63, 'w'));
    EXPECT_EQ(job->abort_reason(), std::string(1023, 'r'));
}

// Rank 0 of two; what rank 1 writes is the test's.
class HostilePeer : public ::testing::Test {
  protected:
    // Rank 1 is at the next rendezvous already.
    void arrive() { shared_.head().arrived.fetch_add(1); }
    PostItem& post(std::uint32_t operation, PostHeader header, PostItem item) {
        std::byte* slot = shared_.slot(1, operation);
        header.items = 1;
        header.bytes = header.linear_bytes = item.bytes;
        if (header.table == 0) header.table = job_->offset_of({slot, 1}) + 128;
        header.payload = job_->offset_of({slot, 1}) + 192;
        new (slot) PostHeader(header);
        return *new (slot + 128) PostItem(item);
    }
    void send(ChannelEntry entry) {
        Channel& channel = shared_.channel(1, 0);
        channel.entries[channel.posted.load() % kChannelEntries] = entry;
        channel.posted.fetch_add(1);
    }
    std::string receive(Span memory) {
        try {
            OnCpu(group_).p2p({{P2POp::Kind::recv, 1, memory}});
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    }

    std::shared_ptr<Job> job_ = Job::create(2, kHeapBytes);
    std::shared_ptr<Rank> rank_ = std::make_shared<Rank>(job_, 0);
    Group group_{rank_, job_->world_block(), "world", {0, 1}};
    GroupView shared_{job_->world_block(), 2};
    Scratch scratch_;
    std::vector<std::byte> own_{4096};
    const std::uint64_t heap_ = job_->offset_of(ConstSpan(job_->heap(1)));
};

TEST_F(HostilePeer, SendsNoMoreThanTheReceiverHasRoomFor) {
    std::vector<std::byte> room(8192, std::byte{7});
    std::memset(job_->heap(1).data, 1, 8192);
    send({.offset = heap_, .bytes = 8192, .total = 4096});
    EXPECT_THAT(receive({room.data(), 4096}), HasSubstr("sends 8192 bytes to rank 0, which expects 4096"));
    EXPECT_EQ(std::accumulate(room.begin(), room.end(), 0, [](int sum, std::byte b) { return sum + int(b); }),
              7 * 8192);
}

TEST_F(HostilePeer, SendsNoMoreThanIsMissing) {
    std::vector<std::byte> room(8192, std::byte{7});
    send({.offset = heap_, .bytes = 3000, .total = 4096});
    send({.offset = heap_, .bytes = 3000, .total = 4096});
    EXPECT_THAT(receive({room.data(), 4096}), HasSubstr("sends 6000 bytes"));
    EXPECT_EQ(room[4096], std::byte{7});
}

TEST_F(HostilePeer, SendsBytesOfTheJobOnly) {
    std::vector<std::byte> room(4096);
    send({.offset = job_->memory().bytes - 8, .bytes = 4096, .total = 4096});
    EXPECT_THAT(receive({room.data(), 4096}), HasSubstr("of the job's memory"));
}

TEST_F(HostilePeer, SendsNoEmptyPiecesForEver) {
    std::vector<std::byte> room(4096);
    shared_.channel(1, 0).posted.store(0x7fff'ffff);
    shared_.channel(1, 0).entries[0].total = 4096;
    EXPECT_THAT(receive({room.data(), 4096}), HasSubstr("sends 0 bytes"));
}

TEST_F(HostilePeer, PostsAreUsedAsTheyWereChecked) {
    PostItem& item = post(0, {.kind = Kind::all_gather}, {.bytes = 4096, .offset = heap_});
    arrive();
    Exchange exchange(group_, scratch_, {.kind = Kind::all_gather});
    exchange.add(own_.size(), own_.data());
    exchange.post();
    item = {.bytes = std::uint64_t{1} << 40, .offset = std::uint64_t{1} << 50};
    EXPECT_EQ(exchange.window(1, 0), std::pair(std::uint64_t{0}, std::uint64_t{4096}));
    EXPECT_EQ(exchange.at(1, 0, 0, 4096), job_->heap(1).data);
}

TEST_F(HostilePeer, PostsLieInTheJob) {
    const std::uint64_t end = job_->memory().bytes;
    post(0, {.kind = Kind::all_gather, .table = end - 8}, {.bytes = 4096});
    arrive();
    Exchange first(group_, scratch_, {.kind = Kind::all_gather});
    first.add(own_.size(), own_.data());
    EXPECT_THROW(first.post(), ProtocolError);
    for (const std::uint64_t offset : {end, end - 8, std::uint64_t{0} - 4096, std::uint64_t{1} << 60}) {
        const std::uint32_t operation = group_.next_operation() + 1;
        post(operation, {.kind = Kind::all_gather}, {.bytes = 4096, .offset = offset});
        arrive();
        Exchange next(group_, scratch_, {.kind = Kind::all_gather});
        next.add(own_.size(), own_.data());
        next.post();
        EXPECT_THROW(next.at(1, 0, 0, 4096), ProtocolError) << offset;
    }
}

// Also where a peer has written over this rank's post.
TEST_F(HostilePeer, SizesAreComparedWithOwnOnes) {
    post(0, {.kind = Kind::all_gather}, {.bytes = 8192, .offset = heap_});
    arrive();
    Exchange exchange(group_, scratch_, {.kind = Kind::all_gather});
    exchange.add(own_.size(), own_.data());
    EXPECT_THROW(exchange.post(), InvalidArgument);
}

TEST_F(HostilePeer, DescribesCallsThatDoNotExist) {
    post(0, {.kind = static_cast<Kind>(77), .op = static_cast<ReduceOp>(99), .dtype = static_cast<DType>(55)},
         {.bytes = 4096});
    arrive();
    Exchange exchange(group_, scratch_, {.kind = Kind::all_reduce});
    exchange.add(own_.size(), own_.data());
    EXPECT_THROW(exchange.post(), InvalidArgument);
    post(1, {.kind = Kind::all_reduce, .op = static_cast<ReduceOp>(99), .dtype = static_cast<DType>(55)}, {});
    arrive();
    Exchange other(group_, scratch_, {.kind = Kind::all_reduce});
    other.add(own_.size(), own_.data());
    EXPECT_THROW(other.post(), InvalidArgument);
}

TEST_F(HostilePeer, LeadsNobodyOutOfTheJob) {
    Rank self(job_, 1);  // joins what rank 0 leads, whose list the test writes
    self.timeout_ms = 200;
    auto& head = job_->slot(0).groups_head;
    for (const std::uint64_t offset :
         {job_->memory().bytes, job_->memory().bytes - 64, std::uint64_t{0} - 64, heap_ + 1}) {
        head.store(offset);
        EXPECT_THROW(self.join("group", {0, 1}), ProtocolError) << offset;
    }
}

TEST_F(HostilePeer, ListsOfGroupsEnd) {
    Rank self(job_, 1);
    GroupBlock& block = GroupBlock::create(job_->heap(0).data, "other", {0, 1}, 0);
    block.next = job_->offset_of(ConstSpan(job_->heap(0)));
    std::memset(block.name, 'x', sizeof(block.name));  // a name without an end
    job_->slot(0).groups_head.store(block.next);
    EXPECT_THROW(self.join("group", {0, 1}), ProtocolError);
}

// It says that it has come, and never lets the others go on: so does a rank that is killed at that very moment.
TEST_F(HostilePeer, ArrivalsThatLeadNowhereEnd) {
    rank_->timeout_ms = 10;
    shared_.member(1).arrivals.store(7);
    try {
        group_.meet("barrier", group_.deadline());
        FAIL() << "no exception";
    } catch (const DeadlineExceeded& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    }
}

TEST_F(HostilePeer, SizeOfAGroupIsThisRanksOwn) {
    std::vector<std::byte> room(4096, std::byte{7});
    std::memset(job_->heap(1).data, 1, 4096);
    send({.offset = heap_, .bytes = 4096, .total = 4096});
    job_->world_block().size = 0xffff'ffff;
    rank_->timeout_ms = 2000;
    EXPECT_EQ(receive({room.data(), room.size()}), "");
    EXPECT_EQ(room[4095], std::byte{1});
}

}  // namespace
}  // namespace tandem::comm::ipc
