// The reduction kernel gives the very bits of the CPU's, for every dtype, op and number of sources, aligned
// or not. Compiled twice: for a real GPU, and with the kernel run on the host.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "common/comm/reduce.h"
#include "common/comm/reduce_on_gpu.h"
#include "common/device/memory.h"
#include "common/device/stream.h"
#include "common/tensor/dtype.h"
#if defined(TANDEM_KERNELS_ON_HOST)
#include "tests/support/guarded_memory.h"
#endif

namespace tandem::comm {
namespace {

#if defined(TANDEM_KERNELS_ON_HOST)
constexpr std::size_t kMany = 10'007;
Stream tested_stream() {
    return Stream::make_inline();
}
MemoryPool& tested_pool() {
    return tests::guarded_pool();
}
constexpr auto tested_reduce = on_host::reduce;
#else
constexpr std::size_t kMany = 100'003;
const Device kGpu{DeviceType::cuda, 0};
Stream tested_stream() {
    return Stream::make_compute(kGpu);
}
MemoryPool& tested_pool() {
    return device_pool(kGpu);
}
constexpr auto tested_reduce = reduce_on_gpu;
#endif

template <typename T>
T random_value(std::mt19937& generator) {
    if constexpr (std::is_same_v<T, std::int64_t>) {
        return static_cast<std::int64_t>(generator()) - (1LL << 31);
    } else {
        return T(std::uniform_real_distribution<float>(-8.0F, 8.0F)(generator));
    }
}

template <typename T>
void compare(std::size_t sources, std::size_t count, std::size_t shift, ReduceOp op, bool accumulate) {
    std::mt19937 generator(static_cast<unsigned>(sources * 1000 + count + shift));
    const std::size_t elements = count + shift;
    Stream stream = tested_stream();
    std::vector<std::vector<T>> host(sources + 1, std::vector<T>(elements));
    std::vector<Buffer> there;
    std::vector<const std::byte*> at_host;
    std::vector<const std::byte*> at_gpu;
    for (auto& values : host) {
        for (T& value : values) value = random_value<T>(generator);
        there.emplace_back(elements * sizeof(T), "test", tested_pool());
        copy(stream, {reinterpret_cast<const std::byte*>(values.data()), elements * sizeof(T)},
             there.back().span());
    }
    stream.synchronize();
    for (std::size_t s = 0; s < sources; ++s) {
        at_host.push_back(reinterpret_cast<const std::byte*>(host[s].data() + shift));
        at_gpu.push_back(there[s].data() + shift * sizeof(T));
    }
    constexpr DType dtype = dtype_of<T>::value;
    tested_reduce(stream, at_gpu, there.back().data() + shift * sizeof(T), count * sizeof(T), dtype, op,
                  accumulate);
    reduce(at_host, reinterpret_cast<std::byte*>(host.back().data() + shift), count * sizeof(T), dtype, op,
           accumulate);
    std::vector<T> got(elements);
    copy(stream, there.back().span(), {reinterpret_cast<std::byte*>(got.data()), elements * sizeof(T)});
    stream.synchronize();
    EXPECT_EQ(std::memcmp(got.data(), host.back().data(), elements * sizeof(T)), 0)
        << sources << " sources, " << count << " elements from " << shift << ", op " << static_cast<int>(op);
}

TEST(ReduceOnGpu, TheBitsOfTheCpu) {
    for (const std::size_t sources : {std::size_t{1}, std::size_t{2}, std::size_t{5}, std::size_t{16}}) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{1024}, kMany}) {
            for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
                for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min}) {
                    compare<float>(sources, count, shift, op, false);
                    compare<bfloat16>(sources, count, shift, op, false);
                    if (op != ReduceOp::avg) compare<std::int64_t>(sources, count, shift, op, false);
                }
                compare<float>(sources, count, shift, ReduceOp::avg, true);
            }
        }
    }
}

// More than all threads of the grid have at once.
TEST(ReduceOnGpu, ManyElementsAThread) {
    compare<float>(1, 1'050'001, 1, ReduceOp::sum, false);
}

// The result may lie over a source.
TEST(ReduceOnGpu, InPlace) {
    Stream stream = tested_stream();
    std::vector<float> values(1003), host(1003), got(1003);
    std::mt19937 generator(1);
    for (float& value : values) value = random_value<float>(generator);
    for (float& value : host) value = random_value<float>(generator);
    const std::size_t bytes = values.size() * sizeof(float);
    Buffer first(bytes, "test", tested_pool()), second(bytes, "test", tested_pool());
    copy(stream, {reinterpret_cast<const std::byte*>(values.data()), bytes}, first.span());
    copy(stream, {reinterpret_cast<const std::byte*>(host.data()), bytes}, second.span());
    const std::vector<const std::byte*> sources = {first.data(), second.data()};
    tested_reduce(stream, sources, second.data(), bytes, DType::float32, ReduceOp::sum, false);
    copy(stream, second.span(), {reinterpret_cast<std::byte*>(got.data()), bytes});
    stream.synchronize();
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], values[i] + host[i]) << i;
}

}  // namespace
}  // namespace tandem::comm
