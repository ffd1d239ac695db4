// Exported memory and events between two processes, on the emulated GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "common/device/devices.h"
#include "common/device/emulated.h"
#include "common/device/export.h"
#include "common/device/memory.h"
#include "common/tensor/tensor.h"

namespace tandem {
namespace {

[[maybe_unused]] const int kEmulate = ::setenv("TANDEM_EMULATED_GPUS", "1", 1);
const Device kGpu{DeviceType::cuda, 0};
constexpr std::size_t kBytes = std::size_t{5} << 20;

// Both ends of a pair of pipes between this process and its child.
class Wire {
  public:
    Wire() {
        if (::pipe(down_) != 0 || ::pipe(up_) != 0) throw SystemError("pipe", errno);
    }
    template <typename T>
    void send(const T& value, bool to_child) const {
        ASSERT_EQ(::write((to_child ? down_ : up_)[1], &value, sizeof value),
                  static_cast<ssize_t>(sizeof value));
    }
    template <typename T>
    T receive(bool from_child) const {
        T value{};
        EXPECT_EQ(::read((from_child ? up_ : down_)[0], &value, sizeof value),
                  static_cast<ssize_t>(sizeof value));
        return value;
    }

  private:
    int down_[2] = {-1, -1};
    int up_[2] = {-1, -1};
};

// The child exits with 0 when `work` returns true; an exception's text goes to stderr.
pid_t start_child(const std::function<bool()>& work) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::alarm(60);
    bool good = false;
    try {
        good = work();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
    }
    ::_exit(good ? 0 : 1);
}

void expect_end(pid_t pid) {
    int status = -1;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

Tensor ints(Span memory) {
    return Tensor::borrow(memory, {static_cast<std::int64_t>(memory.bytes / 4)}, DType::int32, kGpu);
}

std::vector<std::int32_t> filled(std::int32_t value) {
    return std::vector<std::int32_t>(kBytes / 4, value);
}

TEST(Export, AnotherProcessReadsAndWritesTheSameBytes) {
    const Wire wire;
    const pid_t child = start_child([&] {
        const auto handle = wire.receive<IpcHandle>(false);
        {
            Stream stream = Stream::make_compute(kGpu);
            const OpenedArena arena = OpenedArena::open(kGpu, handle, kBytes);
            if (ints(arena.span()).to_host(stream).to_vector<std::int32_t>() != filled(7)) return false;
            copy(stream, Tensor::from<std::int32_t>(filled(8), {kBytes / 4}), ints(arena.span()));
            stream.synchronize();
        }  // unmaps; the memory stays the exporter's
        wire.send('x', false);
        return memory_stats("arena").live_bytes == 0;
    });
    Stream stream = Stream::make_compute(kGpu);
    const ExportArena arena = ExportArena::create(kGpu, kBytes);
    EXPECT_EQ(memory_stats("arena").live_bytes, kBytes);
    const Tensor seven = Tensor::from<std::int32_t>(filled(7), {kBytes / 4});
    copy(stream, seven, ints(arena.span()));
    stream.synchronize();
    wire.send(arena.handle(), true);
    wire.receive<char>(true);
    EXPECT_EQ(ints(arena.span()).to_host(stream).to_vector<std::int32_t>(), filled(8));
    expect_end(child);
}

TEST(Export, EventsOrderTheStreamsOfTwoProcesses) {
    struct Offer {
        IpcHandle memory{};
        IpcHandle written{};
        IpcHandle read{};
    };
    constexpr int kRounds = 20;
    const Wire wire;
    const pid_t child = start_child([&] {
        const auto offer = wire.receive<Offer>(false);
        Stream stream = Stream::make_compute(kGpu);
        const OpenedArena arena = OpenedArena::open(kGpu, offer.memory, kBytes);
        const SharedEvent written = SharedEvent::open(kGpu, offer.written);
        SharedEvent read = SharedEvent::open(kGpu, offer.read);
        std::vector<Tensor> seen;
        for (int round = 0; round < kRounds; ++round) {
            wire.receive<char>(false);
            written.wait(stream);
            seen.push_back(ints(arena.span()).to(stream, Device{}, "seen"));
            read.record(stream);
            wire.send('r', false);
        }
        stream.synchronize();
        for (int round = 0; round < kRounds; ++round) {
            if (seen[static_cast<std::size_t>(round)].to_vector<std::int32_t>() != filled(round))
                return false;
        }
        return true;
    });
    Stream stream = Stream::make_compute(kGpu);
    const ExportArena arena = ExportArena::create(kGpu, kBytes);
    SharedEvent written = SharedEvent::create(kGpu);
    const SharedEvent read = SharedEvent::create(kGpu);
    wire.send(Offer{arena.handle(), written.handle(), read.handle()}, true);
    read.wait(Deadline::after_ms(1000));  // never recorded: nothing to wait for
    std::vector<Tensor> sources;
    for (int round = 0; round < kRounds; ++round) {
        read.wait(stream);
        sources.push_back(Tensor::from<std::int32_t>(filled(round), {kBytes / 4}));
        copy(stream, sources.back(), ints(arena.span()));
        written.record(stream);
        wire.send('w', true);
        wire.receive<char>(true);
    }
    read.wait(Deadline::after_ms(20'000));
    expect_end(child);
}

TEST(Export, SaysWhatItRefuses) {
    const Wire wire;
    const pid_t child = start_child([&] {
        const auto handle = wire.receive<IpcHandle>(false);
        const auto refused = [&](const IpcHandle& what, std::size_t bytes, const std::string& words) {
            try {
                OpenedArena::open(kGpu, what, bytes);
            } catch (const IpcRefused& error) {
                if (std::string(error.what()).find(words) != std::string::npos) return true;
                std::fprintf(stderr, "child: unexpected words: %s\n", error.what());
            }
            return false;
        };
        bool good = refused(handle, kBytes + 1, "were exported") && refused(IpcHandle{}, 1, "no handle");
        try {
            SharedEvent::open(kGpu, handle);
            good = false;
        } catch (const IpcRefused&) {
        }
        wire.send('x', false);
        wire.receive<char>(false);  // the arena is gone
        return good && refused(handle, kBytes, "does not offer this memory any more");
    });
    {
        const ExportArena arena = ExportArena::create(kGpu, kBytes);
        wire.send(arena.handle(), true);
        EXPECT_THROW(OpenedArena::open(kGpu, arena.handle(), kBytes), IpcRefused);  // its own
        wire.receive<char>(true);
        const ExportedRange range = export_range(kGpu, ConstSpan(arena.span()).subspan(4096, 100));
        EXPECT_EQ(range.handle, arena.handle());
        EXPECT_EQ(range.offset, 4096U);
        EXPECT_EQ(range.allocation_bytes, kBytes);
        EXPECT_THROW(export_range(kGpu, {arena.data() + kBytes - 8, 16}), IpcRefused);
    }
    wire.send('y', true);
    expect_end(child);
    const Buffer work(100, "export_test", device_pool(kGpu));
    EXPECT_THROW(export_range(kGpu, work.span()), IpcRefused);
    EXPECT_THROW(ExportArena::create(Device{}, kBytes), InvalidArgument);
    EXPECT_THROW(ExportArena::create(kGpu, std::size_t{1} << 45, "too_much"), OutOfMemory);
    EXPECT_EQ(memory_stats("too_much").live_bytes, 0U);
}

}  // namespace
}  // namespace tandem
