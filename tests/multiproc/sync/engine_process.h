// The engine's side in a process of its own: this test binary started again with "--engine". It takes lines
// on its standard input and answers each with a line:
//   status          "version V refusing R"
//   check STEP      "ok", or the first byte that is not what a whole version of that step holds
#pragma once

#include <signal.h>
#include <sys/prctl.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "common/comm/piped_child.h"
#include "common/error.h"
#include "common/log.h"
#include "engine_adapter/receiver/receiver.h"
#include "tests/unit/receiver/test_target.h"
#include "tests/unit/sync/test_source.h"

namespace tandem::sync {

// Uneven rows, tiny tensors, rows and tensors larger than the tests' buckets; about 1.3 million elements.
inline std::vector<engine::TensorInfo> process_tensors(DType dtype) {
    return {{"embed", {2111, 256}, dtype}, {"norm", {7}, dtype},        {"q", {640, 480}, dtype},
            {"one", {1}, dtype},           {"wide", {3, 50000}, dtype}, {"gate", {971, 311}, dtype},
            {"tail", {5, 2, 3}, dtype}};
}

// The first difference from a whole version of `step`, or "ok".
inline std::string check_weights(const engine::TestTarget& target, DType source, int step) {
    for (std::size_t t = 0; t < target.weights().size(); ++t) {
        const engine::WeightSlot& weight = target.weights()[t];
        const Span memory = target.reading(t);
        const std::size_t width = dtype_size(weight.info.dtype);
        for (std::size_t i = 0; i < memory.bytes / width; ++i) {
            float value = element_value(t, i, step);
            if (source == DType::bfloat16) value = static_cast<float>(bfloat16(value));
            std::byte expected[4];
            put_value(expected, weight.info.dtype, value);
            if (std::memcmp(expected, memory.data + i * width, width) != 0) {
                return fmt::format("{} element {} is not of step {}", weight.info.name, i, step);
            }
        }
    }
    return "ok";
}

// main of "--engine SOURCE_DTYPE ENGINE_DTYPE".
inline int run_engine(const std::string& source, const std::string& held) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_up_logging("engine");  // to standard error; standard output is for answers
    engine::TestTarget target(process_tensors(dtype_from_name(held)));
    const engine::Receiver receiver(target, {.copy_threads = 2});
    std::cout << receiver.address() << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string command;
        int step = 0;
        words >> command >> step;
        if (command == "check")
            std::cout << check_weights(target, dtype_from_name(source), step) << std::endl;
        else
            std::cout << "version " << target.version() << " refusing " << target.refusing() << std::endl;
    }
    return 0;
}

class EngineProcess {
  public:
    EngineProcess(DType source, DType held)
        : child_({"engine", "--engine", std::string(dtype_name(source)), std::string(dtype_name(held))}),
          address_(child_.read_line()) {}

    const std::string& address() const { return address_; }
    int pid() const { return child_.pid(); }
    void kill() { child_.kill(); }
    std::string ask(const std::string& line) { return child_.ask(line); }

  private:
    comm::PipedChild child_;
    std::string address_;
};

}  // namespace tandem::sync
