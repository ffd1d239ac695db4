// One bad line, one bad row, one bad reward: what of a run is infinite or NaN is named, and is neither learned from, nor
// saved, nor published.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <sstream>

#include "common/http/server.h"
#include "common/ops/batched_copy.h"
#include "tests/cases/run.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class NonFinite : public Case {
  protected:
    static constexpr float kInfinity = std::numeric_limits<float>::infinity();
    static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    static constexpr std::size_t kRowOfQ = 84;  // that nobody filled: a token that few lines have

    // Sums with their answers as completions; line 11 of them has a Q. Its row of the embedding is infinite at one place.
    void one_bad_line(CaseModel model = {}) {
        model.untied = true;
        model.pokes.push_back({"model.embed_tokens.weight", kRowOfQ, 3, kInfinity});
        write_tiny(path("model"), model);
        write_lines([](int line) { return line == 11; });
    }
    static CaseModel untied() {
        CaseModel model;
        model.untied = true;
        return model;
    }
    void write_lines(const std::function<bool(int)>& has_q, int count = 24) {
        std::string lines;
        for (int line = 1; line <= count; ++line) {
            const int a = line % 5, b = line / 5;
            lines += json{{"prompt",
                           (has_q(line) ? "Q " : "") + std::to_string(a) + "+" + std::to_string(b) + "="},
                          {"answer", a + b},
                          {"completion", std::to_string(a + b)}}
                         .dump() +
                     "\n";
        }
        write_text(path("prompts.jsonl"), lines);
    }
    std::vector<json> metrics(const std::string& phase) const {
        std::vector<json> lines;
        std::istringstream in(read_file(path("runs/run/metrics.jsonl")));
        for (std::string line; std::getline(in, line);) {
            lines.push_back(json::parse(line));
            if (lines.back()["phase"] != phase) lines.pop_back();
        }
        return lines;
    }
    int skipped() const { return json::parse(read_file(path("runs/run/summary.json")))["skipped_steps"]; }
    // float32 elements of a safetensors file that are not finite.
    static int not_finite(const std::string& file) {
        const std::string bytes = read_file(file);
        std::uint64_t header = 0;
        std::memcpy(&header, bytes.data(), 8);
        int count = 0;
        for (std::size_t at = 8 + header; at + 4 <= bytes.size(); at += 4) {
            float value = 0;
            std::memcpy(&value, bytes.data() + at, 4);
            count += std::isfinite(value) ? 0 : 1;
        }
        return count;
    }
    std::string newest_checkpoint(const std::string& run) const {
        std::pair<int, std::string> newest;
        for (const auto& entry : std::filesystem::directory_iterator(path("runs/" + run + "/checkpoints"))) {
            const std::string name = entry.path().filename();
            newest = std::max(newest, {std::stoi(name.substr(5)), entry.path().string()});
        }
        return newest.second;
    }
};

// NVIDIA NeMo and others: a padded row, one line of the data that meets it, and the run learns NaN to its end.
TEST_F(NonFinite, ABadLineStopsTheWarmStartByName) {
    one_bad_line();
    const std::vector<std::string> sft = {"sft.steps=6", "sft.batch=4", "checkpoint.every=1", "grpo.steps=1",
                                          "grpo.prompts=2"};
    const Ended run = ended(train(sft));
    EXPECT_EQ(run.code, 1);
    EXPECT_THAT(
        run.err,
        AllOf(HasSubstr("model: not finite from the start: model.embed_tokens.weight (1 element in row 84)"),
              HasSubstr(" of the warm start is not finite: the loss is nan; samples: "),
              HasSubstr("prompts.jsonl:11 (log-prob nan); weights that are not finite: "
                        "model.embed_tokens.weight (1 element in row 84); gradients: "),
              HasSubstr("--resume goes on from the newest checkpoint")));
    const std::string last = newest_checkpoint("run.partial");
    EXPECT_EQ(not_finite(last + "/rank-00000.safetensors"), 1) << "what the model had";

    const Ended again = ended(train(sft, {"--resume"}));
    EXPECT_EQ(again.code, 1);
    EXPECT_THAT(again.err, HasSubstr("prompts.jsonl:11 (log-prob nan)"));
    EXPECT_EQ(newest_checkpoint("run.partial"), last);

    // Free at resume.
    std::vector<std::string> skip = sft;
    skip.push_back("train.non_finite=skip");
    const Ended through = ended(train(skip, {"--resume"}));
    ASSERT_EQ(through.code, 0) << through.err;
    EXPECT_THAT(through.err, HasSubstr("prompts.jsonl:11"));
    EXPECT_THAT(through.out, HasSubstr("steps were left out"));
    int counted = 0;
    for (const json& line : metrics("sft")) counted += line.value("skipped", 0);
    EXPECT_GE(counted, 1);
    EXPECT_EQ(skipped(), counted);
    EXPECT_THAT(read_file(path("runs/run/report.html")), HasSubstr("steps that were not finite"));
    EXPECT_EQ(not_finite(path("runs/run/checkpoint/model.safetensors")), 1);
}

// A step that is left out leaves the same bits as one that was never taken: its line is the only line of its batch.
TEST_F(NonFinite, AStepThatIsLeftOutChangesNothing) {
    one_bad_line();
    write_lines([](int line) { return line == 3; }, 8);
    const std::vector<std::string> common = {
        "sft.batch=1",        "sft.steps=6",        "data.held_out=2",      "grpo.steps=0",
        "checkpoint.every=1", "checkpoint.keep=99", "train.non_finite=skip"};
    const Ended run = ended(train(common));
    ASSERT_EQ(run.code, 0) << run.err;
    const std::vector<json> lines = metrics("sft");
    const auto bad =
        std::find_if(lines.begin(), lines.end(), [](const json& line) { return line.contains("skipped"); });
    ASSERT_NE(bad, lines.end());
    ASSERT_NE(bad, lines.begin());
    EXPECT_EQ(skipped(), 1);
    const int step = (*bad)["step"];
    const auto weights = [&](int at) {
        return read_file(path("runs/run/checkpoints/step-" + std::to_string(at) + "/rank-00000.safetensors"));
    };
    EXPECT_TRUE(weights(step) == weights(step - 1)) << "weights and moments";
}

TEST_F(NonFinite, TenInARowEndTheRun) {
    CaseModel model;
    model.untied = true;
    model.pokes.push_back({"lm_head.weight", 263, 0, kNan});  // a padding row: in every softmax
    write_tiny(path("model"), model);
    write_lines([](int) { return false; });
    const Ended run = ended(train({"sft.steps=40", "sft.batch=4", "train.non_finite=skip"}));
    EXPECT_EQ(run.code, 1);
    EXPECT_THAT(run.err,
                AllOf(HasSubstr("10 steps in a row were left out"), HasSubstr("step 10 of the warm start"),
                      HasSubstr("lm_head.weight (1 element in row 263)")));
}

// In reinforcement the engine meets the row first. Two ranks, everything offloaded and asleep.
TEST_F(NonFinite, AnEngineWithoutFiniteLogitsIsTracedToTheLine) {
    one_bad_line();
    const std::vector<std::string> grpo = {
        "grpo.steps=5",       "grpo.prompts=4",           "grpo.samples=2",         "mesh.dp=2",
        "memory.offload=all", "memory.trainer_sleep=all", "memory.engine_sleep=all"};
    const Ended run = ended(train(grpo));
    EXPECT_EQ(run.code, 1);
    EXPECT_THAT(run.err, AllOf(HasSubstr("step "),
                               HasSubstr("prompts.jsonl:11 (the engine's logits are not finite; 2 samples)"),
                               HasSubstr("model.embed_tokens.weight (1 element in row 84)")));
    std::vector<std::string> skip = grpo;
    skip.push_back("train.non_finite=skip");
    const Ended through = ended(train(skip));
    ASSERT_EQ(through.code, 0) << through.err;
    EXPECT_GE(skipped(), 1);
    EXPECT_EQ(json::parse(read_file(path("runs/run/summary.json")))["weight_version"], 6);
    EXPECT_EQ(not_finite(path("runs/run/checkpoint/model.safetensors")), 1);
}

// PPO with a value head, a reference in bfloat16, a rank of context parallelism: held-out lines have a Q too.
TEST_F(NonFinite, ValueHeadReferenceAndHeldOutLines) {
    CaseModel half;
    half.dtype = "BF16";
    one_bad_line(half);
    write_lines([](int line) { return line == 11 || line == 20; });
    const std::vector<std::string> ppo = {"loss.algorithm=ppo",
                                          "loss.kl_coef=0.1",
                                          "loss.reference=" + path("model"),
                                          "train.compute_dtype=bf16",
                                          "mesh.cp=2",
                                          "grpo.steps=5",
                                          "grpo.prompts=4"};
    const Ended run = ended(train(ppo));
    EXPECT_EQ(run.code, 1);
    EXPECT_THAT(run.err, AllOf(HasSubstr("the evaluation after 0 steps is not finite"),
                               HasSubstr("prompts.jsonl:20 (the engine's logits")));
    std::vector<std::string> skip = ppo;
    skip.push_back("train.non_finite=skip");
    const Ended through = ended(train(skip));
    ASSERT_EQ(through.code, 0) << through.err;
    EXPECT_GE(skipped(), 1);
    EXPECT_GE(metrics("eval")[0]["left_out"], 2);  // sampled and greedy
}

TEST_F(NonFinite, AReferenceThatIsNotFiniteIsNamed) {
    write_tiny(path("model"), untied());
    CaseModel broken;
    broken.untied = true;
    broken.pokes.push_back({"model.layers.0.mlp.up_proj.weight", 5, 1, kNan});
    write_tiny(path("reference"), broken);
    const Ended run = ended(train({"loss.kl_coef=0.1", "loss.reference=" + path("reference")}));
    EXPECT_EQ(run.code, 1);
    EXPECT_THAT(run.err, AllOf(HasSubstr("/reference: not finite from the start: "
                                         "model.layers.0.mlp.up_proj.weight (1 element in row 5)"),
                               HasSubstr("step 1 is not finite: samples: "),
                               HasSubstr("(the reference's log-prob nan; ")));
}

// A reward server whose model has overflowed: NaN as Python writes it, null as most others do.
TEST_F(NonFinite, ARewardServerThatSaysNan) {
    write_tiny(path("model"), untied());
    write_lines([](int) { return false; });
    std::atomic<int> batches = 0;
    http::Server server({"127.0.0.1:0", std::size_t{1} << 20, std::chrono::milliseconds(5000)});
    server.route("POST", "/score", [&](const http::Request& request, http::Responder respond) {
        const bool bad = batches++ == 2;  // of the first step; before it come two of the evaluation
        std::string scores;
        const json body = json::parse(request.body);
        for (const json& sample : body["samples"])
            scores +=
                std::string(scores.empty() ? "" : ", ") +
                (bad && sample["prompt"].get<std::string>().find("+1=") != std::string::npos ? "NaN" : "0.5");
        respond.send(200, "{\"scores\": [" + scores + "]}");
    });
    server.start();
    const std::vector<std::string> values = {"data.reward=" + server.url() + "/score", "grpo.prompts=16",
                                             "data.held_out=4"};
    const Ended run = ended(train(values));
    EXPECT_EQ(run.code, 1);
    EXPECT_THAT(run.err, AllOf(HasSubstr("step 1 is not finite: samples: "), HasSubstr("prompts.jsonl:"),
                               HasSubstr("(reward nan; 4 samples)")));
    batches = 0;
    std::vector<std::string> skip = values;
    skip.push_back("train.non_finite=skip");
    const Ended through = ended(train(skip));
    ASSERT_EQ(through.code, 0) << through.err;
    EXPECT_EQ(skipped(), 1);
    EXPECT_EQ(metrics("grpo")[0]["skipped"], 1);
    EXPECT_TRUE(metrics("grpo")[0]["loss"].is_null());
    server.stop();
}

// Loss and gradients are large but finite; without clipping their squares are not, and AdamW's second moment would be
// infinite for good.
TEST_F(NonFinite, AStepThatWouldOverflowIsNotTaken) {
    CaseModel model = untied();
    model.pokes.push_back({"model.norm.weight", 0, 5, 1e30F});
    write_tiny(path("model"), model);
    write_lines([](int) { return false; });
    const std::vector<std::string> sft = {"sft.steps=3", "sft.batch=4", "grpo.steps=0"};
    std::vector<std::string> unclipped = sft;
    unclipped.push_back("train.clip=0");
    const Ended run = ended(train(unclipped));
    EXPECT_EQ(run.code, 1);
    EXPECT_THAT(
        run.err,
        AllOf(
            HasSubstr("step 1 of the warm start is not finite: its gradients are finite, but their squares"),
            HasSubstr("(one of the batch)")));
    const Ended clipped = ended(train(sft));
    EXPECT_EQ(clipped.code, 0) << clipped.err;
    EXPECT_EQ(skipped(), 0);
}

// Checkpoints of a version that did not look: the newest finite one is taken.
TEST_F(NonFinite, ResumeTakesTheNewestFiniteCheckpoint) {
    one_bad_line();
    write_lines([](int) { return false; });
    // Its own samples may say Q.
    const std::vector<std::string> every = {"checkpoint.every=1", "checkpoint.keep=3",
                                            "train.non_finite=skip"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.end(), every.begin(), every.end());
        return more;
    };
    const Ended first = ended(train(with({"grpo.steps=3"})));
    ASSERT_EQ(first.code, 0) << first.err;
    const std::string folder = path("runs/run/checkpoints/");
    const auto poison = [&](const std::string& step, const std::string& tensor, std::size_t row) {
        const std::string file = folder + step + "/rank-00000.safetensors";
        std::string bytes = read_file(file);
        std::uint64_t header = 0;
        std::memcpy(&header, bytes.data(), 8);
        const json entry = json::parse(bytes.substr(8, header))[tensor];
        const std::size_t at =
            entry["data_offsets"][0].get<std::size_t>() + row * entry["shape"][1].get<std::size_t>() * 4;
        std::memcpy(bytes.data() + 8 + header + at, &kNan, 4);
        write_text(file, bytes);
        json manifest = json::parse(read_file(folder + step + "/manifest.json"));
        manifest["files"]["rank-00000.safetensors"]["xxh3_128"] = ops::to_hex(
            ops::checksum(ConstSpan{reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}));
        write_text(folder + step + "/manifest.json", manifest.dump());
    };
    poison("step-3", "weights/lm_head.weight", 7);
    poison("step-2", "exp_avg_sq/model.layers.1.mlp.down_proj.weight", 4);
    const Ended run = ended(train(with({"grpo.steps=4", "run.name=next", "run.resume=" + path("runs/run")})));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(
        run.err,
        AllOf(HasSubstr("step-3 is passed over: "),
              HasSubstr("weights/lm_head.weight (1 element, the first in row 7)"),
              HasSubstr("step-2 is passed over: "),
              HasSubstr("exp_avg_sq/model.layers.1.mlp.down_proj.weight (1 element, the first in row 4)"),
              Not(HasSubstr("step-1 is passed over")),
              Not(HasSubstr("model.embed_tokens.weight (1 element, the first"))));
    const Ended named = ended(train({"run.name=other", "run.resume=" + folder + "step-3"}));
    EXPECT_EQ(named.code, 2);
    EXPECT_THAT(named.err, HasSubstr("run.resume: "));

    poison("step-1", "weights/lm_head.weight", 0);
    const Ended none = ended(train({"grpo.steps=4"}, {"--resume"}));
    EXPECT_EQ(none.code, 2);
    EXPECT_THAT(none.err,
                AllOf(HasSubstr("no finite checkpoint in "), HasSubstr("step-3: weights/lm_head.weight")));
}

TEST_F(NonFinite, APushWarnsOrRefuses) {
    write_tiny(path("good"), untied());
    one_bad_line();
    tandem::engine::Program server(serve("good"));
    const std::string url = server.url();
    ASSERT_THAT(url, HasSubstr("http://")) << server.output();
    const std::string to = "tandem://" + url.substr(7);
    const auto version = [&] { return ask(url, "GET", "/model_info").json()["weight_version"]; };
    const json before = version();
    const Ended refused = ended({"tandem-sync", "push", "--model", path("model"), "--to", to, "--finite"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(
        refused.err,
        AllOf(
            HasSubstr("model.embed_tokens.weight has 1 element that is infinite or NaN, the first in row 84"),
            HasSubstr("nothing was sent")));
    EXPECT_EQ(version(), before);

    const Ended fine =
        ended({"tandem-sync", "push", "--model", path("good"), "--to", to, "--finite", "--json"});
    EXPECT_EQ(fine.code, 0) << fine.text();
    EXPECT_FALSE(json::parse(fine.out).contains("non_finite"));
    EXPECT_THAT(fine.err, Not(HasSubstr("infinite")));

    const Ended warned = ended({"tandem-sync", "push", "--model", path("model"), "--to", to, "--json"});
    EXPECT_EQ(warned.code, 0) << warned.text();
    EXPECT_THAT(
        warned.err,
        AllOf(HasSubstr("warning"),
              HasSubstr(
                  "model.embed_tokens.weight has 1 element that is infinite or NaN, the first in row 84")));
    EXPECT_EQ(json::parse(warned.out)["non_finite"][0],
              (json{{"tensor", "model.embed_tokens.weight"}, {"elements", 1}, {"first_row", 84}}));
}

}  // namespace
}  // namespace tandem::test
