// What every communicator backend must do. A check runs on every rank of a fresh job and throws when the
// backend is wrong; a backend joins by running all of them (see threads_test.cpp). No GoogleTest here: ranks
// may be processes.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/communicator.h"

namespace tandem::comm::contract {

using World = std::shared_ptr<Communicator>;

struct Check {
    std::string name;
    void (*run)(const World& world);
    int min_size = 1;
};

// A check with a number of ranks that it makes sense for.
struct Case {
    Check check;
    int size = 1;
    std::string name() const { return check.name + "_" + std::to_string(size); }
};

const std::vector<Check>& all_checks();
const Check& check_named(const std::string& name);
std::vector<Case> cases(const std::vector<int>& sizes);

// The parts that all_checks() joins.
std::vector<Check> gather_checks();  // all_gather, broadcast, all_to_all
std::vector<Check> reduce_checks();  // reduce_scatter, all_reduce
std::vector<Check> p2p_checks();
std::vector<Check> order_checks();    // barrier, streams, groups, repetition
std::vector<Check> failure_checks();  // calls that do not agree, abort, deadlines

class Failure : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

template <typename... Args>
void expect(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition) throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

// Runs `body`, which must throw E, and returns the message.
template <typename E, typename Body>
std::string message_of(Body&& body) {
    try {
        body();
    } catch (const E& error) {
        return error.what();
    } catch (const std::exception& error) {
        throw Failure(fmt::format("an exception of another type: {}", error.what()));
    }
    throw Failure("no exception");
}

inline void expect_contains(const std::string& text, const std::string& part) {
    expect(text.find(part) != std::string::npos, "'{}' does not contain '{}'", text, part);
}

}  // namespace tandem::comm::contract
