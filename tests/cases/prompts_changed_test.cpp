// A script makes the prompts again while a run reads them.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/cases/run.h"
#include "tests/support/free_port.h"

namespace tandem::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class PromptsChanged : public Case {
  protected:
    PromptsChanged() {
        write_tiny(path("model"));
        std::string text;
        for (int i = 0; i < 100; ++i) text += read_file(path("prompts.jsonl"));  // more than a page
        write_text(path("live.jsonl"), text);
    }
    std::vector<std::string> endless(const std::vector<std::string>& more = {}) const {
        std::vector<std::string> values = {"data.prompts=" + path("live.jsonl"), "grpo.steps=100000",
                                           "mesh.dp=2"};
        values.insert(values.end(), more.begin(), more.end());
        return train(values);
    }
    std::size_t steps() const { return timeless_lines(read_file(path("runs/run.partial/metrics.jsonl"))); }
    static std::size_t timeless_lines(const std::string& text) {
        return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    }
    bool goes_on(Program& program) const {
        const std::size_t before = steps();
        return eventually([&] { return steps() > before + 3 || !program.running(); }) && program.running();
    }
    // Inodes of the copies that a process maps.
    static std::set<std::string> copies(pid_t pid) {
        std::set<std::string> found;
        std::istringstream maps(read_file("/proc/" + std::to_string(pid) + "/maps"));
        for (std::string line; std::getline(maps, line);) {
            if (line.find("memfd:tandem:file") == std::string::npos) continue;
            std::istringstream words(line);
            std::string range, mode, offset, device, inode;
            words >> range >> mode >> offset >> device >> inode;
            found.insert(inode);
        }
        return found;
    }
};

// It ended with "rank 0 was killed by signal 7 (Bus error)", or with "not JSON" about a file that is good
// JSON.
TEST_F(PromptsChanged, TheRunGoesOnWithWhatItRead) {
    Program program(endless());
    ASSERT_TRUE(goes_on(program)) << program.err();
    fs::resize_file(path("live.jsonl"), 0);
    EXPECT_TRUE(goes_on(program)) << program.err();
    write_text(path("live.jsonl"), std::string(200'000, '{'));
    EXPECT_TRUE(goes_on(program)) << program.err();
    fs::remove(path("live.jsonl"));
    EXPECT_TRUE(goes_on(program)) << program.err();

    const auto children = program.children();
    std::set<std::string> all = copies(program.pid());
    EXPECT_EQ(all.size(), 1u);
    for (const char* rank : {"rank 0", "rank 1"}) {  // one copy for all
        ASSERT_TRUE(children.contains(rank));
        EXPECT_EQ(copies(children.at(rank)), all) << rank;
    }
    program.kill(SIGTERM);
    EXPECT_EQ(program.wait(), 1);
}

TEST_F(PromptsChanged, RanksOfALauncherReadOnceAHost) {
    const int port = free_port();
    const auto environment = [&](int rank) {
        return std::vector<std::string>{"RANK=" + std::to_string(rank), "WORLD_SIZE=2",
                                        "LOCAL_RANK=" + std::to_string(rank), "MASTER_ADDR=127.0.0.1",
                                        "MASTER_PORT=" + std::to_string(port)};
    };
    Program zero(endless(), environment(0)), one(endless(), environment(1));
    ASSERT_TRUE(goes_on(zero)) << zero.err() << one.err();
    fs::resize_file(path("live.jsonl"), 0);
    EXPECT_TRUE(goes_on(zero)) << zero.err() << one.err();
    EXPECT_EQ(copies(zero.pid()).size(), 1u);
    EXPECT_EQ(copies(zero.pid()), copies(one.pid()));
}

TEST_F(PromptsChanged, AFileThatCannotBeReadIsNamed) {
    const auto refused = [&](const std::string& file) {
        const Ended run = ended(train({"data.prompts=" + file}));
        EXPECT_EQ(run.code, 2) << run.text();
        return run.text();
    };
    EXPECT_THAT(refused(path("none.jsonl")), HasSubstr("none.jsonl: cannot be read: No such file"));
    EXPECT_THAT(refused(path("model")), HasSubstr("model: cannot be read: is not a file"));
    write_text(path("empty.jsonl"), "\n \n");
    EXPECT_THAT(refused(path("empty.jsonl")), HasSubstr("empty.jsonl: holds no lines"));
    EXPECT_FALSE(fs::exists(path("runs")));
}

}  // namespace
}  // namespace tandem::test
