// Exported memory and events between two processes: on the emulated GPU (multiproc.device) and on a real one
// (gpu.device.export). The second process is this program again, told which part to play: a process that
// has used a GPU cannot be forked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "common/device/devices.h"
#include "common/device/export.h"
#include "common/device/memory.h"
#include "common/tensor/tensor.h"
#include "tests/emulated_gpu/emulated.h"
#include "tests/support/run_tests.h"

namespace tandem {
namespace {

const Device kGpu{DeviceType::cuda, 0};
constexpr std::size_t kBytes = std::size_t{5} << 20;

// One end of a pair of pipes.
struct Wire {
    int in = -1;
    int out = -1;

    template <typename T>
    void send(const T& value) const {
        if (::write(out, &value, sizeof value) != static_cast<ssize_t>(sizeof value))
            throw SystemError("write", errno);
    }
    template <typename T>
    T receive() const {
        T value{};
        std::size_t done = 0;
        while (done < sizeof value) {
            const ssize_t some = ::read(in, reinterpret_cast<char*>(&value) + done, sizeof value - done);
            if (some <= 0) throw SystemError("read: the other process is gone", errno);
            done += static_cast<std::size_t>(some);
        }
        return value;
    }
};

struct Child {
    pid_t pid = -1;
    Wire wire;

    explicit Child(const char* part) {
        int down[2];
        int up[2];
        if (::pipe(down) != 0 || ::pipe(up) != 0) throw SystemError("pipe", errno);
        const std::string in = std::to_string(down[0]);
        const std::string out = std::to_string(up[1]);
        pid = ::fork();
        if (pid == 0) {
            ::close(down[1]);
            ::close(up[0]);
            ::execl("/proc/self/exe", "export_test", "--play", part, in.c_str(), out.c_str(), nullptr);
            ::_exit(127);
        }
        ::close(down[0]);
        ::close(up[1]);
        wire = {up[0], down[1]};
    }
    void expect_end() const {
        int status = -1;
        ASSERT_EQ(::waitpid(pid, &status, 0), pid);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
};

Tensor ints(Span memory) {
    return Tensor::borrow(memory, {static_cast<std::int64_t>(memory.bytes / 4)}, DType::int32, kGpu);
}

std::vector<std::int32_t> filled(std::int32_t value) {
    return std::vector<std::int32_t>(kBytes / 4, value);
}

struct Offer {
    IpcHandle memory{};
    IpcHandle written{};
    IpcHandle read{};
};
constexpr int kRounds = 20;

bool play_reader(const Wire& wire) {
    const auto handle = wire.receive<IpcHandle>();
    {
        Stream stream = Stream::make_compute(kGpu);
        const OpenedArena arena = OpenedArena::open(kGpu, handle, kBytes);
        if (ints(arena.span()).to_host(stream).to_vector<std::int32_t>() != filled(7)) return false;
        const Tensor eight = Tensor::from<std::int32_t>(filled(8), {kBytes / 4});
        copy(stream, eight, ints(arena.span()));
        stream.synchronize();
    }  // unmaps; the memory stays the exporter's
    wire.send('x');
    return memory_stats("arena").live_bytes == 0;
}

bool play_follower(const Wire& wire) {
    const auto offer = wire.receive<Offer>();
    Stream stream = Stream::make_compute(kGpu);
    const OpenedArena arena = OpenedArena::open(kGpu, offer.memory, kBytes);
    const SharedEvent written = SharedEvent::open(kGpu, offer.written);
    SharedEvent read = SharedEvent::open(kGpu, offer.read);
    std::vector<Tensor> seen;
    for (int round = 0; round < kRounds; ++round) {
        wire.receive<char>();
        written.wait(stream);
        seen.push_back(ints(arena.span()).to(stream, Device{}, "seen"));
        read.record(stream);
        wire.send('r');
    }
    stream.synchronize();
    for (int round = 0; round < kRounds; ++round) {
        if (seen[static_cast<std::size_t>(round)].to_vector<std::int32_t>() != filled(round)) return false;
    }
    return true;
}

bool refused(const IpcHandle& handle, std::size_t bytes, const std::string& words) {
    try {
        OpenedArena::open(kGpu, handle, bytes);
    } catch (const IpcRefused& error) {
        // The driver has words of its own, and not for everything.
        if (!is_emulated(kGpu) || std::string(error.what()).find(words) != std::string::npos) return true;
        std::fprintf(stderr, "child: unexpected words: %s\n", error.what());
    }
    return false;
}

bool play_refused(const Wire& wire) {
    const auto handle = wire.receive<IpcHandle>();
    bool good = refused(handle, kBytes * 4, "were exported") && refused(IpcHandle{}, 1, "no handle");
    try {
        SharedEvent::open(kGpu, handle);
        good = false;
    } catch (const IpcRefused&) {  // NOLINT: what it must be
    }
    wire.send('x');
    wire.receive<char>();  // the arena is gone
    return good && refused(handle, kBytes, "does not offer this memory any more");
}

TEST(Export, AnotherProcessReadsAndWritesTheSameBytes) {
    const Child child("reader");
    Stream stream = Stream::make_compute(kGpu);
    const ExportArena arena = ExportArena::create(kGpu, kBytes);
    EXPECT_EQ(memory_stats("arena").live_bytes, kBytes);
    const Tensor seven = Tensor::from<std::int32_t>(filled(7), {kBytes / 4});
    copy(stream, seven, ints(arena.span()));
    stream.synchronize();
    child.wire.send(arena.handle());
    child.wire.receive<char>();
    EXPECT_EQ(ints(arena.span()).to_host(stream).to_vector<std::int32_t>(), filled(8));
    child.expect_end();
}

TEST(Export, EventsOrderTheStreamsOfTwoProcesses) {
    const Child child("follower");
    Stream stream = Stream::make_compute(kGpu);
    const ExportArena arena = ExportArena::create(kGpu, kBytes);
    SharedEvent written = SharedEvent::create(kGpu);
    const SharedEvent read = SharedEvent::create(kGpu);
    child.wire.send(Offer{arena.handle(), written.handle(), read.handle()});
    read.wait(Deadline::after_ms(1000));  // never recorded: nothing to wait for
    std::vector<Tensor> sources;
    for (int round = 0; round < kRounds; ++round) {
        read.wait(stream);
        sources.push_back(Tensor::from<std::int32_t>(filled(round), {kBytes / 4}));
        copy(stream, sources.back(), ints(arena.span()));
        written.record(stream);
        child.wire.send('w');
        child.wire.receive<char>();
    }
    read.wait(Deadline::after_ms(20'000));
    stream.synchronize();
    child.expect_end();
}

TEST(Export, SaysWhatItRefuses) {
    const Child child("refused");
    Stream stream = Stream::make_compute(kGpu);
    {
        const ExportArena arena = ExportArena::create(kGpu, kBytes);
        child.wire.send(arena.handle());
        EXPECT_THROW(OpenedArena::open(kGpu, arena.handle(), kBytes), IpcRefused);  // its own
        child.wire.receive<char>();
        const ExportedRange range = export_range(kGpu, ConstSpan(arena.span()).subspan(4096, 100));
        EXPECT_EQ(range.handle, arena.handle());
        EXPECT_EQ(range.offset, 4096U);
        EXPECT_GE(range.allocation_bytes, kBytes);
        EXPECT_THROW(export_range(kGpu, {arena.data() + kBytes - 8, kBytes}), IpcRefused);
    }
    child.wire.send('y');
    child.expect_end();
    const Buffer work(100, "export_test", device_pool(kGpu));
    EXPECT_THROW(export_range(kGpu, work.span()), IpcRefused);
    EXPECT_THROW(ExportArena::create(Device{}, kBytes), InvalidArgument);
    EXPECT_THROW(ExportArena::create(kGpu, std::size_t{1} << 45, "too_much"), OutOfMemory);
    EXPECT_EQ(memory_stats("too_much").live_bytes, 0U);
}

}  // namespace

// Exits with 0 when the part was played to its end.
int play(const std::string& part, const Wire& wire) {
    const std::map<std::string, bool (*)(const Wire&)> parts{
        {"reader", play_reader}, {"follower", play_follower}, {"refused", play_refused}};
    try {
        return parts.at(part)(wire) ? 0 : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "child '%s': %s\n", part.c_str(), error.what());
        return 1;
    }
}

int play(char** arguments) {
    ::alarm(60);
    return play(arguments[2], {std::atoi(arguments[3]), std::atoi(arguments[4])});
}

}  // namespace tandem

int main(int count, char** arguments) {
    if (count == 5 && std::string(arguments[1]) == "--play") return tandem::play(arguments);
    return tandem::test::run_tests(count, arguments);
}
