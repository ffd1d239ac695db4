// Tandem's exported memory in a PyTorch process, and PyTorch's in this one (tests/gpu/device/torch_ipc.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "common/device/export.h"
#include "common/device/memory.h"
#include "common/tensor/tensor.h"

namespace tandem {
namespace {

const Device kGpu{DeviceType::cuda, 0};
constexpr std::int64_t kCount = 1 << 20;
constexpr std::size_t kOffset = 4096;

std::string command(const std::string& arguments) {
    const char* python = ::getenv("TANDEM_PYTHON");
    return std::string(python == nullptr ? "python3" : python) +
           " " TANDEM_SOURCE_DIR "/tests/gpu/device/torch_ipc.py " + arguments;
}

std::string line_of(FILE* pipe) {
    char text[1024] = {};
    return ::fgets(text, sizeof text, pipe) == nullptr ? "" : text;
}

std::vector<std::int32_t> multiples(std::int32_t factor, std::int32_t plus = 0) {
    std::vector<std::int32_t> values(kCount);
    for (std::int32_t i = 0; i < kCount; ++i) values[static_cast<std::size_t>(i)] = factor * i + plus;
    return values;
}

Tensor ints(Span memory) {
    return Tensor::borrow(memory, {kCount}, DType::int32, kGpu);
}

TEST(Torch, OpensAHandleOfTandemsAndReadsTheSameBytes) {
    Stream stream = Stream::make_compute(kGpu);
    const ExportArena arena = ExportArena::create(kGpu, kOffset + kCount * 4);
    const Tensor tensor = ints(arena.span().subspan(kOffset, kCount * 4));
    const Tensor source = Tensor::from<std::int32_t>(multiples(1), {kCount});
    copy(stream, source, tensor);
    stream.synchronize();
    const ExportedRange range = export_range(kGpu, tensor.span());
    std::string hex;
    for (const std::byte byte : range.handle) hex += fmt::format("{:02x}", std::to_integer<int>(byte));
    FILE* torch = ::popen(command(fmt::format("open {} {} {}", hex, range.offset, kCount)).c_str(), "r");
    ASSERT_NE(torch, nullptr);
    EXPECT_EQ(line_of(torch), "ok\n");
    EXPECT_EQ(::pclose(torch), 0);
    EXPECT_EQ(tensor.to_host(stream).to_vector<std::int32_t>(), multiples(1, 1));
}

TEST(Torch, ItsOwnHandleOpensHere) {
    Stream stream = Stream::make_compute(kGpu);
    // What torch prints comes through a file: popen() is one way only, and it must live while we read.
    const std::string answer = ::testing::TempDir() + "torch_ipc." + std::to_string(::getpid());
    std::remove(answer.c_str());
    FILE* torch = ::popen((command(fmt::format("share {}", kCount)) + " > " + answer).c_str(), "w");
    ASSERT_NE(torch, nullptr);
    std::string hex;
    std::size_t offset = 0;
    for (const Deadline deadline = Deadline::after_ms(60'000); hex.size() != 128 && !deadline.passed();) {
        ::usleep(20'000);
        if (FILE* file = ::fopen(answer.c_str(), "r")) {
            const std::string line = line_of(file);
            if (line.ends_with("\n")) std::istringstream(line) >> hex >> offset;
            ::fclose(file);
        }
    }
    ASSERT_EQ(hex.size(), 128U) << "torch shared nothing within a minute";
    IpcHandle handle{};
    for (std::size_t i = 0; i < handle.size(); ++i)
        handle[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    {
        const OpenedArena arena = OpenedArena::open(kGpu, handle, offset + kCount * 4);
        const Tensor tensor = ints(arena.span().subspan(offset, kCount * 4));
        EXPECT_EQ(tensor.to_host(stream).to_vector<std::int32_t>(), multiples(3));
        const Tensor source = Tensor::from<std::int32_t>(multiples(5), {kCount});
        copy(stream, source, tensor);
        stream.synchronize();
    }
    ::fputs("go on\n", torch);
    EXPECT_EQ(::pclose(torch), 0);
    std::remove(answer.c_str());
}

}  // namespace
}  // namespace tandem
