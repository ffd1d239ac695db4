// The engine's side in a process of its own: this test binary started again with "--engine". It takes lines
// on its standard input and answers each with a line:
//   status          "version V refusing R in_place P": P is 1 when it reads the trainer's memory
//   check VERSION   "ok", or the first byte that is not what that version holds
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "common/process/child_process.h"
#include "engine_adapter/receiver/receiver.h"
#include "tests/multiproc/sync/process_source.h"
#include "tests/unit/engine_adapter/receiver/test_target.h"

namespace tandem::sync {

// The first difference from a whole `version`, or "ok".
inline std::string check_weights(const engine::TestTarget& target, DType source, std::int64_t version) {
    const int step = step_of(version);
    for (std::size_t t = 0; t < target.weights().size(); ++t) {
        const engine::WeightSlot& weight = target.weights()[t];
        const Span memory = target.reading(t);
        const std::size_t width = dtype_size(weight.info.dtype);
        for (std::size_t i = 0; i < memory.bytes / width; ++i) {
            float value = process_value(t, i, step);
            if (source == DType::bfloat16) value = static_cast<float>(bfloat16(value));
            std::byte expected[4];
            put_value(expected, weight.info.dtype, value);
            if (std::memcmp(expected, memory.data + i * width, width) != 0)
                return fmt::format("{} element {} is not of version {}", weight.info.name, i, version);
        }
    }
    return "ok";
}

// main of "--engine SOURCE_DTYPE ENGINE_DTYPE".
inline int run_engine(const std::string& source, const std::string& held) {
    set_up_logging("engine");  // to standard error; standard output is for answers
    set_log_level(LogLevel::error);
    engine::TestTarget target(process_tensors(dtype_from_name(held)));
    const engine::Receiver receiver(target, {.copy_threads = 2});
    std::cout << receiver.address() << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string command;
        std::int64_t version = 0;
        words >> command >> version;
        if (command == "check") {
            std::cout << check_weights(target, dtype_from_name(source), version) << std::endl;
        } else {
            const bool in_place = target.reading(0).data != target.weights()[0].memory.data;
            std::cout << "version " << target.version() << " refusing " << target.refusing() << " in_place "
                      << in_place << std::endl;
        }
    }
    return 0;
}

struct EngineStatus {
    std::int64_t version = 0;
    bool refusing = false;
    bool in_place = false;
};

class EngineProcess {
  public:
    EngineProcess(DType source, DType held)
        : child_({.command = {"engine", "--engine", std::string(dtype_name(source)),
                              std::string(dtype_name(held))},
                  .program = "/proc/self/exe",
                  .piped = true,
                  .patience = std::chrono::seconds(30)}),
          address_(child_.read_line(answers())) {}

    const std::string& address() const { return address_; }
    int pid() const { return child_.pid(); }
    void kill() { child_.kill(); }
    // Returns when no thread of it runs any more: until then it may answer what is sent next.
    void stop() const {
        ::kill(child_.pid(), SIGSTOP);
        siginfo_t stopped;
        while (::waitid(P_PID, static_cast<id_t>(child_.pid()), &stopped, WSTOPPED | WNOWAIT) != 0 &&
               errno == EINTR) {
        }
    }
    void go_on() const { ::kill(child_.pid(), SIGCONT); }
    std::string ask(const std::string& line) { return child_.ask(line, answers()); }
    EngineStatus status() {
        EngineStatus status;
        std::string word;
        std::istringstream(ask("status")) >> word >> status.version >> word >> status.refusing >> word >>
            status.in_place;
        return status;
    }
    // "ok" when it refuses, holds nothing, or holds exactly the version that it says.
    std::string whole_or_refusing() {
        const EngineStatus now = status();
        if (now.refusing || now.version == 0) return "ok";
        return ask("check " + std::to_string(now.version));
    }

  private:
    static Deadline answers() { return Deadline::after_ms(60'000); }

    ChildProcess child_;
    std::string address_;
};

}  // namespace tandem::sync
