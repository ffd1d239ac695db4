// What the first GPU's memory and bus give: copies on the device, to it and from it, and the cost of an
// allocation, of an event and of a small copy. The copy on the device is the speed of light of everything
// memory-bound: its rate counts the bytes copied once, as the sync's does; they are read and written.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "common/device/devices.h"
#include "common/device/memory.h"
#include "common/device/stream.h"

namespace tandem {
namespace {

const Device kGpu{DeviceType::cuda, 0};
constexpr std::size_t kBytes = std::size_t{1} << 30;

void copy_bytes(benchmark::State& state, MemoryPool& from_pool, MemoryPool& to_pool) {
    Stream stream = Stream::make_compute(kGpu);
    const auto bytes = static_cast<std::size_t>(state.range(0));
    const Buffer from(bytes, "bench", from_pool);
    const Buffer to(bytes, "bench", to_pool);
    if (&from_pool == &device_pool(kGpu)) fill_zero(stream, from.span());
    if (&from_pool != &device_pool(kGpu)) std::fill_n(from.data(), bytes, std::byte{1});
    for (int i = 0; i < 3; ++i) copy(stream, from.span(), to.span());
    stream.synchronize();
    for (auto _ : state) {
        copy(stream, from.span(), to.span());
        stream.synchronize();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}

void device_to_device(benchmark::State& state) {
    copy_bytes(state, device_pool(kGpu), device_pool(kGpu));
}
void host_to_device(benchmark::State& state) {
    copy_bytes(state, pinned_pool(), device_pool(kGpu));
}
void device_to_host(benchmark::State& state) {
    copy_bytes(state, device_pool(kGpu), pinned_pool());
}
void pageable_to_device(benchmark::State& state) {
    copy_bytes(state, cpu_pool(), device_pool(kGpu));
}

void allocation(benchmark::State& state) {
    Stream stream = Stream::make_compute(kGpu);
    for (auto _ : state) {
        const Buffer block(static_cast<std::size_t>(state.range(0)), "bench", device_pool(kGpu));
        benchmark::DoNotOptimize(block.data());
    }
    stream.synchronize();
}

void event_recorded_and_waited_for(benchmark::State& state) {
    Stream one = Stream::make_compute(kGpu);
    Stream two = Stream::make(kGpu, "two");
    for (auto _ : state) two.wait(one.record());
    two.synchronize();
}

BENCHMARK(device_to_device)->Arg(1 << 12)->Arg(64 << 20)->Arg(kBytes)->UseRealTime();
BENCHMARK(host_to_device)->Arg(1 << 12)->Arg(64 << 20)->Arg(kBytes)->UseRealTime();
BENCHMARK(device_to_host)->Arg(1 << 12)->Arg(64 << 20)->Arg(kBytes)->UseRealTime();
BENCHMARK(pageable_to_device)->Arg(64 << 20)->UseRealTime();
BENCHMARK(allocation)->Arg(1 << 12)->Arg(64 << 20)->UseRealTime();
BENCHMARK(event_recorded_and_waited_for)->UseRealTime();

}  // namespace
}  // namespace tandem

int main(int count, char** arguments) {
    try {
        tandem::require_device(tandem::kGpu);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "device_gpu_bench: %s\n", error.what());
        return 2;
    }
    benchmark::AddCustomContext("gpu", tandem::device_info(tandem::kGpu).name);
    benchmark::Initialize(&count, arguments);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
