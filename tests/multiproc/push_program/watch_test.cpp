// `tandem-sync push --watch` as a user runs it, beside a program that writes checkpoints its own way: two servers, of which
// one is restarted, a watch that is killed, versions that are rotated away.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "engine_adapter/questions.h"
#include "tests/multiproc/app/program.h"
#include "tests/multiproc/engine/program.h"
#include "tests/support/vllm_stand_in.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Lines = std::vector<json>;

class Watch : public testing::Test {
  protected:
    Watch() { fs::create_directory(versions_); }

    // Another model for each seed, under a name that no watch looks at.
    std::string model(std::uint64_t seed) {
        const std::string directory = folder_ / ("model" + std::to_string(seed));
        fs::create_directory(directory);
        engine::write_tiny_model(directory, engine::tiny_config(), seed);
        return directory;
    }
    // Whole under another name, and renamed.
    void write_at_once(const std::string& name, std::uint64_t seed) {
        fs::rename(model(seed), versions_ + "/." + name);
        fs::rename(versions_ + "/." + name, versions_ + "/" + name);
    }
    // File by file, the weights in pieces.
    void write_slowly(const std::string& name, std::uint64_t seed) {
        const fs::path from = model(seed), to = versions_ + "/" + name;
        fs::create_directory(to);
        for (const auto& entry : fs::directory_iterator(from)) {
            const std::string text = read_file(entry.path().string());
            std::ofstream out(to / entry.path().filename(), std::ios::binary);
            for (std::size_t at = 0; at < text.size(); at += text.size() / 3 + 1) {
                out << text.substr(at, text.size() / 3 + 1) << std::flush;
                std::this_thread::sleep_for(5ms);
            }
        }
        fs::remove_all(from);
    }
    std::unique_ptr<engine::Program> serve(const std::string& directory, const std::string& listen) {
        return std::make_unique<engine::Program>(std::vector<std::string>{
            "serve", "--model", directory, "--listen", listen, "--threads", "1", "--weight-version", "1"});
    }
    std::unique_ptr<Program> watch(const std::vector<std::string>& servers,
                                   std::vector<std::string> more = {}) {
        std::vector<std::string> command{"tandem-sync", "push",   "--watch", versions_,
                                         "--json",      "--rest", "0.2"};
        for (const std::string& server : servers) command.insert(command.end(), {"--to", server});
        command.insert(command.end(), more.begin(), more.end());
        return std::make_unique<Program>(command);
    }
    static Lines lines(const Program& program) {
        Lines events;
        std::istringstream text(program.out());
        for (std::string line; std::getline(text, line);) {
            if (json event = json::parse(line, nullptr, false); event.is_object())
                events.push_back(std::move(event));
        }
        return events;
    }
    static bool says(const Program& program, const char* event, const std::string& text) {
        return std::ranges::any_of(lines(program), [&](const json& one) {
            return one["event"] == event && one.dump().find(text) != std::string::npos;
        });
    }
    static std::int64_t version_of(const std::string& url) {
        try {
            return engine::ask_state(url, Deadline::after_ms(2'000)).version;
        } catch (const std::exception&) {
            return -1;
        }
    }
    // Whether it answers as that directory's weights do; nothing is pushed.
    static bool answers_as(const std::string& url, const std::string& directory) {
        Program push(
            {"tandem-sync", "push", "--model", directory, "--to", url, "--verify", "--dry-run", "--json"});
        EXPECT_EQ(push.wait(), 0) << push.err();
        const json report = json::parse(push.out(), nullptr, false);
        return report.is_object() && report["servers"][0]["probe"]["before"]["most"].get<double>() < 1e-4;
    }

    Folder folder_;
    const std::string versions_ = folder_ / "versions";
};

TEST_F(Watch, ServersEndAtTheNewestWholeVersionWhateverHappens) {
    const std::string base = model(1000);
    auto first = serve(base, "127.0.0.1:0"), second = serve(base, "127.0.0.1:0");
    const std::string one = first->url(), two = second->url();
    ASSERT_THAT(two, testing::StartsWith("http://"));
    auto program = watch({one, two});
    constexpr int kVersions = 24, kKept = 3;
    for (int step = 1; step <= kVersions; ++step) {
        const std::string name = "step_" + std::to_string(step);
        step % 3 == 0 ? write_slowly(name, static_cast<std::uint64_t>(step))
                      : write_at_once(name, static_cast<std::uint64_t>(step));
        if (step > kKept) fs::remove_all(versions_ + "/step_" + std::to_string(step - kKept));
        std::this_thread::sleep_for(30ms);
        if (step == 8) {  // with the label that it has now: nobody can tell by that
            ASSERT_TRUE(eventually([&] { return version_of(two) >= 5; }));
            second->signal(SIGKILL);
            second->wait();
            second = serve(base, two.substr(7));
            ASSERT_EQ(second->url(), two);
        }
        if (step == 16) {
            program->kill(SIGKILL);
            program->wait();
            program = watch({one, two});
        }
    }
    ASSERT_TRUE(eventually([&] { return version_of(one) == kVersions && version_of(two) == kVersions; }));
    for (const std::string& url : {one, two}) EXPECT_TRUE(answers_as(url, versions_ + "/step_24")) << url;

    second->signal(SIGKILL);
    second->wait();
    second = serve(base, two.substr(7));
    ASSERT_EQ(second->url(), two);
    ASSERT_TRUE(eventually([&] { return version_of(two) == kVersions; }));
    EXPECT_TRUE(says(*program, "trouble", "it was restarted") || says(*program, "trouble", two));
    EXPECT_TRUE(answers_as(two, versions_ + "/step_24"));

    write_slowly("step_24", 99);  // under the name of one that was pushed
    ASSERT_TRUE(eventually([&] { return says(*program, "notice", "was replaced under its name"); }));
    program->kill(SIGTERM);
    EXPECT_EQ(program->wait(), 0) << program->err();
    const json end = lines(*program).back();
    EXPECT_EQ(end["event"], "end");
    for (const json& server : end["servers"]) EXPECT_EQ(server["name"], "step_24");
    for (const json& event : lines(*program)) {
        if (event["event"] != "version") continue;
        for (const json& server : event["servers"]) EXPECT_EQ(server["known"], "by checksum") << event;
    }
}

TEST_F(Watch, OnceEndsWithTheNewestOrSaysWhatIsNotWhole) {
    const std::string base = model(1000);
    VllmStandIn vllm({.model = base});
    write_at_once("checkpoint-40", 40);
    write_at_once("checkpoint-100", 100);
    {
        auto program = watch({vllm.url()}, {"--once", "--pattern", "checkpoint-*"});
        EXPECT_EQ(program->wait(), 0) << program->out() << program->err();
        EXPECT_EQ(vllm.weights(), bytes_of_directory(versions_ + "/checkpoint-100"));
        EXPECT_EQ(vllm.weight_version(), "100");
    }
    {  // as a person reads it; the server has that version already, and is given it again
        Program program({"tandem-sync", "push", "--watch", versions_, "--to", vllm.url(), "--once"});
        EXPECT_EQ(program.wait(), 0) << program.err();
        EXPECT_THAT(program.out(),
                    AllOf(HasSubstr("version 100"), HasSubstr("1 of 1 servers"), HasSubstr("not proven"),
                          HasSubstr("who has what:\n  " + vllm.url() + ": version 100 (checkpoint-100)")));
    }
    {
        auto program = watch({vllm.url()}, {"--once", "--marker", "STABLE", "--deadline", "0.5"});
        EXPECT_EQ(program->wait(), 1);
        EXPECT_TRUE(says(*program, "notice", "checkpoint-100: there is no STABLE in it")) << program->out();
    }
    EXPECT_THAT(vllm.violations(), IsEmpty());
}

TEST_F(Watch, AHigherVersionStaysUnlessARollbackIsAskedFor) {
    const std::string base = model(1000);
    VllmStandIn vllm({.model = base});
    write_at_once("step_50", 50);
    EXPECT_EQ(watch({vllm.url()}, {"--once"})->wait(), 0);
    fs::remove_all(versions_ + "/step_50");
    write_at_once("step_20", 20);
    auto refused = watch({vllm.url()}, {"--once"});
    EXPECT_EQ(refused->wait(), 1);
    EXPECT_TRUE(says(*refused, "trouble", "it has version 50, which is above 20")) << refused->out();
    EXPECT_EQ(vllm.weight_version(), "50");
    EXPECT_FALSE(vllm.paused());
    EXPECT_EQ(watch({vllm.url()}, {"--once", "--rollback"})->wait(), 0);
    EXPECT_EQ(vllm.weight_version(), "20");
    EXPECT_EQ(vllm.weights(), bytes_of_directory(versions_ + "/step_20"));
    EXPECT_THAT(vllm.violations(), IsEmpty());
}

TEST_F(Watch, BadUsageIsExitCode2) {
    const std::string url = "vllm://127.0.0.1:9";
    for (const std::vector<std::string>& more :
         std::vector<std::vector<std::string>>{{"--to", url},
                                               {"--to", url, "--watch", folder_ / "absent"},
                                               {"--to", url, "--watch", versions_, "--model", versions_},
                                               {"--to", url, "--watch", versions_, "--version", "5"},
                                               {"--to", url, "--watch", versions_, "--rest", "0"},
                                               {"--to", url, "--model", versions_, "--once"},
                                               {"--watch", versions_}}) {
        std::vector<std::string> command{"tandem-sync", "push"};
        command.insert(command.end(), more.begin(), more.end());
        Program program(command);
        EXPECT_EQ(program.wait(), 2) << more.back();
    }
}

}  // namespace
}  // namespace tandem::test
