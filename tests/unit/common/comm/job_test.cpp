// The job's memory: layout, opening, abort; and that a rank is taken once.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "common/comm/ipc/job.h"
#include "common/comm/ipc/rank.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

constexpr std::size_t kHeap = std::size_t{64} << 20;

TEST(Job, TouchesNoPageBeforeUse) {
    const auto job = Job::create(8, std::size_t{1} << 30);
    struct stat info {};
    ASSERT_EQ(::fstat(job->fd(), &info), 0);
    EXPECT_GT(info.st_size, std::int64_t{8} << 30);
    EXPECT_LT(info.st_blocks * 512, 1 << 20);
}

TEST(Job, HeapsAreApartAndReachable) {
    const auto job = Job::create(3, kHeap);
    for (int a = 0; a < 3; ++a) {
        const Span heap = job->heap(a);
        EXPECT_EQ(heap.bytes, kHeap);
        EXPECT_EQ(job->at(job->offset_of(heap), heap.bytes), heap.data);
        EXPECT_EQ(job->heap(0).data + static_cast<std::size_t>(a) * kHeap, heap.data);
    }
    EXPECT_EQ(job->offset_of({job->heap(2).data + kHeap - 4, 8}), kNowhere);  // runs over the end
    int outside = 0;
    EXPECT_EQ(job->offset_of({reinterpret_cast<const std::byte*>(&outside), 4}), kNowhere);
}

TEST(Job, TwoMappingsShareBytes) {
    const auto job = Job::create(2, kHeap);
    const auto view = Job::open(::dup(job->fd()), 2);
    EXPECT_EQ(view->world_size(), 2);
    EXPECT_NE(view->heap(1).data, job->heap(1).data);
    std::memcpy(job->heap(1).data, "tandem", 6);
    EXPECT_EQ(std::memcmp(view->heap(1).data, "tandem", 6), 0);
    view->abort("rank 1", "because");
    EXPECT_TRUE(job->aborted());
    job->abort("rank 0", "too late");
    EXPECT_EQ(job->abort_who(), "rank 1");
    EXPECT_EQ(job->abort_reason(), "because");
    EXPECT_THROW(job->throw_if_aborted("test"), TransportError);
}

TEST(Job, LongReasonsAreCut) {
    const auto job = Job::create(1, kHeap);
    job->abort(std::string(500, 'w'), std::string(5000, 'r'));
    EXPECT_EQ(job->abort_who(), std::string(63, 'w'));
    EXPECT_EQ(job->abort_reason(), std::string(1023, 'r'));
}

TEST(Job, RefusesOtherFiles) {
    const int empty = ::memfd_create("empty", MFD_CLOEXEC);
    EXPECT_THROW(Job::open(empty, 2), ProtocolError);
    EXPECT_EQ(::fcntl(empty, F_GETFD), -1) << "taken over, so closed";
    const int other = ::memfd_create("other", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(other, 1 << 20), 0);
    EXPECT_THROW(Job::open(other, 2), ProtocolError);
}

TEST(Job, RefusesATruncatedJob) {
    const auto job = Job::create(2, kHeap);
    const int copy = ::memfd_create("cut", MFD_CLOEXEC);
    char head[4096];
    ASSERT_EQ(::pread(job->fd(), head, sizeof(head), 0), static_cast<ssize_t>(sizeof(head)));
    ASSERT_EQ(::write(copy, head, sizeof(head)), static_cast<ssize_t>(sizeof(head)));
    EXPECT_THROW(Job::open(copy, 2), ProtocolError);
}

TEST(Job, RefusesAbsurdSizes) {
    EXPECT_THROW(Job::create(0), InvalidArgument);
    EXPECT_THROW(Job::create(kMaxRanks + 1), InvalidArgument);
}

TEST(Rank, IsTakenOnce) {
    const auto job = Job::create(2, kHeap);
    const Rank first(job, 1);
    try {
        const Rank second(job, 1);
        FAIL() << "no exception";
    } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1 of this job is taken already"));
    }
    EXPECT_THROW(Rank(job, 2), InvalidArgument);
    EXPECT_THROW(Rank(job, -1), InvalidArgument);
}

TEST(Rank, HeapIsItsOwnPart) {
    const auto job = Job::create(2, kHeap);
    const Rank rank(job, 1);
    std::byte* block = rank.pool->allocate(1000);
    EXPECT_GE(block, job->heap(1).data);
    EXPECT_LT(block, job->heap(1).data + kHeap);
    rank.pool->release(block, 1000);
    EXPECT_THROW(rank.pool->allocate(kHeap + 1), Error);
}

}  // namespace
}  // namespace tandem::comm::ipc
