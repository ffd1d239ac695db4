// What tandem-train does when it is told nonsense, and when a part of the job dies: a clear word, the right
// exit code, nothing left behind.
#include <gmock/gmock.h>

#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "common/wrap.h"
#include "tests/multiproc/app/program.h"
#include "tests/support/named_shared_memory.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

TEST(BadInput, EndsWithTwoAndWritesNothing) {
    Folder folder, elsewhere;
    std::ofstream(elsewhere / "bad.toml") << "[mesh]\ndpp = 2\n";
    std::ofstream(elsewhere / "broken.toml") << "[mesh\n";
    const auto with = [&](const std::string& value) { return tiny_run(folder / "runs", {value}); };
    const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
        {{"tandem-train", elsewhere / "bad.toml"},
         "bad.toml:2: unknown key 'mesh.dpp'; did you mean 'mesh.dp'?"},
        {{"tandem-train", elsewhere / "broken.toml"}, "broken.toml:1"},
        {{"tandem-train", elsewhere / "none.toml"}, "none.toml: cannot be read"},
        {{"tandem-train"}, "CONFIG.toml"},
        {{"tandem-train", "--frobnicate"}, "--frobnicate"},
        {{"tandem-train", "explain", "mesh.dpp"}, "did you mean 'mesh.dp'?"},
        {{"tandem-train", "inspect", "msh", "--tp", "2"},
         "there is no subcommand 'msh'; there are mesh, shard, redistribute, schedule, memory"},
        {{"tandem-sync", "plna"}, "there is no subcommand 'plna'; there are bench, plan, push"},
        {{"tandem-sync"}, "A subcommand is required"},
        {{"tandem-engine", "tokenise"}, "there is no subcommand 'tokenise'; there are serve, tokenize"},
        {{"tandem-sync", "plan", "--shapes", elsewhere.path()}, "is a folder, not a file"},
        {{"tandem-sync", "plan", "--shapes", "/dev/zero"}, "/dev/zero: is larger than 67108864 bytes"},
        {{"tandem-sync", "plan", "--engine-dtype", "fp8"},
         "--engine-dtype: must be float32, bfloat16 or float16"},
        {{"tandem-engine", "serve", "--model", elsewhere.path(), "--api-key", ""}, "--api-key: is empty"},
        {{"tandem-engine", "serve", "--model", elsewhere.path(), "--ready-file", elsewhere / "none/url"},
         "--ready-file: "},
        {{"tandem-train", "report", elsewhere / "nowhere"}, "summary.json: cannot be read"},
        {with("mesh.dpp=2"), "--set: unknown key 'mesh.dpp'; did you mean 'mesh.dp'?"},
        {with("mesh.dp=0"), "mesh.dp: expects a whole number from 1 to 1024, got 0"},
        {with("model.heads=3"), "3 heads do not divide among 2 kv_heads"},
        {with("model.context=9"), "the context is 9 tokens, but a prompt of 8"},
        {with("grpo.updates=3"), "grpo.updates: 3 does not divide the 64 samples"},
        {with("model.path=/nowhere"), "/nowhere"},
        {with("engine.url=ftp://x"), "engine.url"},
    };
    for (const auto& [command, message] : table) {
        Program program(command);
        EXPECT_EQ(program.wait(), 2) << message;
        EXPECT_THAT(program.err() + program.out(), HasSubstr(message));
        EXPECT_TRUE(folder.empty()) << message;
    }
}

TEST(BadInput, ATruncatedModelWritesNothing) {
    Folder folder;
    Program good(tiny_run(folder.path(), {"sft.steps=1", "grpo.steps=0"}));
    ASSERT_EQ(good.wait(), 0) << good.err();
    Program report({"tandem-train", "report", folder / "tiny/"});
    EXPECT_EQ(report.wait(), 0) << report.err();
    EXPECT_EQ(report.out(), "report: " + (folder / "tiny/report.html") + "\n");
    const std::string weights = folder / "tiny/checkpoint/model.safetensors";
    fs::resize_file(weights, fs::file_size(weights) / 2);
    Program bad(tiny_run(folder / "runs", {"model.path=" + (folder / "tiny/checkpoint")}));
    EXPECT_EQ(bad.wait(), 2);
    EXPECT_THAT(bad.err(), HasSubstr("model.safetensors"));
    EXPECT_FALSE(fs::exists(folder / "runs"));
}

TEST(Help, ComesWithExamples) {
    const std::vector<std::string> commands = {"tandem-train",
                                               "tandem-train explain",
                                               "tandem-train report",
                                               "tandem-train inspect",
                                               "tandem-train inspect mesh",
                                               "tandem-train inspect shard",
                                               "tandem-train inspect redistribute",
                                               "tandem-train inspect schedule",
                                               "tandem-train inspect memory",
                                               "tandem-sync",
                                               "tandem-sync push",
                                               "tandem-sync bench",
                                               "tandem-sync plan",
                                               "tandem-engine",
                                               "tandem-engine serve",
                                               "tandem-engine tokenize"};
    for (const std::string& command : commands) {
        std::istringstream words(command + " --help");
        Program program({std::istream_iterator<std::string>(words), {}});
        EXPECT_EQ(program.wait(), 0);
        EXPECT_THAT(program.out(), HasSubstr("Example")) << command;
        std::istringstream lines(program.out());
        for (std::string line; std::getline(lines, line);) {
            const bool to_copy = line.starts_with("  tandem-") || line.starts_with("    '");
            EXPECT_TRUE(to_copy || characters(line) <= kTerminalColumns) << command << ": " << line;
        }
    }
    Program explain({"tandem-train", "explain", "mesh.cp"});
    EXPECT_EQ(explain.wait(), 0);
    EXPECT_THAT(explain.out(), HasSubstr("a whole number from 1 to 1024"));
    Program json({"tandem-train", "explain", "--json"});
    EXPECT_EQ(json.wait(), 0);
    EXPECT_GT(nlohmann::json::parse(json.out()).size(), 50u);
}

// A run that would take minutes, caught in the middle of its reinforcement.
class Failure : public testing::Test {
  protected:
    void start(const std::vector<std::string>& more = {}) {
        std::vector<std::string> values = {"sft.steps=1", "grpo.steps=100000"};
        values.insert(values.end(), more.begin(), more.end());
        program = std::make_unique<Program>(tiny_run(folder.path(), values));
        ASSERT_TRUE(reinforces(folder)) << program->err();
        children = program->children();
        ASSERT_EQ(children.size(), 5u);  // four ranks and the engine
    }
    void expect_nothing_left() {
        expect_all_end(children);
        expect_no_shared_memory_left(named_before);
        EXPECT_FALSE(fs::exists(folder / "tiny"));
        EXPECT_FALSE(fs::exists(folder / ".tiny.lock"));
    }

    void expect_orderly_end_by(int signal) {
        ASSERT_NO_FATAL_FAILURE(start());
        program->kill(signal);
        EXPECT_EQ(program->wait(std::chrono::seconds(15)), 1);
        EXPECT_THAT(program->err(),
                    HasSubstr("tandem-train: interrupted by signal " + std::to_string(signal)));
        expect_nothing_left();
    }

    void kill_child(const std::string& name, int signal) {
        ASSERT_TRUE(children.contains(name));
        ASSERT_EQ(::kill(children[name], signal), 0);
    }

    Folder folder;
    std::unique_ptr<Program> program;
    const std::set<std::string> named_before = named_shared_memory();
    std::map<std::string, pid_t> children;
};

TEST_F(Failure, AKilledRankEndsTheJobByName) {
    ASSERT_NO_FATAL_FAILURE(start());
    kill_child("rank 2", SIGKILL);
    EXPECT_EQ(program->wait(std::chrono::seconds(15)), 1);
    EXPECT_THAT(program->err(), HasSubstr("tandem-train: rank 2 was killed by signal 9"));
    expect_nothing_left();
}

TEST_F(Failure, AKilledEngineEndsTheJobByName) {
    ASSERT_NO_FATAL_FAILURE(start());
    kill_child("engine", SIGKILL);
    EXPECT_EQ(program->wait(std::chrono::seconds(15)), 1);
    EXPECT_THAT(program->err(), testing::ContainsRegex(
                                    "tandem-train: engine http://127.0.0.1:[0-9]+ was killed by signal 9"));
    expect_nothing_left();
}

TEST_F(Failure, ARankThatHangsIsNamedWithinTheDeadline) {
    ASSERT_NO_FATAL_FAILURE(start({"run.deadline_s=3", "engine.deadline_s=2", "sync.deadline_s=2"}));
    kill_child("rank 1", SIGSTOP);
    EXPECT_EQ(program->wait(std::chrono::seconds(30)), 1);
    EXPECT_THAT(program->err(), HasSubstr("rank 1"));
    expect_nothing_left();
}

TEST_F(Failure, ControlCEndsTheJobInOrder) {
    expect_orderly_end_by(SIGINT);
}

// A terminal that closes.
TEST_F(Failure, AHangupEndsTheJobInOrder) {
    expect_orderly_end_by(SIGHUP);
}

TEST_F(Failure, QuitEndsTheJobInOrder) {
    expect_orderly_end_by(SIGQUIT);
}

TEST_F(Failure, AnIgnoredHangupStaysIgnored) {
    std::signal(SIGHUP, SIG_IGN);  // as nohup does
    start();
    std::signal(SIGHUP, SIG_DFL);
    ASSERT_EQ(children.size(), 5u);
    program->kill(SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_TRUE(program->running());
    program->kill(SIGTERM);
    EXPECT_EQ(program->wait(std::chrono::seconds(15)), 1);
    EXPECT_THAT(program->err(), HasSubstr("tandem-train: interrupted by signal 15"));
    expect_nothing_left();
}

TEST_F(Failure, NothingOutlivesTheParent) {
    ASSERT_NO_FATAL_FAILURE(start());
    program->kill(SIGKILL);
    EXPECT_EQ(program->wait(), -SIGKILL);
    expect_all_end(children, std::chrono::seconds(10));
    // The next run of this name takes over what the dead one left.
    Program next(tiny_run(folder.path(), {"sft.steps=1", "grpo.steps=1"}));
    EXPECT_EQ(next.wait(), 0) << next.err();
    EXPECT_FALSE(fs::exists(folder / "tiny.partial"));
}

TEST_F(Failure, ANameInUseIsRefused) {
    ASSERT_NO_FATAL_FAILURE(start());
    // What it has left so far is nothing to be removed, to be gone on from or to be kept.
    fs::create_directories(folder / "tiny.partial/checkpoints/step-1");
    std::ofstream(folder / "tiny.partial/checkpoints/step-1/manifest.json") << "{}";
    for (const char* option : {"--json", "--resume", "--resume-or-start"}) {
        std::vector<std::string> command = tiny_run(folder.path());
        command.emplace_back(option);
        Program second(command);
        EXPECT_EQ(second.wait(), 2) << option;
        EXPECT_THAT(second.err(), HasSubstr("a run named 'tiny' is in progress in ")) << option;
        EXPECT_THAT(second.err(), Not(HasSubstr("remove"))) << option;
    }
    EXPECT_TRUE(program->running());
    program->kill(SIGTERM);
    EXPECT_EQ(program->wait(std::chrono::seconds(15)), 1);
    expect_nothing_left();
}

int exit_of(const std::string& shell) {
    const int status = std::system(("PATH=" TANDEM_BIN_DIR ":$PATH; " + shell).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// As of a log on a full disk. What a command was asked for is another thing than what it tells meanwhile.
TEST(FullDisk, OfTheLogEndsNoRunAndOfTheResultIsSaid) {
    Folder folder;
    std::string run;
    for (const std::string& word : tiny_run(folder.path(), {"sft.steps=2", "grpo.steps=1"}))
        run += "'" + word + "' ";
    EXPECT_EQ(exit_of(run + "2>/dev/full"), 0);
    EXPECT_TRUE(fs::exists(folder / "tiny/summary.json"));
    EXPECT_EQ(exit_of("tandem-train nothing.toml 2>/dev/full"), 2);
    for (const char* command : {"tandem-train inspect mesh --world-size 4", "tandem-train explain mesh.dp",
                                "tandem-train --help", "tandem-sync plan", "tandem-engine --help"}) {
        const std::string said = folder / "said";
        EXPECT_EQ(exit_of(command + (" >/dev/full 2>" + said)), 1) << command;
        EXPECT_THAT(read_file(said), HasSubstr("standard output could not be written")) << command;
    }
}

TEST(BadEngine, IsNamed) {
    Folder folder;
    Program program(tiny_run(folder.path(), {"engine.url=http://127.0.0.1:9"}));
    EXPECT_EQ(program.wait(), 1);
    EXPECT_THAT(program.err(), HasSubstr("127.0.0.1:9"));
}

}  // namespace
}  // namespace tandem::test
