// float16 directories, and config.json's two names for one dtype.
#include "tests/cases/run.h"

namespace tandem::test {

namespace {

using nlohmann::json;
using testing::HasSubstr;

json dtype_served(const std::string& url) {
    return ask(url, "GET", "/model_info").json()["tandem"]["dtype"];
}

json config_in(const std::string& folder) {
    return json::parse(read_file(folder + "/config.json"));
}

json first_tokens(const std::string& url) {
    const json params{{"max_new_tokens", 6}, {"temperature", 0}, {"ignore_eos", true}};
    return ask(url, "POST", "/generate",
               json{{"input_ids", {70, 71, 72}}, {"sampling_params", params}}.dump())
        .json()["output_ids"];
}

}  // namespace

// Llama 2, TinyLlama, Vicuna: most fine-tunes of their day.
TEST_F(Case, AFloat16DirectoryServesAsFloat32OrAsAskedFor) {
    CaseModel model;
    model.dtype = "F16";
    model.config = {{"torch_dtype", "float16"}};
    write_tiny(path("model"), model);
    model.config = {{"torch_dtype", "float32"}};
    write_tiny(path("wide"), model);  // the same tensors
    engine::Program wide(serve("wide"));
    const json tokens = first_tokens(wide.url());
    {
        engine::Program engine(serve());
        const std::string url = engine.url();
        EXPECT_EQ(dtype_served(url), "float32") << engine.output();
        EXPECT_EQ(first_tokens(url), tokens);
        EXPECT_THAT(engine.output(), HasSubstr("float16"));
    }
    for (const char* dtype : {"float32", "bfloat16"}) {
        engine::Program engine(serve("model", {"--dtype", dtype}));
        EXPECT_EQ(dtype_served(engine.url()), dtype) << engine.output();
    }
    engine::Program dummy(serve("model", {"--load-format", "dummy"}));
    EXPECT_EQ(dtype_served(dummy.url()), "float32") << dummy.output();
}

TEST_F(Case, AFloat16DirectoryTrainsAndIsPushed) {
    CaseModel model;
    model.dtype = "F16";
    model.config = {{"torch_dtype", kDrop}, {"dtype", "torch.float16"}};
    write_tiny(path("model"), model);
    const Ended trained = ended(train({"grpo.steps=1"}));
    EXPECT_EQ(trained.code, 0) << trained.text();
    const json written = config_in(path("runs/run/checkpoint"));
    EXPECT_EQ(written["dtype"], "float32");
    EXPECT_EQ(written["torch_dtype"], "float32");

    for (const char* dtype : {"float32", "bfloat16"}) {
        engine::Program same(serve("model", {"--dtype", dtype}));
        engine::Program engine(serve("runs/run/checkpoint", {"--dtype", dtype}));
        std::string url = engine.url();
        const Ended pushed =
            ended({"tandem-sync", "push", "--model", path("model"), "--to", "tandem" + url.substr(4)});
        EXPECT_EQ(pushed.code, 0) << pushed.text();
        EXPECT_EQ(first_tokens(url), first_tokens(same.url())) << dtype;
    }
}

// Written by tools that serve transformers 4 and 5 alike.
TEST_F(Case, BothKeysOfACheckpointSayWhatItsTensorsAre) {
    CaseModel model;
    model.config = {{"torch_dtype", "bfloat16"}, {"dtype", "bfloat16"}};
    write_tiny(path("model"), model);
    EXPECT_EQ(ended(train({"grpo.steps=1"})).code, 0);
    const json written = config_in(path("runs/run/checkpoint"));
    EXPECT_EQ(written["dtype"], "float32");
    EXPECT_EQ(written["torch_dtype"], "float32");
    engine::Program engine(serve("runs/run/checkpoint"));
    EXPECT_EQ(dtype_served(engine.url()), "float32");
}

TEST_F(Case, TheKeysAreReadInTransformersFivesOrder) {
    CaseModel model;
    model.config = {{"torch_dtype", "bfloat16"}, {"dtype", "float32"}};
    write_tiny(path("model"), model);
    {
        engine::Program engine(serve());
        EXPECT_EQ(dtype_served(engine.url()), "float32");
    }
    change_json(path("model/config.json"), {{"dtype", nullptr}});
    {
        engine::Program engine(serve());
        EXPECT_EQ(dtype_served(engine.url()), "bfloat16");
    }
    change_json(path("model/config.json"), {{"dtype", "float8_e4m3fn"}});
    engine::Program engine(serve());
    EXPECT_EQ(engine.wait(), 2);
    EXPECT_THAT(engine.output(),
                HasSubstr("config.json: dtype: \"float8_e4m3fn\" is not supported; supported: "
                          "float32, bfloat16, float16"));
}

}  // namespace tandem::test
