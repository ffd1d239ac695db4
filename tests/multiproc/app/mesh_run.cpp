#include "tests/multiproc/app/mesh_run.h"

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/support/named_shared_memory.h"

namespace tandem::test {

Words MeshRun::command(const std::string& name, const Words& mesh, Words values) const {
    for (const std::string& degree : mesh) values.push_back("mesh." + degree);
    values.push_back("name=" + name);
    return tiny_run(folder.path(), values);
}

void MeshRun::finish(const std::string& name, const Words& mesh, const Words& values,
                     const Words& environment) const {
    Program program(command(name, mesh, values), environment);
    ASSERT_EQ(program.wait(), 0) << program.err();
}

json MeshRun::summary(const std::string& name) const {
    return json::parse(read_file(folder / (name + "/summary.json")));
}

std::string MeshRun::weights(const std::string& name) const {
    return read_file(folder / (name + "/checkpoint/model.safetensors"));
}

void MeshRun::expect_same_on_gpus(const Words& mesh, Words values) const {
    values.insert(values.end(), {"sft.steps=3", "grpo.steps=3", "held_out=16"});
    finish("cpu", mesh, values);
    const auto on_gpus = [&](const std::string& name, const Words& more, int gpus) {
        Words all = values;
        all.insert(all.end(), more.begin(), more.end());
        all.emplace_back("device=cuda");
        finish(name, mesh, all, {"TANDEM_EMULATED_GPUS=" + std::to_string(gpus)});
        EXPECT_EQ(timeless_metrics(folder / "cpu"), timeless_metrics(folder / name));
        EXPECT_TRUE(weights("cpu") == weights(name));
    };
    on_gpus("gpu", {"memory.trainer_sleep=all"}, 2);
    on_gpus("nccl", {"sync.transport=nccl"}, 3);
}

void MeshRun::expect_same_losses_elsewhere(const std::vector<Words>& meshes, const Words& more) const {
    Words values{"sft.steps=24", "grpo.steps=0", "checkpoint.every=4", "checkpoint.keep=9", "held_out=4"};
    values.insert(values.end(), more.begin(), more.end());
    finish("stayed", {"dp=4", "cp=1"}, values);
    std::string from = "stayed";
    const auto stayed = timeless_metrics(folder / "stayed");
    for (std::size_t i = 0; i < meshes.size(); ++i) {
        const std::string name = "on" + std::to_string(i);
        Words all = values;
        all.push_back("run.resume=" + (folder / (from + "/checkpoints/step-" + std::to_string(4 * (i + 1)))));
        finish(name, meshes[i], all);
        const auto found = timeless_metrics(folder / name);
        ASSERT_EQ(found.size(), stayed.size()) << name;
        for (std::size_t step = 0; step < found.size(); ++step) {
            if (!found[step].contains("loss")) continue;
            EXPECT_EQ(found[step]["step"], stayed[step]["step"]);
            EXPECT_NEAR(found[step]["loss"].get<double>(), stayed[step]["loss"].get<double>(), 1e-5)
                << name << " " << step;
        }
        from = name;
    }
}

void MeshRun::expect_named(const Words& mesh, int rank, int signal, const std::string& message,
                           const Words& values) const {
    const auto named_before = named_shared_memory();
    Words all{"sft.steps=1", "grpo.steps=100000", "run.deadline_s=3", "engine.deadline_s=2",
              "sync.deadline_s=2"};
    all.insert(all.end(), values.begin(), values.end());
    Program program(command("tiny", mesh, all));
    ASSERT_TRUE(reinforces(folder)) << program.err();
    auto children = program.children();
    const std::string name = "rank " + std::to_string(rank);
    ASSERT_TRUE(children.contains(name));
    ASSERT_EQ(::kill(children[name], signal), 0);
    EXPECT_EQ(program.wait(std::chrono::seconds(30)), 1);
    EXPECT_THAT(program.err(), testing::HasSubstr(message));
    expect_all_end(children);
    expect_no_shared_memory_left(named_before);
}

}  // namespace tandem::test
