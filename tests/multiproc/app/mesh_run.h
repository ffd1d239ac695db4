// Runs of tandem-train on a mesh, and what holds of them on every mesh.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/multiproc/app/program.h"

namespace tandem::test {

using nlohmann::json;
using Words = std::vector<std::string>;

class MeshRun : public testing::Test {
  protected:
    // mesh: {"dp=2", "tp=2"}; values: of --set.
    Words command(const std::string& name, const Words& mesh, Words values) const;
    void finish(const std::string& name, const Words& mesh, const Words& values,
                const Words& environment = {}) const;
    json summary(const std::string& name) const;
    std::string weights(const std::string& name) const;  // of its checkpoint

    // On emulated GPUs, also by NCCL: metrics and weights as on the CPU.
    void expect_same_on_gpus(const Words& mesh, Words values) const;
    // A run on dp 4 that goes on on the first mesh, from there on the others: its losses are those of the one that stayed.
    void expect_same_losses_elsewhere(const std::vector<Words>& meshes, const Words& values = {}) const;
    // A signal to one rank in the middle of a run ends it, with `message`; nothing is left.
    void expect_named(const Words& mesh, int rank, int signal, const std::string& message,
                      const Words& values = {}) const;

    Folder folder;
};

}  // namespace tandem::test
