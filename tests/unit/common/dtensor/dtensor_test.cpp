// DTensor's own rules: what from_local, distribute and redistribute accept, dtypes, asynchronous chains,
// memory.
#include "common/dtensor/dtensor.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "common/comm/launch.h"
#include "common/error.h"
#include "tests/unit/common/dtensor/sweep.h"

namespace tandem {
namespace {

using oracle::piece;
using oracle::same_bytes;
using testing::HasSubstr;
using testing::ThrowsMessage;
using World = std::shared_ptr<comm::Communicator>;

template <typename Call>
void expect_dtensor_refused(const Call& call, const std::string& part) {
    EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(HasSubstr(part)));
}

TEST(DTensor, RefusesWithWhatWouldBeRight) {
    const DeviceMesh mesh = DeviceMesh::abstract({2, 2}, {"dp", "cp"}, 3);
    const Tensor local = Tensor::zeros({3, 4}, DType::float32, "test");
    expect_dtensor_refused(
        [&] {
            DTensor::from_local(local, mesh, {Shard(0), Replicate()}, {5, 4});
        },
        "local piece of shape [3, 4], but [S(0), R] of [5, 4] gives rank 3 a piece of [2, 4]");
    expect_dtensor_refused(
        [&] {
            DTensor::from_local(local, mesh, {Shard(0)}, {6, 4});
        },
        "one for each axis");
    expect_dtensor_refused(
        [&] {
            DTensor::from_local(local, mesh, {Shard(2), Replicate()}, {6, 4});
        },
        "dim must be in [-2, 1]");
    expect_dtensor_refused(
        [&] {
            DTensor::distribute(local, mesh, {Partial(), Replicate()});
        },
        "cannot distribute a tensor as [P(sum), R]");
    const DTensor good = DTensor::from_local(local, mesh, {Shard(-2), Replicate()}, {6, 4});
    EXPECT_EQ(good.placements(), (Placements{Shard(0), Replicate()}));
    expect_dtensor_refused(
        [&] {
            (void)good.redistribute({Replicate(), Partial()});
        },
        "for internal use only");
    expect_dtensor_refused([&] { (void)good.redistribute({Replicate()}); }, "one for each axis");
    expect_dtensor_refused(
        [&] {
            redistribute_backward(good, {Replicate(), Replicate()}, {Replicate(), Shard(1)});
        },
        "gradient at [S(0), R], but the forward's result was at [R, S(1)]");
    EXPECT_EQ(good.layout().offsets, (Shape{3, 0}));
}

TEST(DTensor, DistributeAndFullTensorAreInverse) {
    comm::run_threads(4, [](const World& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, {2, 2}, {"dp", "tp"});
        const Tensor whole = piece({7, 5}, {1}, {Replicate()}, {0});
        for (const Placements& placements :
             oracle::every_layout({Replicate(), Shard(0), Shard(1), StridedShard(0, 2)}, 2)) {
            const DTensor cut = DTensor::distribute(whole, mesh, placements);
            EXPECT_TRUE(same_bytes(cut.local(), piece({7, 5}, {2, 2}, placements, mesh.coordinates())));
            EXPECT_TRUE(same_bytes(cut.full_tensor(), whole)) << to_string(placements);
        }
    });
}

// Scalars and tensors of every dtype; reductions only where they are defined.
TEST(DTensor, Dtypes) {
    comm::run_threads(2, [](const World& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, {2}, {"dp"});
        const auto mine = static_cast<std::uint8_t>(world->rank());
        for (const DType dtype :
             {DType::uint8, DType::int32, DType::int64, DType::bfloat16, DType::float32}) {
            Tensor local = Tensor::empty({2 - mine, 3}, dtype, "test");  // 3 rows over 2 ranks
            for (std::size_t i = 0; i < local.bytes(); ++i)
                local.raw()[i] = static_cast<std::byte>(mine * 100 + i);
            const DTensor rows = DTensor::from_local(local, mesh, {Shard(0)}, {3, 3});
            EXPECT_TRUE(same_bytes(rows.redistribute({Shard(1)}).redistribute({Shard(0)}).local(), local));
            EXPECT_TRUE(same_bytes(rows.redistribute({Replicate()}).redistribute({Shard(0)}).local(), local));
        }
        const std::vector<std::int64_t> counts = {5 + mine, 7};
        const Tensor term = Tensor::from<std::int64_t>(counts, {2});
        const DTensor counted = DTensor::from_local(term, mesh, {Partial()}, {2});
        EXPECT_THAT(counted.full_tensor().to_vector<std::int64_t>(), testing::ElementsAre(11, 14));
        expect_dtensor_refused([&] { (void)counted.redistribute({Shard(0)}); },
                               "reduce_scatter of a int64 DTensor");
        const DTensor bytes =
            DTensor::from_local(Tensor::zeros({2}, DType::uint8, "test"), mesh, {Partial()}, {2});
        expect_dtensor_refused([&] { (void)bytes.full_tensor(); }, "all_reduce of a uint8 DTensor");
        // A scalar has no dim to cut, but terms.
        const DTensor scalar =
            DTensor::from_local(piece({}, {2}, {Partial()}, {world->rank()}), mesh, {Partial()}, {});
        EXPECT_THAT(scalar.full_tensor().to_vector<float>(), testing::ElementsAre(1.0f));
    });
}

TEST(DTensor, Bfloat16SumsWidenAndRoundOnce) {
    comm::run_threads(3, [](const World& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, {3}, {"dp"});
        const std::vector<bfloat16> terms(3, bfloat16(world->rank() == 0 ? 256.0f : 0.75f));
        const DTensor partial =
            DTensor::from_local(Tensor::from<bfloat16>(terms, {3}), mesh, {Partial()}, {3});
        const bfloat16 expected(257.5f);  // rounding after each step would lose both 0.75
        EXPECT_EQ(partial.full_tensor().data<bfloat16>()[0], expected);
        EXPECT_EQ(partial.redistribute({Shard(0)}).local().data<bfloat16>()[0], expected);
    });
}

TEST(DTensor, KeptPartialReducesLater) {
    comm::run_threads(4, [](const World& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, {2, 2}, {"dp", "tp"});
        for (const auto op :
             {comm::ReduceOp::sum, comm::ReduceOp::avg, comm::ReduceOp::max, comm::ReduceOp::min}) {
            const Placements from = {Partial(op), Shard(0)};
            const DTensor source =
                DTensor::from_local(piece({5}, {2, 2}, from, mesh.coordinates()), mesh, from, {5});
            const DTensor kept = source.redistribute({Partial(op), Replicate()});
            EXPECT_EQ(kept.placements()[0], Partial(op));
            EXPECT_TRUE(same_bytes(kept.full_tensor(), piece({5}, {1}, {Replicate()}, {0})));
        }
    });
}

// Replicate -> Partial(sum) divides, so that the sum is the tensor again.
TEST(DTensor, InternalPartialIsAnEqualShare) {
    comm::run_threads(2, [](const World& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, {2}, {"tp"});
        Stream stream = Stream::make_inline();
        const Tensor whole = piece({4}, {1}, {Replicate()}, {0});
        const DTensor source = DTensor::distribute(whole, mesh, {Replicate()});
        const DTensor share = source.redistribute_async({Partial()}, stream, PartialTarget::allow).get();
        EXPECT_THAT(share.local().to_vector<float>(), testing::ElementsAre(0.5f, 1.0f, 1.5f, 2.0f));
        EXPECT_TRUE(same_bytes(share.full_tensor(), whole));
    });
}

// The chain of three steps runs behind a gate on a worker stream: the result's memory is there before its
// values, and the source may be dropped at once.
TEST(DTensor, AsyncChainRunsOnTheStream) {
    comm::run_threads(4, [](const World& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, {2, 2}, {"dp", "tp"});
        Stream gate = Stream::make_worker("gate");
        Stream stream = Stream::make_worker("comm");
        std::atomic<bool> open{false};
        gate.enqueue([&open] {
            while (!open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
        stream.wait(gate.record());
        const Placements from = {Shard(0), Shard(1)}, to = {Shard(1), Shard(0)};
        std::vector<PendingDTensor> pending;
        const std::vector<Shape> shapes = {{8, 6}, {7, 5}, {1, 9}, {0, 3}};
        for (const Shape& shape : shapes) {
            const DTensor source =
                DTensor::from_local(piece(shape, {2, 2}, from, mesh.coordinates()), mesh, from, shape);
            pending.push_back(source.redistribute_async(to, stream));
        }
        EXPECT_EQ(pending.back().event().poll(), Poll::pending);
        EXPECT_EQ(pending[0].get().local().shape(), (Shape{4, 3}));
        EXPECT_THROW((void)pending[0].wait(Deadline::after_ms(5)), DeadlineExceeded);
        open = true;
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            const DTensor result = pending[i].wait(Deadline::after_ms(20'000));
            EXPECT_TRUE(same_bytes(result.local(), piece(shapes[i], {2, 2}, to, mesh.coordinates())));
        }
    });
}

TEST(DTensor, NothingIsLeftAllocated) {
    const std::uint64_t before = memory_stats("dtensor").live_bytes;
    comm::run_threads(2, [](const World& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, {2}, {"dp"});
        Stream stream = Stream::make_worker("comm");
        for (int i = 0; i < 20; ++i) {
            const DTensor source = DTensor::from_local(piece({5, 4}, {2}, {Shard(1)}, mesh.coordinates()),
                                                       mesh, {Shard(1)}, {5, 4});
            (void)source.redistribute_async({Replicate()}, stream);  // dropped: the stream still finishes it
        }
        stream.synchronize();
        world->barrier();
    });
    EXPECT_EQ(memory_stats("dtensor").live_bytes, before);
}

// A gather along dim 0 lands in its final place: one buffer of the padded size, no copy beside it.
TEST(DTensor, RowGatherAllocatesTheResultOnly) {
    comm::run_threads(2, [](const World& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, {2}, {"dp"});
        const DTensor source =
            DTensor::from_local(piece({5, 4}, {2}, {Shard(0)}, mesh.coordinates()), mesh, {Shard(0)}, {5, 4});
        world->barrier();
        const std::uint64_t before = memory_stats("dtensor").allocations;
        world->barrier();
        const DTensor whole = source.redistribute({Replicate()});
        world->barrier();
        EXPECT_EQ(memory_stats("dtensor").allocations - before, 2u);  // one a rank
        EXPECT_TRUE(same_bytes(whole.local(), piece({5, 4}, {1}, {Replicate()}, {0})));
    });
}

// A small sweep for the sanitizers.
TEST(DTensor, SmallSweep) {
    comm::run_threads(4, [](const World& world) {
        const DeviceMesh mesh = DeviceMesh::create(world, {2, 2}, {"a", "b"});
        oracle::Options options =
            oracle::options_for(2, {2}, {Partial(), Partial(comm::ReduceOp::max)}, {0, 1, 3, 8});
        options.shapes_per_pair = 1;
        EXPECT_EQ(oracle::sweep(mesh, options), 49 * 25);
    });
}

}  // namespace
}  // namespace tandem
