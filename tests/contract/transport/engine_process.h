// An engine rank of the contract in a process of its own, which this program starts of itself.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "common/log.h"
#include "common/process/child_process.h"
#include "tests/contract/transport/engine_here.h"

namespace tandem::engine {

// The main of an engine's process, which EngineProcess starts. "weights T FILE" on its input writes tensor T
// there.
inline int run_engine_process(Device device) {
    set_up_logging("engine");
    const EngineHere engine(device);
    std::cout << engine.address() << std::endl;
    std::string word;
    int tensor = 0;
    std::string file;
    while (std::cin >> word >> tensor >> file) {
        const std::vector<std::byte> bytes = engine.weights(tensor);
        std::FILE* out = std::fopen(file.c_str(), "wb");
        const bool good = out != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), out) == bytes.size();
        if (out != nullptr) std::fclose(out);
        std::cout << (good ? "good" : "bad") << std::endl;
    }
    return 0;
}

// This program with "--engine".
class EngineProcess {
  public:
    EngineProcess()
        : engine_({.command = {"engine", "--engine"},
                   .program = "/proc/self/exe",
                   .piped = true,
                   .patience = std::chrono::seconds(30)}),
          fd_(::memfd_create("tandem:weights", MFD_CLOEXEC)),
          address_(engine_.read_line(answers())) {}
    ~EngineProcess() { ::close(fd_); }
    EngineProcess(const EngineProcess&) = delete;
    EngineProcess& operator=(const EngineProcess&) = delete;

    const std::string& address() const { return address_; }
    std::vector<std::byte> weights(int tensor) {
        const std::string answer =
            engine_.ask(fmt::format("weights {} /proc/{}/fd/{}", tensor, ::getpid(), fd_), answers());
        std::vector<std::byte> bytes(tensor_bytes(TransportRig::tensors()[static_cast<std::size_t>(tensor)]));
        EXPECT_EQ(answer.substr(0, 4), "good");
        EXPECT_EQ(::pread(fd_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
        return bytes;
    }
    void kill() { engine_.kill(); }

  private:
    static Deadline answers() { return Deadline::after_ms(60'000); }

    ChildProcess engine_;
    int fd_;
    std::string address_;
};

}  // namespace tandem::engine
