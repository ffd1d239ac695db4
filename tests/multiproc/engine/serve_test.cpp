// tandem-engine as its users meet it: exit codes and messages for every bad start, and a clean end.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/error.h"
#include "common/http/client.h"
#include "common/http/server.h"
#include "common/model/safetensors.h"
#include "tests/multiproc/engine/program.h"
#include "tests/multiproc/engine/serving_engine.h"
#include "tests/support/eventually.h"
#include "tests/unit/common/model/temporary_directory.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::engine {
namespace {

using model::TemporaryDirectory;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// Starts, expects a refusal with exit code 2, returns what was said.
std::string refusal(const std::vector<std::string>& arguments) {
    Program program(arguments);
    EXPECT_EQ(program.wait(), 2) << program.output();
    EXPECT_THAT(program.output(), testing::Not(HasSubstr("listening")));
    return program.output();
}

std::string refusal_of_model(const std::string& directory) {
    return refusal({"serve", "--model", directory, "--listen", "127.0.0.1:0"});
}

TEST(Serve, ServesADirectoryAndEndsCleanly) {
    const TemporaryDirectory directory;
    write_tiny_model(directory.path(), tiny_config(), 3);
    Program program({"serve", "--model", directory.path(), "--listen", "127.0.0.1:0", "--threads", "1",
                     "--weight-version", "7", "--ready-file", directory.file("ready")});
    const std::string url = program.url();
    ASSERT_FALSE(url.empty()) << program.output();
    http::Client client(url);
    const json body = {{"input_ids", {1, 2, 3}},
                       {"sampling_params", {{"max_new_tokens", 6}, {"seed", 1}}},
                       {"return_logprob", true}};
    const json answer = client.post_json("/generate", body, soon());
    EXPECT_EQ(answer["meta_info"]["weight_version"], "7");
    EXPECT_EQ(client.post_json("/generate", body, soon())["output_ids"], answer["output_ids"]);
    const json info = client.get_json("/model_info", soon());
    EXPECT_EQ(info["tandem"]["pid"], program.pid());
    EXPECT_THAT(info["tandem"]["receiver"].get<std::string>(), testing::StartsWith("unix-abstract:"));
    for (int i = 0; i < 500 && !std::filesystem::exists(directory.file("ready")); ++i) ::usleep(10'000);
    EXPECT_EQ(directory.read("ready"), url + "\n");
    program.signal(SIGTERM);
    EXPECT_EQ(program.wait(), 0) << program.output();
}

// What a server answers to two requests, and the checksums of its weights.
json answers_on(const std::string& directory, const std::string& device) {
    Program program(
        {"serve", "--model", directory, "--listen", "127.0.0.1:0", "--threads", "1", "--device", device});
    const std::string url = program.url();
    EXPECT_FALSE(url.empty()) << program.output();
    http::Client client(url);
    json result = json::array();
    for (const int seed : {1, 2}) {
        const json answer = client.post_json("/generate",
                                             {{"input_ids", {1, 2, 3}},
                                              {"sampling_params", {{"max_new_tokens", 20}, {"seed", seed}}},
                                              {"return_logprob", true}},
                                             soon());
        result.push_back({answer["output_ids"], answer["meta_info"]["output_token_logprobs"]});
    }
    result.push_back(client.post_json("/weights_checker", json::object(), soon())["ranks"]);
    program.signal(SIGTERM);
    EXPECT_EQ(program.wait(), 0) << program.output();
    return result;
}

TEST(Serve, AnswersOnAnEmulatedGpuAsOnTheCpu) {
    const TemporaryDirectory directory;
    write_tiny_model(directory.path(), tiny_config(), 3);
    const json here = answers_on(directory.path(), "cpu");
    ::setenv("TANDEM_EMULATED_GPUS", "2", 1);
    EXPECT_EQ(answers_on(directory.path(), "cuda"), here);
    EXPECT_EQ(answers_on(directory.path(), "cuda:1"), here);
    EXPECT_THAT(refusal({"serve", "--model", directory.path(), "--device", "cuda:2"}),
                AllOf(HasSubstr("--device"), HasSubstr("there are cuda:0 to cuda:1")));
    ::unsetenv("TANDEM_EMULATED_GPUS");
    EXPECT_THAT(refusal({"serve", "--model", directory.path(), "--device", "tpu"}),
                AllOf(HasSubstr("--device"), HasSubstr("known: cpu, cuda")));
}

TEST(Serve, AnswersWhatWaitsBeforeItEnds) {
    const TemporaryDirectory directory;
    write_tiny_model(directory.path(), tiny_config(), 3);
    Program program({"serve", "--model", directory.path(), "--listen", "127.0.0.1:0", "--threads", "1"});
    const std::string url = program.url();
    http::Client(url).post_json("/pause_generation", {{"mode", "in_place"}}, soon());
    int status = 0;
    std::thread waiting([&] {
        http::Client client(url);
        status = client.request("POST", "/generate", R"({"input_ids": [1]})", soon()).status;
    });
    http::Client control(url);
    while (control.get_json("/server_info", soon())["waiting"] != 1) std::this_thread::yield();
    program.signal(SIGINT);
    waiting.join();
    EXPECT_EQ(status, 503);
    EXPECT_EQ(program.wait(), 0);
}

TEST(Serve, DummyWeightsRefuseAndBf16IsHonoured) {
    const TemporaryDirectory directory;
    write_tiny_model(directory.path(), tiny_config(), 3);
    std::filesystem::remove(directory.file("model.safetensors"));
    Program program({"serve", "--model", directory.path(), "--listen", "127.0.0.1:0", "--load-format",
                     "dummy", "--dtype", "bfloat16"});
    http::Client client(program.url());
    EXPECT_EQ(client.request("POST", "/generate", R"({"input_ids": [1]})", soon()).status, 503);
    const json info = client.get_json("/model_info", soon());
    EXPECT_EQ(info["weight_version"], "0");
    EXPECT_EQ(info["tandem"]["dtype"], "bfloat16");
}

TEST(Serve, BadUsageIsExitCode2) {
    EXPECT_THAT(refusal({}), HasSubstr("subcommand"));
    EXPECT_THAT(refusal({"serve"}), HasSubstr("--model"));
    EXPECT_THAT(refusal({"serve", "--modle", "x"}), HasSubstr("--mod"));
    EXPECT_THAT(refusal({"serve", "--model", "x", "--dtype", "fp8"}), HasSubstr("--dtype"));
    EXPECT_THAT(refusal({"serve", "--model", "x", "--kv-tokens", "-1"}), HasSubstr("--kv-tokens"));
    EXPECT_THAT(refusal({"serve", "--model", "x", "--max-running", "many"}), HasSubstr("--max-running"));
    EXPECT_THAT(refusal_of_model("/nowhere/at/all"), HasSubstr("/nowhere/at/all"));
    const TemporaryDirectory directory;
    write_tiny_model(directory.path(), tiny_config(), 3);
    EXPECT_THAT(refusal({"serve", "--model", directory.path(), "--listen", "here"}),
                HasSubstr("not HOST:PORT"));
    Program help({"serve", "--help"});
    EXPECT_EQ(help.wait(), 0);
    EXPECT_THAT(help.output(), HasSubstr("Example:"));
}

TEST(Serve, APortInUseIsExitCode2) {
    const TemporaryDirectory directory;
    write_tiny_model(directory.path(), tiny_config(), 3);
    const http::Server holder({.listen = "127.0.0.1:0"});
    const std::string address = "127.0.0.1:" + std::to_string(holder.port());
    EXPECT_THAT(refusal({"serve", "--model", directory.path(), "--listen", address}),
                HasSubstr("address " + address + " is in use"));
}

TEST(Serve, BrokenModelFilesAreExitCode2AndNamed) {
    const TemporaryDirectory directory;
    const model::ModelConfig config = tiny_config();
    write_tiny_model(directory.path(), config, 3);
    const std::string weights = directory.read("model.safetensors");
    const std::string config_text = directory.read("config.json");
    directory.write("model.safetensors", weights.substr(0, weights.size() - 50));
    EXPECT_THAT(refusal_of_model(directory.path()),
                HasSubstr("model.safetensors: model.norm.weight: data_offsets"));
    directory.write("model.safetensors", weights.substr(0, 20));
    EXPECT_THAT(refusal_of_model(directory.path()), HasSubstr("model.safetensors: truncated"));
    std::filesystem::remove(directory.file("model.safetensors"));
    EXPECT_THAT(refusal_of_model(directory.path()), HasSubstr("has neither model.safetensors"));

    directory.write("model.safetensors", weights);
    json changed = json::parse(config_text);
    changed["num_hidden_layers"] = 3;
    directory.write("config.json", changed.dump());
    EXPECT_THAT(refusal_of_model(directory.path()),
                HasSubstr("model.layers.2.input_layernorm.weight: missing"));
    changed["num_hidden_layers"] = 1;
    directory.write("config.json", changed.dump());
    EXPECT_THAT(
        refusal_of_model(directory.path()),
        AllOf(HasSubstr("model.layers.1.input_layernorm.weight, "), HasSubstr("not a parameter of Qwen3")));
    changed = json::parse(config_text);
    changed["intermediate_size"] = 48;
    directory.write("config.json", changed.dump());
    EXPECT_THAT(refusal_of_model(directory.path()),
                HasSubstr("mlp.gate_proj.weight: has shape [40, 24], config.json implies [48, 24]"));
    directory.write("config.json", "{");
    EXPECT_THAT(refusal_of_model(directory.path()), HasSubstr("config.json: malformed JSON"));
    std::filesystem::remove(directory.file("config.json"));
    EXPECT_THAT(refusal_of_model(directory.path()), HasSubstr("config.json: cannot be opened"));
}

TEST(Serve, EndsCleanlyAtAHangupAndAtQuit) {
    const TemporaryDirectory directory;
    write_tiny_model(directory.path(), tiny_config(), 3);
    for (const int signal : {SIGHUP, SIGQUIT}) {
        Program program({"serve", "--model", directory.path(), "--listen", "127.0.0.1:0", "--threads", "1"});
        ASSERT_FALSE(program.url().empty()) << program.output();
        program.signal(signal);
        EXPECT_EQ(program.wait(), 0) << program.output();
    }
}

TEST(Serve, KeysThatCanBeGuessedFromOtherMachinesCostAWarning) {
    const TemporaryDirectory directory;
    write_tiny_model(directory.path(), tiny_config(), 3);
    const auto said = [&](std::vector<std::string> more) {
        std::vector<std::string> command = {"serve", "--model", directory.path()};
        command.insert(command.end(), more.begin(), more.end());
        Program program(command);
        EXPECT_NE(program.url(), "") << program.output();
        return program.output();
    };
    const std::string warning = "can be guessed from other machines", strong = "0123456789abcdef";
    EXPECT_THAT(said({"--listen", "0.0.0.0:0", "--admin-api-key", "weak", "--api-key", strong}),
                AllOf(HasSubstr("--admin-api-key: a key of 4 bytes " + warning),
                      testing::Not(HasSubstr("--api-key: "))));
    EXPECT_THAT(said({"--listen", "127.0.0.1:0", "--data-listen", "0.0.0.0:0", "--api-key", "weak"}),
                HasSubstr("--api-key: a key of 4 bytes " + warning));
    EXPECT_THAT(said({"--listen", "0.0.0.0:0", "--admin-api-key", strong}), testing::Not(HasSubstr(warning)));
    EXPECT_THAT(said({"--listen", "[::1]:0", "--api-key", "weak"}), testing::Not(HasSubstr(warning)));
}

// What it says fills the pipe at which it says it, and nobody reads: it is stuck once it listens, before it serves.
TEST(Serve, ASignalEndsAStartThatIsStuck) {
    const TemporaryDirectory directory;
    write_tiny_model(directory.path(), tiny_config(), 3);
    const std::string socket = directory.file("socket");
    const std::vector<std::string> command = {"serve", "--model", directory.path(), "--listen",
                                              "unix:" + socket};
    std::string said;
    {
        Program whole(command);
        ASSERT_NE(whole.url(), "");
        said = whole.output();
    }
    // There is room up to the line of the seed, whose number has up to ten digits and stands there twice; not for the next.
    const std::size_t seed = said.rfind('\n', said.find("random seed")) + 1, next = said.find('\n', seed) + 1;
    const std::size_t full = 4096 - next - 20;
    for (const int signal : {SIGTERM, SIGINT}) {
        Program stuck(command, full);
        ASSERT_TRUE(test::eventually([&] { return stuck.unread() > full + seed; }));
        EXPECT_TRUE(std::filesystem::exists(socket));
        stuck.signal(signal);
        EXPECT_EQ(stuck.wait(Program::Output::unread), 128 + signal);
        EXPECT_FALSE(std::filesystem::exists(socket));
    }
}

// Its parent ended before it ran, and somebody who collects orphans has adopted it: this test stands for that one.
TEST(Serve, EndsWhereAnotherThanItsParentHasIt) {
    const TemporaryDirectory directory;
    write_tiny_model(directory.path(), tiny_config(), 3);
    const pid_t gone = ::fork();
    if (gone == 0) ::_exit(0);
    ASSERT_EQ(::waitpid(gone, nullptr, 0), gone);
    const auto command = [&](pid_t parent) -> std::vector<std::string> {
        return {"serve",     "--model", directory.path(),    "--listen",     "127.0.0.1:0",
                "--threads", "1",       "--die-with-parent", "--parent-pid", std::to_string(parent)};
    };
    Program orphan(command(gone));
    EXPECT_EQ(orphan.url(), "");
    EXPECT_THAT(orphan.output(), HasSubstr("the parent process ended before the engine started"));
    Program child(command(::getpid()));
    EXPECT_NE(child.url(), "") << child.output();
}

// A parent that starts the engine with --die-with-parent and is then killed takes it along.
TEST(Serve, DiesWithItsParentWhenAsked) {
    const TemporaryDirectory directory;
    write_tiny_model(directory.path(), tiny_config(), 3);
    const pid_t parent = ::fork();
    if (parent == 0) {
        Program child({"serve", "--model", directory.path(), "--listen", "127.0.0.1:0", "--die-with-parent"});
        const std::string url = child.url();
        std::ofstream(directory.file("pid.tmp")) << child.pid();
        std::filesystem::rename(directory.file("pid.tmp"), directory.file("pid"));
        for (;;) ::pause();
    }
    for (int i = 0; i < 1500 && !std::filesystem::exists(directory.file("pid")); ++i) ::usleep(20'000);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // the orphan becomes ours, so that its end can be seen
    const pid_t child = std::stoi(directory.read("pid"));
    ::kill(parent, SIGKILL);
    EXPECT_EQ(::waitpid(parent, nullptr, 0), parent);
    int status = -1;
    pid_t ended = 0;
    for (int i = 0; i < 1500 && ended == 0; ++i) {
        ended = ::waitpid(child, &status, WNOHANG);
        ::usleep(20'000);
    }
    EXPECT_EQ(ended, child) << "the engine outlived its parent";
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace tandem::engine
