// Ranks as threads and alone: errors, memory, the shared receive buffer; and the environment's variables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "common/comm/ipc/communicator.h"
#include "common/comm/launch.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "common/store/store.h"

namespace tandem::comm {
namespace {

using ::testing::HasSubstr;
using World = std::shared_ptr<Communicator>;

TEST(RunThreads, RethrowsTheCauseNotItsConsequences) {
    const auto body = [](const World& world) {
        if (world->rank() == 1) throw std::logic_error("bad luck");
        world->barrier();
    };
    try {
        run_threads(3, body);
        FAIL() << "no exception";
    } catch (const std::logic_error& error) {
        EXPECT_STREQ(error.what(), "bad luck");
    }
}

TEST(RunThreads, OthersLearnTheReason) {
    std::atomic<int> told = 0;
    const auto body = [&](const World& world) {
        if (world->rank() == 0) throw std::runtime_error("bad luck");
        try {
            world->barrier();
        } catch (const TransportError& error) {
            if (error.peer() == "rank 0" && std::string(error.what()).find("bad luck") != std::string::npos)
                ++told;
            throw;
        }
    };
    EXPECT_THROW(run_threads(3, body), std::runtime_error);
    EXPECT_EQ(told, 2);
}

TEST(RunThreads, PassesForeignExceptionsOn) {
    EXPECT_THROW(run_threads(2,
                             [](const World& world) {
                                 if (world->rank() == 0) throw 5;
                             }),
                 int);
}

TEST(RunThreads, LeavesNoMemoryBehind) {
    run_threads(3, [](const World& world) {
        const Buffer part(1000, "test_launch", world->memory());
        const Buffer whole(3000, "test_launch");
        std::memset(part.data(), world->rank(), part.bytes());
        world->all_gather(ConstSpan(part.span()), whole.span());
    });
    EXPECT_EQ(memory_stats("test_launch").live_bytes, 0U);
    EXPECT_EQ(memory_stats("comm_staging").live_bytes, 0U);
    EXPECT_GE(memory_stats("test_launch").peak_bytes, 4000U);
}

// Memory from memory() reaches the peers as it is: no staging appears.
TEST(RunThreads, HeapMemoryIsNotStaged) {
    const auto before = memory_stats("comm_staging").allocations;
    run_threads(2, [](const World& world) {
        const Buffer part(1'000'000, "test_launch", world->memory());
        const Buffer whole(2'000'000, "test_launch");  // ordinary: only sends are read by peers
        std::memset(part.data(), world->rank(), part.bytes());
        world->all_gather(ConstSpan(part.span()), whole.span());
        EXPECT_EQ(whole.data()[1'999'999], std::byte{1});
        world->all_reduce(part.span(), DType::float32);
    });
    EXPECT_EQ(memory_stats("comm_staging").allocations, before);
    run_threads(2, [](const World& world) {
        const Buffer part(1'000'000, "test_launch");
        std::memset(part.data(), 0, part.bytes());
        world->all_reduce(part.span(), DType::float32);
    });
    EXPECT_EQ(memory_stats("comm_staging").allocations, before + 2);  // one window pair a rank
}

// All ranks receive into one and the same memory of the job: each writes its own part, and nobody leaves
// before all have.
TEST(RunThreads, AllGatherIntoSharedMemory) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{300'000}}) {
        std::atomic<std::byte*> shared = nullptr;
        run_threads(3, [&](const World& world) {
            Buffer owner;
            if (world->rank() == 0) {
                owner = Buffer(3 * bytes, "test_launch", world->memory());
                shared = owner.data();
            }
            world->barrier();
            const Span whole{shared, 3 * bytes};
            const auto me = static_cast<std::size_t>(world->rank());
            for (int round = 0; round < 20; ++round) {
                const Buffer part(bytes, "test_launch");
                std::memset(part.data(), world->rank() + 7 * round, bytes);
                world->all_gather(ConstSpan(part.span()), whole);
                for (std::size_t r = 0; r < 3; ++r) {
                    const auto wanted = static_cast<std::byte>(static_cast<int>(r) + 7 * round);
                    EXPECT_EQ(whole.data[r * bytes], wanted);
                    EXPECT_EQ(whole.data[(r + 1) * bytes - 1], wanted);
                }
                world->barrier();
                // In place as well.
                world->all_gather(ConstSpan(whole.subspan(me * bytes, bytes)), whole);
                world->barrier();
            }
        });
    }
}

// What happens to one rank alone, here a heap without room for staging, reaches the others at once.
TEST(RunThreads, TroubleOfOneRankReachesTheOthers) {
    const auto job = ipc::Job::create(2, std::size_t{2} << 20);
    std::thread other([&] {
        const World world = ipc::make_world(job, 1);
        const Buffer memory(100'000, "test_launch", world->memory());
        try {
            world->all_reduce(memory.span(), DType::float32);
            ADD_FAILURE() << "no exception";
        } catch (const TransportError& error) {
            EXPECT_EQ(error.peer(), "rank 0");
            EXPECT_THAT(error.what(), HasSubstr("pool 'heap of rank 0' is full"));
        }
    });
    const World world = ipc::make_world(job, 0);
    const Buffer memory(100'000, "test_launch");
    EXPECT_THROW(world->all_reduce(memory.span(), DType::float32), Error);
    other.join();
}

TEST(Solo, NeedsNobody) {
    const World world = solo();
    EXPECT_EQ(world->size(), 1);
    EXPECT_EQ(world->rank(), 0);
    EXPECT_EQ(world->name(), "world");
    float value[2] = {1.5F, 2.5F};
    float copy[2] = {};
    const Span from{reinterpret_cast<std::byte*>(value), 8};
    const Span to{reinterpret_cast<std::byte*>(copy), 8};
    world->all_gather(from, to);
    EXPECT_EQ(copy[1], 2.5F);
    Stream stream = Stream::make_inline();
    const ReduceScatterItem item{from, to, DType::float32, true};
    world->reduce_scatter(std::span(&item, 1), ReduceOp::avg, stream);
    EXPECT_EQ(copy[1], 5.0F);
    const P2POp ops[] = {{P2POp::Kind::recv, 0, to}, {P2POp::Kind::send, 0, from}};
    world->p2p(ops, stream);
    EXPECT_EQ(copy[1], 2.5F);
    world->all_reduce(from, DType::float32);
    EXPECT_EQ(value[0], 1.5F);
    EXPECT_EQ(world->split({0}, "inner")->size(), 1);
    world->abort("done");
    EXPECT_THROW(world->barrier(), TransportError);
    EXPECT_THROW(world->all_reduce(from, DType::float32), TransportError);
}

class Environment : public ::testing::Test {
  protected:
    void TearDown() override {
        for (const char* name :
             {"RANK", "WORLD_SIZE", "LOCAL_RANK", "TANDEM_JOB_FD", "MASTER_ADDR", "MASTER_PORT"}) {
            ::unsetenv(name);
        }
    }
    static void set(const char* name, const char* value) { ::setenv(name, value, 1); }
    static std::string refusal() {
        try {
            connect_from_environment(Deadline::after_ms(100));
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "no error";
    }
};

TEST_F(Environment, SaysWhoThisIs) {
    EXPECT_FALSE(launched_as_rank());
    set("RANK", "3");
    EXPECT_FALSE(launched_as_rank());
    set("WORLD_SIZE", "8");
    EXPECT_TRUE(launched_as_rank());
    EXPECT_EQ(rank_environment().rank, 3);
    EXPECT_EQ(rank_environment().world_size, 8);
    EXPECT_EQ(rank_environment().local_rank, 3);
    set("LOCAL_RANK", "1");
    EXPECT_EQ(rank_environment().local_rank, 1);
}

TEST_F(Environment, NamesTheBadVariable) {
    set("RANK", "0");
    set("WORLD_SIZE", "two");
    EXPECT_THAT(refusal(), HasSubstr("WORLD_SIZE: 'two' is not an integer"));
    set("WORLD_SIZE", "2");
    set("RANK", "2");
    EXPECT_THAT(refusal(), HasSubstr("RANK: '2' is not an integer from 0 to 1"));
    set("RANK", "1");
    EXPECT_THAT(refusal(), HasSubstr("MASTER_ADDR: not set"));
    set("MASTER_ADDR", "127.0.0.1");
    EXPECT_THAT(refusal(), HasSubstr("MASTER_PORT: ''"));
    set("TANDEM_JOB_FD", "987654");
    EXPECT_THAT(refusal(), HasSubstr("TANDEM_JOB_FD: 987654 is not open here"));
}

TEST_F(Environment, OneRankIsSolo) {
    set("RANK", "0");
    set("WORLD_SIZE", "1");
    EXPECT_EQ(connect_from_environment(Deadline::after_ms(100))->size(), 1);
}

TEST_F(Environment, MissingRanksAreNamed) {
    set("RANK", "0");
    set("WORLD_SIZE", "3");
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(TcpStoreServer("127.0.0.1", 0).port()).c_str());  // a free one
    try {
        connect_from_environment(Deadline::after_ms(150));
        FAIL() << "no exception";
    } catch (const DeadlineExceeded& error) {
        EXPECT_EQ(error.peer(), "rank 1, rank 2");
    }
}

}  // namespace
}  // namespace tandem::comm
