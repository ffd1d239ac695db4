// The configuration schema: what it reads, and what it says about what it refuses.
#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "common/config.h"
#include "common/error.h"

namespace tandem::config {
namespace {

struct Example {
    std::int64_t dp = 1;
    std::int64_t seed = 0;
    double lr = 1e-3;
    bool tied = true;
    std::string name = "run";
    std::string axes = "dp_cp";
    double sft_lr = 6e-3;

    Schema schema() {
        Schema s;
        s.text("run.name", name, "Name of the run.");
        s.integer("run.seed", seed, 0, 9007199254740991, "Seed.");
        s.integer("mesh.dp", dp, 1, 1024, "Data-parallel ranks.");
        s.choice("mesh.shard_axes", axes, {"dp_cp", "dp"}, "Axes that parameters are sharded over.");
        s.real("train.lr", lr, 0, 10, "Peak learning rate.");
        s.flag("model.tied", tied, "Tie the head.");
        s.real("sft.lr", sft_lr, 0, 10, "Peak learning rate of the warm start.");
        return s;
    }
};

std::string error_of(const std::function<void()>& body) {
    try {
        body();
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "(no ConfigError)";
}

TEST(Schema, ReadsEveryType) {
    Example c;
    Schema s = c.schema();
    s.read_text(
        "[run]\nname = \"q\"\nseed = 7\n[mesh]\ndp = 2\nshard_axes = 'dp'\n[train]\nlr = 2\n[model]\ntied = "
        "false",
        "q.toml");
    EXPECT_EQ(c.name, "q");
    EXPECT_EQ(c.seed, 7);
    EXPECT_EQ(c.dp, 2);
    EXPECT_EQ(c.axes, "dp");
    EXPECT_EQ(c.lr, 2.0);  // a whole number where a number is asked
    EXPECT_FALSE(c.tied);
    EXPECT_EQ(s.where("mesh.dp"), "q.toml:5");
    EXPECT_EQ(s.where("sft.lr"), "default");
}

TEST(Schema, ListsOfText) {
    Texts split{"a"};
    Schema s;
    s.texts("pipeline.split", split, "Where stages begin.");
    EXPECT_THAT(s.to_toml(), testing::HasSubstr("split = [\"a\"]\n"));
    s.read_text("[pipeline]\nsplit = ['b', \"c \\\" d\"]", "q.toml");
    EXPECT_EQ(split, (Texts{"b", "c \" d"}));
    Texts again;
    Schema same;
    same.texts("pipeline.split", again, "");
    same.read_text(s.to_toml(), "q.toml");
    EXPECT_EQ(again, split);
    s.read_override("split=[]");
    EXPECT_EQ(split, Texts());
    s.read_override("pipeline.split=['x']");
    EXPECT_EQ(split, Texts{"x"});
    EXPECT_THAT(error_of([&] { s.read_override("split=x"); }),
                testing::StartsWith("--set: pipeline.split: expects an array of text, got \"x\""));
    EXPECT_THAT(error_of([&] { s.read_text("[pipeline]\nsplit = [1]", "q.toml"); }),
                testing::StartsWith("q.toml:2: pipeline.split: expects an array of text, got an array"));
    EXPECT_EQ(split, Texts{"x"});
    EXPECT_THAT(s.explain_json(), testing::HasSubstr("\"default\": [\n      \"a\""));
}

TEST(Schema, RefusesWithPlaceAndWhatIsAllowed) {
    const std::vector<std::pair<std::string, std::string>> table = {
        {"[mesh]\ndpp = 2", "q.toml:2: unknown key 'mesh.dpp'; did you mean 'mesh.dp'?"},
        {"[mesch]\ndp = 2", "q.toml:2: unknown key 'mesch.dp'; did you mean 'mesh.dp'?"},
        {"dp = 2", "q.toml:1: unknown key 'dp'; did you mean 'mesh.dp'?"},
        {"[train]\ndp = 2", "q.toml:2: unknown key 'train.dp'; did you mean 'mesh.dp'?"},
        {"[nothing]", "q.toml:1: unknown key 'nothing'"},
        {"[mesh]\ndp = \"two\"", "q.toml:2: mesh.dp: expects a whole number from 1 to 1024, got \"two\""},
        {"[mesh]\ndp = 2.0", "q.toml:2: mesh.dp: expects a whole number from 1 to 1024, got 2"},
        {"[mesh]\ndp = 0", "q.toml:2: mesh.dp: expects a whole number from 1 to 1024, got 0"},
        {"[mesh]\ndp = [2]", "q.toml:2: mesh.dp: expects a whole number from 1 to 1024, got an array"},
        {"mesh.dp.x = 2", "q.toml:1: mesh.dp: expects a whole number from 1 to 1024, got a table"},
        {"[mesh.dp]", "q.toml:1: mesh.dp: expects a whole number from 1 to 1024, got a table"},
        {"[mesh]\nshard_axes = \"cp\"",
         "q.toml:2: mesh.shard_axes: expects one of \"dp_cp\", \"dp\", got \"cp\""},
        {"[train]\nlr = nan", "q.toml:2: train.lr: expects a number from 0 to 10, got nan"},
        {"[train]\nlr = 1987-07-05", "q.toml:2: train.lr: expects a number from 0 to 10, got a date or time"},
        {"[model]\ntied = 1", "q.toml:2: model.tied: expects true or false, got 1"},
        {"[run]\nname = 3", "q.toml:2: run.name: expects text, got 3"},
        {"[run]\nseed = -1", "q.toml:2: run.seed: expects a whole number from 0 to 9007199254740991, got -1"},
        {"[run\nseed = 1", "q.toml:1"},
        {"[run]\nseed = 1\nseed = 2", "q.toml:3"},
    };
    for (const auto& [toml, message] : table) {
        Example c;
        Schema s = c.schema();
        EXPECT_THAT(error_of([&] { s.read_text(toml, "q.toml"); }), testing::StartsWith(message)) << toml;
    }
}

TEST(Schema, ABadFileStoresNothing) {
    Example c;
    Schema s = c.schema();
    EXPECT_THROW(s.read_text("[mesh]\ndp = 4\n[train]\nlr = -1", "q.toml"), ConfigError);
    EXPECT_EQ(c.dp, 1);
    EXPECT_EQ(s.where("mesh.dp"), "default");
}

TEST(Schema, MissingFile) {
    Example c;
    Schema s = c.schema();
    EXPECT_THAT(error_of([&] { s.read_file("/nowhere/q.toml"); }),
                testing::StartsWith("/nowhere/q.toml: cannot be read"));
    EXPECT_THAT(error_of([&] { s.read_file("/"); }), testing::StartsWith("/: cannot be read"));
}

TEST(Schema, Overrides) {
    Example c;
    Schema s = c.schema();
    s.read_text("[mesh]\ndp = 2", "q.toml");
    s.read_override("mesh.dp=4");
    s.read_override("seed=3");  // only one section has it
    s.read_override("run.name=other");
    s.read_override("mesh.shard_axes=\"dp\"");
    s.read_override("train.lr=1e-2");
    EXPECT_EQ(c.dp, 4);
    EXPECT_EQ(c.seed, 3);
    EXPECT_EQ(c.name, "other");
    EXPECT_EQ(c.axes, "dp");
    EXPECT_EQ(c.lr, 1e-2);
    EXPECT_EQ(s.where("mesh.dp"), "--set");
    s.read_override("run.name=17");  // text may look like a number
    EXPECT_EQ(c.name, "17");
    EXPECT_EQ(error_of([&] { s.read_override("mesh.dpp=2"); }),
              "--set: unknown key 'mesh.dpp'; did you mean 'mesh.dp'?");
    EXPECT_EQ(error_of([&] { s.read_override("lr=1"); }), "--set: key 'lr' is ambiguous: train.lr, sft.lr");
    EXPECT_EQ(error_of([&] { s.read_override("mesh.dp=two"); }),
              "--set: mesh.dp: expects a whole number from 1 to 1024, got \"two\"");
    EXPECT_EQ(error_of([&] { s.read_override("mesh.dp="); }),
              "--set: mesh.dp: expects a whole number from 1 to 1024, got \"\"");
    EXPECT_EQ(error_of([&] { s.read_override("mesh.dp"); }), "--set: 'mesh.dp' is not of the form key=value");
    s.read_override("run.name=caf\u00e9");
    EXPECT_EQ(c.name, "caf\u00e9");
    for (const char* name : {"run.name=caf\xe9", "run.name=\"caf\xe9\""})
        EXPECT_EQ(error_of([&] { s.read_override(name); }),
                  "--set: run.name: holds bytes that are not UTF-8");
}

TEST(Schema, ExplainsInLinesThatFitATerminal) {
    std::string text;
    Schema s;
    s.text("run.text", text, "Twelve words " + std::string(95, 'x') + " and more.");
    EXPECT_EQ(s.explain("run"), "run.text = \"\"\n    Twelve words\n    " + std::string(95, 'x') +
                                    "\n    and more.\n    text\n");
}

TEST(Schema, ExplainsAndRefuses) {
    Example c;
    Schema s = c.schema();
    EXPECT_EQ(s.explain("mesh.dp"),
              "mesh.dp = 1\n    Data-parallel ranks.\n    a whole number from 1 to 1024\n");
    EXPECT_THAT(s.explain("mesh"),
                testing::AllOf(testing::HasSubstr("mesh.dp"), testing::HasSubstr("mesh.shard_axes"),
                               testing::Not(testing::HasSubstr("run.name"))));
    EXPECT_EQ(error_of([&] { s.explain("mesh.pd"); }),
              "command line: unknown key 'mesh.pd'; did you mean 'mesh.dp'?");
    EXPECT_EQ(s.explain("dp"), s.explain("mesh.dp"));  // as --set takes it
    EXPECT_EQ(error_of([&] { s.explain("mash"); }),
              "command line: unknown section 'mash'; did you mean 'mesh'?");
    EXPECT_THAT(error_of([&] { s.explain("nothing"); }), testing::HasSubstr("unknown key 'nothing'"));
    const auto json = nlohmann::json::parse(s.explain_json());
    ASSERT_EQ(json.size(), s.keys().size());
    EXPECT_EQ(json[2]["key"], "mesh.dp");
    EXPECT_EQ(json[2]["max"], 1024.0);
    s.read_text("[mesh]\n\ndp = 3", "q.toml");
    EXPECT_EQ(error_of([&] { s.refuse("mesh.dp", "does not divide 4"); }),
              "q.toml:3: mesh.dp: does not divide 4");
}

TEST(Schema, WritesAFileThatReadsBackTheSame) {
    Example c;
    Schema s = c.schema();
    s.read_text(
        "[run]\nname = \"a \\\"b\\\" \\u00e9\\n\"\nseed = 9007199254740991\n[train]\nlr = 0.1\n[model]\ntied "
        "= false",
        "q.toml");
    Example d;
    Schema t = d.schema();
    t.read_text(s.to_toml(), "copy.toml");
    EXPECT_EQ(d.name, c.name);
    EXPECT_EQ(d.seed, c.seed);
    EXPECT_EQ(d.lr, c.lr);
    EXPECT_EQ(d.tied, false);
    EXPECT_EQ(t.to_toml(), s.to_toml());
}

TEST(EditDistance, Golden) {
    EXPECT_EQ(edit_distance("", "abc"), 3u);
    EXPECT_EQ(edit_distance("mesh.dp", "mesh.dpp"), 1u);
    EXPECT_EQ(edit_distance("ca", "ac"), 1u);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

}  // namespace
}  // namespace tandem::config
