// Weights over TCP between two hosts: what the processes of push_test.cpp do.
#pragma once

#include <string>

namespace tandem::engine {

// "engine": a receiver with the data plane at HOST:PORT, until it is killed. "trainer": pushes to tcp://HOST:PORT for ever,
// each step within 2 s; writes "pushed N\n" and "failed: WHY\n" into its file, and goes on after a failure. Both have
// the key of TANDEM_API_KEY. Returns the exit code.
int run_push_body(const std::string& body, const std::string& address, const std::string& file);

}  // namespace tandem::engine
