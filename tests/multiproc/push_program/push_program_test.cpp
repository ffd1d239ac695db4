// `tandem-sync push` as a user runs it, into real tandem-engines and a stand-in for vLLM: what it tells, what it refuses,
// and whether it notices a server that does not have what it was given.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/file_descriptor.h"
#include "common/model/parameters.h"
#include "engine_adapter/connect.h"
#include "sync/push/directory_source.h"
#include "sync/session/session.h"
#include "tests/multiproc/app/program.h"
#include "tests/multiproc/engine/program.h"
#include "tests/support/vllm_stand_in.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using Words = std::vector<std::string>;
using Weights = std::map<std::string, std::string>;

// What a model says greedily, by the oracle; a server whose float32 weights are `weights`.
std::pair<std::vector<std::int32_t>, std::vector<double>> oracle(const Weights& weights,
                                                                 std::vector<std::int32_t> tokens,
                                                                 std::int64_t length) {
    const model::ModelConfig config = engine::tiny_config();
    Weights own = weights;
    std::vector<engine::WeightSlot> slots;
    for (const auto& spec : model::parameter_specs(config)) {
        std::string& bytes = own.at(spec.name);
        slots.push_back({{spec.name, spec.shape, DType::float32},
                         {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}});
    }
    std::pair<std::vector<std::int32_t>, std::vector<double>> said;
    for (std::int64_t i = 0; i < length; ++i) {
        const std::vector<double> next = engine::naive_logprobs(config, slots, tokens).back();
        const auto best = std::max_element(next.begin(), next.end());
        tokens.push_back(static_cast<std::int32_t>(best - next.begin()));
        said.first.push_back(tokens.back());
        said.second.push_back(*best);
    }
    return said;
}

class PushProgram : public testing::Test {
  protected:
    std::string model(const std::string& name, std::uint64_t seed) const {
        const std::string directory = folder_ / name;
        std::filesystem::create_directory(directory);
        engine::write_tiny_model(directory, engine::tiny_config(), seed);
        return directory;
    }
    // "tandem://HOST:PORT" of an engine that serves the directory.
    std::string serve(const std::string& directory) {
        engines_.push_back(std::make_unique<engine::Program>(
            Words{"serve", "--model", directory, "--listen", "127.0.0.1:0", "--threads", "1"}));
        const std::string url = engines_.back()->url();
        EXPECT_THAT(url, testing::StartsWith("http://")) << engines_.back()->output();
        return "tandem://" + url.substr(std::string("http://").size());
    }
    static VllmStandIn::Options stand_in(const std::string& directory) {
        return {.model = directory, .generates = oracle};
    }

    struct Result {
        int code;
        std::string out, err;
        json server(std::size_t index) const {
            const json report = json::parse(out, nullptr, false);
            return report.is_object() ? report["servers"].at(index) : json();
        }
    };
    static Result push(const std::string& model, const Words& servers, Words more = {}) {
        Words command{"tandem-sync", "push", "--model", model};
        for (const std::string& server : servers) command.insert(command.end(), {"--to", server});
        command.insert(command.end(), more.begin(), more.end());
        Program program(command);
        const int code = program.wait();
        return {code, program.out(), program.err()};
    }

    Folder folder_;
    std::vector<std::unique_ptr<engine::Program>> engines_;
};

TEST_F(PushProgram, VerifiesWhatEachServerSays) {
    const std::string next = model("next", 5);
    VllmStandIn vllm(stand_in(model("old", 3)));
    const std::string one = serve(folder_ / "old");
    const std::string two = serve(folder_ / "old");
    const Result result = push(next, {one, vllm.url(), two}, {"--verify", "--json"});
    ASSERT_EQ(result.code, 0) << result.out << result.err;
    for (std::size_t i = 0; i < 3; ++i) {
        const json server = result.server(i);
        SCOPED_TRACE(server.dump());
        EXPECT_EQ(server["whole"], true);
        EXPECT_EQ(server["version"], 1 + server["version_before"].get<int>());
        EXPECT_EQ(server["probe"]["holds"], true);
        EXPECT_EQ(server["known"], "verified");
        EXPECT_EQ(server["probe"]["dtype"], "float32");
        EXPECT_GT(server["probe"]["before"]["most"], 0.1);
        EXPECT_LT(server["probe"]["after"]["most"], 1e-4);
    }
    EXPECT_EQ(vllm.weights(), bytes_of_directory(next));
    EXPECT_THAT(vllm.violations(), IsEmpty());

    // Once more, for people; everybody has these weights already.
    const Result again = push(next, {one, vllm.url()}, {"--verify"});
    EXPECT_EQ(again.code, 0);
    EXPECT_THAT(again.out,
                AllOf(HasSubstr(one + ": probe: log-probs differ from the pushed weights' by 0 at most"),
                      HasSubstr("updated")));
}

TEST_F(PushProgram, ASuccessThatIsNoneIsFound) {
    VllmStandIn::Options options = stand_in(model("old", 3));
    options.keeps_weights = true;
    VllmStandIn liar(options);
    const std::string honest = serve(folder_ / "old");
    const std::string next = model("next", 5);
    const Result believed = push(next, {liar.url()}, {"--json"});
    EXPECT_EQ(believed.code, 0);
    EXPECT_EQ(believed.server(0)["known"], "not proven");
    const Result result = push(next, {liar.url(), honest}, {"--verify", "--json"});
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.server(0)["whole"], false);
    EXPECT_THAT(result.server(0)["error"].get<std::string>(),
                HasSubstr("says that it has version 2, but it does not answer as those weights do"));
    EXPECT_EQ(result.server(0)["probe"]["holds"], false);
    EXPECT_EQ(result.server(1)["whole"], true) << result.out;
}

TEST_F(PushProgram, AServerThatCannotBeAskedIsNotVerified) {
    VllmStandIn vllm({.model = model("old", 3)});
    const Result result = push(model("next", 5), {vllm.url()}, {"--verify", "--json"});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.server(0)["error"].get<std::string>(), HasSubstr("/v1/completions"));
    EXPECT_EQ(result.server(0)["probe"]["before"], nullptr);
    EXPECT_EQ(result.server(0)["whole"], false);
}

TEST_F(PushProgram, SomeTensorsAloneWhereTheServerTakesThem) {
    VllmStandIn vllm(stand_in(model("old", 3)));
    const std::string tandem = serve(folder_ / "old");
    const std::string next = model("next", 5);
    const Result result =
        push(next, {vllm.url(), tandem}, {"--only", "model.layers.1.*", "--only", "model.norm.*", "--json"});
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.server(0)["whole"], true) << result.out;
    EXPECT_THAT(result.server(1)["error"].get<std::string>(),
                AllOf(HasSubstr(tandem), HasSubstr("takes all weights or none")));
    Weights wanted = bytes_of_directory(folder_ / "old");
    for (const auto& [name, bytes] : bytes_of_directory(next)) {
        if (name.starts_with("model.layers.1.") || name == "model.norm.weight") wanted[name] = bytes;
    }
    EXPECT_EQ(vllm.weights(), wanted);
    EXPECT_THAT(vllm.violations(), IsEmpty());
}

TEST_F(PushProgram, APatternThatPartsALayerChangesNothing) {
    VllmStandIn vllm(stand_in(model("old", 3)));
    const Result result = push(model("next", 5), {vllm.url()}, {"--only", "*.q_proj.weight", "--json"});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.server(0)["error"].get<std::string>(),
                AllOf(HasSubstr("model.layers.0.self_attn.q_proj.weight"),
                      HasSubstr("all or none of model.layers.0.self_attn.*")));
    EXPECT_EQ(vllm.weights(), bytes_of_directory(folder_ / "old"));
    EXPECT_THAT(vllm.calls(), testing::Not(testing::Contains(HasSubstr("POST"))));
}

TEST_F(PushProgram, BadUsageIsExitCode2AndChangesNothing) {
    VllmStandIn vllm(stand_in(model("old", 3)));
    const std::string next = model("next", 5);
    EXPECT_EQ(push(next, {vllm.url(), "ftp://127.0.0.1:1"}).code, 2);
    EXPECT_THAT(push(next, {vllm.url(), "ftp://127.0.0.1:1"}).err, HasSubstr("'ftp://127.0.0.1:1'"));
    EXPECT_EQ(push(next, {vllm.url(), vllm.url()}).code, 2);
    EXPECT_EQ(push(next, {vllm.url(), vllm.url() + "/"}).code, 2);
    EXPECT_EQ(push(next, {vllm.url(), "tandem://127.0.0.1:99999"}).code, 2);
    const Result user = push(next, {vllm.url(), "vllm://me:secret@127.0.0.1:1"}, {"--json"});
    EXPECT_EQ(user.code, 2);
    EXPECT_THAT(user.out + user.err, testing::Not(HasSubstr("secret")));
    EXPECT_EQ(push(next, {vllm.url()}, {"--version", "9223372036854775807"}).code, 2);
    EXPECT_EQ(push(folder_ / "none", {vllm.url()}).code, 2);
    for (const std::vector<std::string>& patterns : {std::vector<std::string>{"--only", "no.such.*"},
                                                     {"--only", "model.norm.*", "--only", "no.such.*"}}) {
        const Result none = push(next, {vllm.url()}, patterns);
        EXPECT_EQ(none.code, 2);
        EXPECT_THAT(none.err, HasSubstr("--only: 'no.such.*' matches no tensor of " + next));
    }
    EXPECT_THAT(push(next, {vllm.url()}, {"--only", "["}).err, HasSubstr("'[' matches no tensor"));
    EXPECT_EQ(push(next, {vllm.url()}, {"--only", "*", "--verify"}).code, 2);
    for (const char* deadline : {"-1", "0", "1e10", "nan", "inf", "-inf", "x", ""})
        EXPECT_EQ(push(next, {vllm.url()}, {"--deadline", deadline}).code, 2) << deadline;
    EXPECT_EQ(push(next, {vllm.url()}, {"--key-file", folder_ / "none"}).code, 2);
    EXPECT_EQ(push(next, {}).code, 2);
    EXPECT_THAT(vllm.calls(), IsEmpty());
}

TEST_F(PushProgram, JsonIsWrittenWhateverTheDirectoryIs) {
    const std::string honest = serve(model("old", 3));
    const Result result = push(model("no \xff text", 5), {honest}, {"--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.server(0)["whole"], true) << result.out << result.err;

    const Result refused = push(folder_ / "none", {honest}, {"--json"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(json::parse(refused.out, nullptr, false).value("error", ""), HasSubstr("none"));
}

TEST_F(PushProgram, AnEngineThatWasLeftHalfWayIsHealed) {
    const std::string url = serve(model("old", 3)), next = model("next", 5);
    ASSERT_EQ(push(next, {url}).code, 0);
    {
        const auto world = comm::solo();
        const sync::DirectorySource source(next, world);
        int loads = 0;
        sync::SessionOptions options;
        options.bucket_bytes = 4096;
        options.depth = 2;
        options.before_load = [&](int, Span) {
            if (++loads > 4) throw Error("cut off");
        };
        sync::Session session(world, source, engine::connect(url, Deadline::after_ms(20'000)), options);
        EXPECT_THROW(session.push(9), Error);
    }
    const Result result = push(next, {url}, {"--json", "--verify"});
    EXPECT_EQ(result.code, 0) << result.out;
    EXPECT_EQ(result.server(0)["version_before"], 0);
    EXPECT_EQ(result.server(0)["probe"]["holds"], true);
}

// Before a server is asked anything there is nothing to end in order.
TEST_F(PushProgram, ASignalEndsItWhereItWaitsBeforeItPushes) {
    const std::string pipe = folder_ / "key";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    for (const int signal : {SIGINT, SIGTERM}) {
        Program program({"tandem-sync", "push", "--model", model("next", 5), "--to", "vllm://127.0.0.1:9",
                         "--key-file", pipe});
        FileDescriptor writer;  // says nothing; there is none before there is a reader
        ASSERT_TRUE(eventually([&] {
            writer.reset(::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
            return bool(writer);
        }));
        program.kill(signal);
        EXPECT_EQ(program.wait(), -signal);
    }
}

TEST_F(PushProgram, EachServerGetsItsOwnKeyWhereItHasOne) {
    const std::string next = model("next", 5), old = model("old", 3);
    const auto key_file = [&](const std::string& key) {
        std::ofstream(folder_ / key) << key << "\n";
        return folder_ / key;
    };
    VllmStandIn::Options one = stand_in(old), two = stand_in(old), three = stand_in(old);
    one.api_key = "one";
    two.api_key = "two";
    three.api_key = "rest";
    VllmStandIn first(one), second(two), third(three);
    const Words servers{first.url(), second.url() + "/", third.url()};
    const Result result =
        push(next, servers,
             {"--json", "--verify", "--key-file", first.url() + "=" + key_file("one"), "--key-file",
              second.url() + "=" + key_file("two"), "--key-file", key_file("rest")});
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    for (const VllmStandIn* server : {&first, &second, &third})
        EXPECT_EQ(server->weights(), bytes_of_directory(next));

    const auto refused = [&](const Words& more, const std::string& why) {
        const Result bad = push(next, servers, more);
        EXPECT_EQ(bad.code, 2) << bad.out;
        EXPECT_THAT(bad.err, AllOf(HasSubstr("--key-file"), HasSubstr(why)));
    };
    const std::string rest = folder_ / "rest";
    refused({"--key-file", "vllm://127.0.0.1:9=" + rest}, "vllm://127.0.0.1:9 is none of the servers");
    refused({"--key-file", rest, "--key-file", rest}, "second file for all servers");
    refused({"--key-file", first.url() + "=" + rest, "--key-file", first.url() + "/=" + rest},
            "has two files");
    refused({"--key-file", first.url() + "=" + (folder_ / "none")}, "cannot be read");
    refused({"--key-file", "/dev/zero"}, "/dev/zero holds no key");
    refused({"--key-file", folder_.path()}, "cannot be read, or its first line is empty");
}

TEST_F(PushProgram, APipeInTheDirectoryIsRefusedAtOnce) {
    const std::string next = model("next", 5), file = next + "/model.safetensors";
    std::filesystem::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    const Result result = push(next, {"vllm://127.0.0.1:9"});
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr(file));
}

}  // namespace
}  // namespace tandem::test
