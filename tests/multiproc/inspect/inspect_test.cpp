// `tandem-train inspect` as its users meet it: options, JSON, exit codes.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/wrap.h"
#include "tests/multiproc/app/program.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string answer(Words words) {
    words.insert(words.begin(), {"tandem-train", "inspect"});
    Program program(words);
    EXPECT_EQ(program.wait(), 0) << program.err();
    EXPECT_EQ(program.err(), "");
    return program.out();
}

// Exit code 2, nothing on standard output, and a line that says what would be right.
void expect_refused(Words words, const std::string& part) {
    words.insert(words.begin(), {"tandem-train", "inspect"});
    Program program(words);
    EXPECT_EQ(program.wait(), 2) << part;
    EXPECT_EQ(program.out(), "") << part;
    EXPECT_THAT(program.err(), HasSubstr(part));
}

TEST(Inspect, Mesh) {
    const Words command{"mesh", "--world-size", "8", "--dp-replicate", "2", "--dp-shard",
                        "-1",   "--cp",         "1", "--tp",           "2", "--pp",
                        "1",    "--ep",         "1", "--etp",          "1", "--json"};
    const json report = json::parse(answer(command));
    EXPECT_EQ(report["groups"]["dp_replicate"], json::parse("[[0, 4], [1, 5], [2, 6], [3, 7]]"));
    EXPECT_EQ(report["sizes"]["fsdp"], 2);
    EXPECT_EQ(report["exists"]["efsdp"], false);
    EXPECT_EQ(report["seq_len_divisor"], 4);
    EXPECT_THAT(answer({"mesh", "--world-size", "8", "--tp", "2", "--axes", "tp"}),
                HasSubstr("[0, 1] [2, 3] [4, 5] [6, 7]"));
}

TEST(Inspect, Shard) {
    const json report = json::parse(
        answer({"shard", "--shape", "10,7", "--mesh", "2,2", "--placements", "S(0),S(1)", "--json"}));
    EXPECT_EQ(report["ranks"][3],
              json::parse(R"({"rank": 3, "local_shape": [5, 3], "runs": [[[5, 10]], [[4, 7]]]})"));
    EXPECT_THAT(answer({"shard", "--shape", "10,7", "--mesh", "2,2", "--placements", "SS(0,2),R"}),
                HasSubstr("[3:5 8:10] [0:7]"));
}

TEST(Inspect, Redistribute) {
    const Words command{"redistribute", "--shape", "10,7", "--mesh", "4", "--from", "S(0)", "--to", "S(1)"};
    Words as_json = command;
    as_json.insert(as_json.end(), {"--dtype", "bfloat16", "--json"});
    EXPECT_EQ(json::parse(answer(as_json))["bytes_per_rank"], json({28, 28, 28, 18}));
    EXPECT_THAT(answer(command), HasSubstr("36 to 56"));
}

TEST(Inspect, Schedule) {
    const Words command{"schedule", "--name", "Interleaved1F1B", "--pp", "4",
                        "--stages", "2",      "--microbatches",  "8"};
    Words as_json = command;
    as_json.push_back("--json");
    const json report = json::parse(answer(as_json));
    EXPECT_EQ(report["makespan"], 57);
    EXPECT_EQ(report["bubble"], 9);
    EXPECT_EQ(report["peak"], json({11, 9, 7, 5}));
    EXPECT_EQ(report["ranks"][0][4], "4F0");
    EXPECT_THAT(answer(command), HasSubstr("makespan 57 = ideal 48 + bubble 9 (15.8%)"));
}

// What is written comes in again, in both formats, and the picture is a file of its own.
TEST(Inspect, ScheduleFiles) {
    const Folder folder;
    const Words command{"schedule", "--name", "DualPipeV",      "--pp", "2",
                        "--stages", "2",      "--microbatches", "4",    "--json"};
    for (const bool lowered : {false, true}) {
        Words written = command, read{"schedule", "--from-csv", folder / "lists.csv", "--json"};
        written.insert(written.end(), {"--csv", folder / "lists.csv", "--svg", folder / "picture.svg"});
        if (lowered) {
            written.push_back("--lowered");
            read.push_back("--lowered");
        }
        const std::string lists = answer(written);
        EXPECT_EQ(answer(read), lists);
        EXPECT_THAT(read_file(folder / "lists.csv"), HasSubstr(lowered ? "SEND_F0," : "0F0,"));
        EXPECT_THAT(read_file(folder / "picture.svg"), testing::EndsWith("</svg>\n"));
    }
    std::ofstream(folder / "times.json") << R"({"F": 3, "I": 4, "W": 2})";
    Words timed = command;
    timed.insert(timed.end(), {"--times", folder / "times.json"});
    EXPECT_EQ(json::parse(answer(timed))["bubble"], 5);
    std::ofstream(folder / "times.json") << R"({"F": 3, "I": 4})";
    expect_refused(timed, "times.json: W: is missing");
    std::ofstream(folder / "lists.csv") << "0F0,0B0\n1B0,1F0\n";
    expect_refused({"schedule", "--from-csv", folder / "lists.csv"},
                   "rank 1, action 0 (1B0): it comes before its F");
    std::ofstream(folder / "lists.csv") << "0F0,0B\n";
    expect_refused({"schedule", "--from-csv", folder / "lists.csv"},
                   "lists.csv: row 1, cell 2: '0B' has no micro-batch");
    // Both send first.
    std::ofstream(folder / "lists.csv")
        << "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
           "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n";
    Words crossing{"schedule", "--from-csv", folder / "lists.csv", "--json"};
    expect_refused(crossing, "rank 0, action 4 (0SEND_F1): it waits forever where 0 transfers");
    crossing.insert(crossing.end(), {"--channel-capacity", "1"});
    EXPECT_EQ(json::parse(answer(crossing))["makespan"], 9);
    Words unwritable = command;
    unwritable.insert(unwritable.end(), {"--csv", folder / "nowhere/lists.csv"});
    expect_refused(unwritable, "--csv");
    expect_refused({"schedule", "--from-csv", folder / "missing.csv"}, "cannot be opened");
}

TEST(Inspect, RefusesBadInput) {
    expect_refused({"schedule", "--name", "1F1B", "--pp", "4", "--microbatches", "3"},
                   "needs at least 4 micro-batches, not 3");
    expect_refused({"schedule", "--name", "2F2B", "--pp", "4", "--microbatches", "4"}, "known: GPipe, 1F1B,");
    expect_refused({"schedule", "--name", "1F1B", "--pp", "4"}, "--microbatches");
    expect_refused({"schedule"}, "say which, as in --name 1F1B --pp 4 --microbatches 8, or --from-csv FILE");
    expect_refused({"schedule", "--name", "1F1B", "--pp", "4", "--microbatches", "4", "--from-csv", "x"},
                   "--from-csv");
    expect_refused({"mesh", "--world-size", "8", "--tp", "0"},
                   "tp(0): a parallelism degree must be at least 1");
    expect_refused({"mesh", "--world-size", "8", "--cp", "-2"}, "cp(-2): a parallelism degree must be");
    expect_refused({"mesh", "--world-size", "0"}, "world_size(0) must be at least 1");
    expect_refused({"mesh", "--world-size", "10", "--dp-shard", "4", "--tp", "2"},
                   "= 8 != world_size(10); these degrees need 8 ranks");
    expect_refused({"mesh", "--world-size", "4", "--dp-shard", "4", "--ep", "3"},
                   "ep(3) * etp(1) = 3 does not");
    expect_refused({"mesh", "--world-size", "8", "--axes", "tp,dpp"}, "Valid dimensions are: [pp, batch,");
    expect_refused({"mesh"}, "--world-size is required");
    expect_refused({"mesh", "--world-size", "many"}, "--world-size");
    expect_refused({}, "subcommand is required");
    expect_refused({"shard", "--shape", "10,7", "--mesh", "2,2", "--placements", "S(2),R"},
                   "dim must be in [-2, 1]");
    expect_refused({"shard", "--shape", "10,7", "--mesh", "2,2", "--placements", "S(0)"},
                   "a mesh with 2 axes: one for each axis");
    expect_refused({"shard", "--shape", "10,7", "--mesh", "2,-2", "--placements", "R,R"},
                   "must be a number from 1");
    expect_refused({"shard", "--shape", "10,7", "--mesh", "2,2", "--placements", "R,Q"},
                   "write one of S(dim)");
    expect_refused({"shard", "--shape", "8", "--mesh", "2", "--placements", "SS(0,65537)"},
                   "the split factor of SS(0, 65537) must be at most 65536");
    expect_refused({"redistribute", "--shape", "8", "--mesh", "4", "--from", "R", "--to", "P"},
                   "use R or S(dim)");
    expect_refused(
        {"redistribute", "--shape", "8", "--mesh", "4", "--from", "R", "--to", "R", "--dtype", "f8"},
        "known: float32");
}

TEST(Inspect, MemoryFitsATerminal) {
    for (const Words& mesh : {Words{"mesh.dp=4", "mesh.tp=2"}, Words{"mesh.pp=2"}}) {
        Words command{"memory", TANDEM_SOURCE_DIR "/examples/quickstart/quickstart.toml"};
        for (const std::string& value : mesh) command.insert(command.end(), {"--set", value});
        std::istringstream lines(answer(command));
        for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kTerminalColumns) << line;
    }
}

// How long it takes: mesh_bench.
TEST(Inspect, SixteenThousandRanks) {
    const json report =
        json::parse(answer({"mesh", "--world-size", "16384", "--dp-replicate", "4", "--cp", "4", "--tp", "8",
                            "--pp", "8", "--ep", "16", "--etp", "8", "--json"}));
    EXPECT_EQ(report["groups"]["fsdp"].size(), 256u);
    EXPECT_EQ(report["groups"]["fsdp"][255].back(), 16383);
}

}  // namespace
}  // namespace tandem::test
