// /generate in JSON: the requests of SGLang's clients are understood, all others refused with a reason.
#include "engine_adapter/embedded/request_json.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::engine {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const RequestLimits kLimits{.vocab_size = 40, .context_length = 96, .kv_tokens = 64};

GenerateRequest parse(const json& body) {
    return parse_generate(body.dump(), kLimits, 7);
}

std::string refusal(const std::string& text) {
    try {
        parse_generate(text, kLimits, 7);
    } catch (const InvalidArgument& error) {
        return error.what();
    }
    return "accepted";
}

std::string refusal_of_params(const json& params) {
    return refusal(json{{"input_ids", {1, 2}}, {"sampling_params", params}}.dump());
}

TEST(RequestJson, ASinglePromptWithDefaults) {
    const GenerateRequest request = parse({{"input_ids", {1, 2, 39}}});
    ASSERT_EQ(request.prompts.size(), 1u);
    EXPECT_FALSE(request.as_list);
    EXPECT_FALSE(request.return_logprob);
    EXPECT_EQ(request.prompts[0].tokens, (std::vector<std::int32_t>{1, 2, 39}));
    EXPECT_EQ(request.prompts[0].params.temperature, 1.0f);
    EXPECT_EQ(request.prompts[0].params.seed, std::nullopt);
    EXPECT_EQ(request.id, "tandem-7");
}

TEST(RequestJson, EveryParameter) {
    const GenerateRequest request = parse({{"input_ids", {1}},
                                           {"rid", "me"},
                                           {"return_logprob", true},
                                           {"stream", false},
                                           {"logprob_start_len", -1},
                                           {"sampling_params",
                                            {{"temperature", 0.5},
                                             {"top_k", 3},
                                             {"top_p", 0.25},
                                             {"min_p", 0.125},
                                             {"sampling_seed", 5},
                                             {"stop_token_ids", {4, 6}},
                                             {"ignore_eos", true},
                                             {"max_new_tokens", 9},
                                             {"n", 2},
                                             {"repetition_penalty", 1.0},
                                             {"stop", nullptr},
                                             {"skip_special_tokens", false}}}});
    const SamplingParams& params = request.prompts[0].params;
    EXPECT_EQ(params.temperature, 0.5f);
    EXPECT_EQ(params.top_k, 3);
    EXPECT_EQ(params.top_p, 0.25f);
    EXPECT_EQ(params.min_p, 0.125f);
    EXPECT_EQ(params.seed, 5u);
    EXPECT_EQ(params.stop_token_ids, (std::vector<std::int32_t>{4, 6}));
    EXPECT_TRUE(params.ignore_eos);
    EXPECT_EQ(params.max_new_tokens, 9);
    EXPECT_EQ(params.n, 2);
    EXPECT_TRUE(request.return_logprob);
    EXPECT_EQ(request.prompts[0].id, "me");
    EXPECT_EQ(parse({{"input_ids", {1}}, {"sampling_params", {{"seed", -1}}}}).prompts[0].params.seed,
              ~std::uint64_t{0});
}

TEST(RequestJson, StreamsOfABatch) {
    // One seed for all: every sample gets a stream of its own.
    const GenerateRequest shared =
        parse({{"input_ids", {{1}, {1}, {2}}},
               {"sampling_params", {{"seed", 1}, {"n", 4}, {"max_new_tokens", 1}}}});
    EXPECT_EQ(shared.prompts[0].first_stream, 0u);
    EXPECT_EQ(shared.prompts[1].first_stream, 4u);
    EXPECT_EQ(shared.prompts[2].first_stream, 8u);
    // A seed each: a prompt gives what it would give alone.
    const GenerateRequest own =
        parse({{"input_ids", {{1}, {1}}}, {"sampling_params", {{{"seed", 1}}, {{"seed", 2}}}}});
    EXPECT_EQ(own.prompts[1].first_stream, 0u);
    EXPECT_TRUE(own.as_list);
    EXPECT_EQ(own.prompts[1].id, "tandem-7_1");
}

TEST(RequestJson, BodiesThatAreNoRequests) {
    EXPECT_THAT(refusal("{\"input_ids\": [1"), HasSubstr("not valid JSON"));
    EXPECT_THAT(refusal("[1]"), HasSubstr("must be a JSON object"));
    EXPECT_THAT(refusal("\xff"), HasSubstr("not valid JSON"));
    EXPECT_THAT(refusal(""), HasSubstr("input_ids is missing"));
    EXPECT_THAT(refusal(R"({"input_ids": null})"), HasSubstr("input_ids is missing"));
    EXPECT_THAT(refusal(R"({"input_ids": "1"})"), HasSubstr("input_ids is missing"));
    EXPECT_THAT(refusal(R"({"input_ids": []})"), HasSubstr("input_ids is empty"));
    EXPECT_THAT(refusal(R"({"input_ids": [[1], []]})"), HasSubstr("input_ids is empty"));
    EXPECT_THAT(refusal(R"({"input_ids": [[1], 2]})"), HasSubstr("list"));
    EXPECT_THAT(refusal(R"({"input_ids": [1, [2]]})"), HasSubstr("must hold integers"));
    EXPECT_THAT(refusal(R"({"input_ids": [1.5]})"), HasSubstr("must hold integers"));
    EXPECT_THAT(refusal(R"({"input_ids": [40]})"), HasSubstr("token id 40 is outside the vocabulary of 40"));
    EXPECT_THAT(refusal(R"({"input_ids": [-1]})"), HasSubstr("token id -1 is outside"));
    EXPECT_THAT(refusal(R"({"input_ids": [18446744073709551615]})"), HasSubstr("outside the vocabulary"));
    EXPECT_THAT(refusal(R"({"text": "hello"})"), HasSubstr("no tokenizer files: send input_ids"));
    EXPECT_THAT(refusal(R"({"input_ids": [1], "stream": true})"), HasSubstr("stream"));
    EXPECT_THAT(refusal(R"({"input_ids": [1], "lora_path": "x"})"), HasSubstr("lora_path is not supported"));
    EXPECT_THAT(refusal(R"({"input_ids": [1], "logprob_start_len": 0})"), HasSubstr("logprob_start_len"));
    EXPECT_THAT(refusal(R"({"input_ids": [1], "return_logprob": 1})"), HasSubstr("return_logprob"));
    EXPECT_THAT(refusal(R"({"input_ids": [1], "rid": 1})"), HasSubstr("rid"));
    EXPECT_THAT(refusal(R"({"input_ids": [1], "rid": ["a", "b"]})"),
                HasSubstr("rid lists 2 ids for 1 prompts"));
    const std::string deep(1'000'000, '[');
    EXPECT_THAT(refusal(deep), HasSubstr("nested deeper"));
    EXPECT_THAT(refusal("{\"rid\": \"" + deep + "\", \"input_ids\": [50]}"), HasSubstr("token id 50"));
}

TEST(RequestJson, ParametersOutOfRange) {
    EXPECT_THAT(refusal_of_params(3), HasSubstr("must be an object"));
    EXPECT_THAT(refusal_of_params({json::object(), json::object()}),
                HasSubstr("lists 2 objects for 1 prompts"));
    EXPECT_THAT(refusal_of_params({{"temprature", 1}}),
                HasSubstr("temprature is not known; known: ignore_eos"));
    EXPECT_THAT(refusal_of_params({{"temperature", -0.1}}), HasSubstr("temperature"));
    EXPECT_THAT(refusal_of_params({{"temperature", "1"}}), HasSubstr("temperature must be a number"));
    EXPECT_THAT(refusal_of_params({{"temperature", 1e300}}), HasSubstr("temperature"));
    EXPECT_THAT(refusal_of_params({{"top_p", 0}}), HasSubstr("top_p must be in (0, 1]"));
    EXPECT_THAT(refusal_of_params({{"top_p", 1.01}}), HasSubstr("top_p must be in (0, 1]"));
    EXPECT_THAT(refusal_of_params({{"top_k", 0}}), HasSubstr("top_k"));
    EXPECT_THAT(refusal_of_params({{"top_k", -2}}), HasSubstr("top_k"));
    EXPECT_THAT(refusal_of_params({{"top_k", 1.5}}), HasSubstr("integer"));
    EXPECT_THAT(refusal_of_params({{"min_p", 2}}), HasSubstr("min_p"));
    EXPECT_THAT(refusal_of_params({{"n", 0}}), HasSubstr("n must be from 1"));
    EXPECT_THAT(refusal_of_params({{"n", 70000}}), HasSubstr("n must be from 1"));
    EXPECT_THAT(refusal_of_params({{"max_new_tokens", -1}}), HasSubstr("max_new_tokens must be from 0"));
    EXPECT_THAT(refusal_of_params({{"max_new_tokens", 18446744073709551615u}}), HasSubstr("max_new_tokens"));
    EXPECT_THAT(refusal_of_params({{"seed", 1.5}}), HasSubstr("seed must be an integer"));
    EXPECT_THAT(refusal_of_params({{"stop_token_ids", {40}}}),
                HasSubstr("stop_token_ids must be from 0 to 39"));
    EXPECT_THAT(refusal_of_params({{"stop_token_ids", 4}}), HasSubstr("stop_token_ids must be a list"));
    EXPECT_THAT(refusal_of_params({{"ignore_eos", 1}}), HasSubstr("ignore_eos"));
    EXPECT_THAT(refusal_of_params({{"stop", "x"}}), HasSubstr("stop = \"x\" is not supported"));
    EXPECT_THAT(refusal_of_params({{"repetition_penalty", 1.1}}), HasSubstr("repetition_penalty"));
    json many = {{"input_ids", {{1}, {2}}}, {"sampling_params", {{"n", 40000}, {"max_new_tokens", 1}}}};
    EXPECT_THAT(refusal(many.dump()), HasSubstr("more than 65536 samples"));
}

TEST(RequestJson, LengthsNameBothNumbers) {
    const auto prompt = [](std::size_t length, const json& params) {
        return refusal(json{{"input_ids", std::vector<int>(length, 1)}, {"sampling_params", params}}.dump());
    };
    EXPECT_THAT(prompt(96, nullptr), HasSubstr("the prompt has 96 tokens, the model's context holds 96"));
    EXPECT_THAT(prompt(90, {{"max_new_tokens", 7}}),
                HasSubstr("90 prompt tokens and 7 new ones are more than the model's context of 96"));
    EXPECT_THAT(prompt(60, {{"max_new_tokens", 5}}), HasSubstr("more than the cache of 64 (--kv-tokens)"));
    EXPECT_EQ(prompt(60, {{"max_new_tokens", 4}}), "accepted");
    const RequestLimits roomy{.vocab_size = 40, .context_length = 96, .kv_tokens = 1000};
    const std::string body = json{{"input_ids", std::vector<int>(90, 1)}}.dump();
    EXPECT_EQ(parse_generate(body, roomy, 0).prompts[0].params.max_new_tokens, 6)
        << "the default takes what is left";
}

TEST(RequestJson, AnswersLookLikeSglangs) {
    GenerateRequest request = parse({{"input_ids", {1, 2}}, {"return_logprob", true}, {"rid", "x"}});
    SampleOutput sample;
    sample.tokens = {5, 6};
    sample.logprobs = {-0.1f, -0.2f};
    sample.finish = Finish::stop;
    sample.matched = 6;
    sample.version = 12;
    GenerateResult result;
    result.samples = {sample};
    json answer = json::parse(generate_answer(request, result));
    EXPECT_EQ(answer["output_ids"], json({5, 6}));
    EXPECT_FALSE(answer.contains("text")) << "without a tokenizer";
    const json meta = answer["meta_info"];
    EXPECT_EQ(meta["id"], "x");
    EXPECT_EQ(meta["weight_version"], "12");
    EXPECT_EQ(meta["prompt_tokens"], 2);
    EXPECT_EQ(meta["completion_tokens"], 2);
    EXPECT_EQ(meta["finish_reason"], json({{"type", "stop"}, {"matched", 6}}));
    EXPECT_EQ(meta["output_token_logprobs"][1][1], 6);
    EXPECT_TRUE(meta["output_token_logprobs"][1][2].is_null());
    const json wire = json::parse(answer.dump());
    EXPECT_EQ(wire["meta_info"]["output_token_logprobs"][0][0].get<float>(), -0.1f)
        << "bit for bit through the wire";
    sample.finish = Finish::length;
    result.samples = {sample, sample};
    answer = json::parse(generate_answer(request, result));
    ASSERT_TRUE(answer.is_array());
    EXPECT_EQ(answer[1]["meta_info"]["finish_reason"], json({{"type", "length"}, {"length", 2}}));
}

// A word a token: "a" is 1, "b" is 2, "</s>" is 3 and special.
tokenizer::Tokenizer words() {
    const std::string folder = testing::TempDir() + "/request_json_words";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/tokenizer.json") << R"({
        "added_tokens": [{"id": 3, "content": "</s>", "special": true}],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "b": 2}, "merges": [], "unk_token": "<unk>"}})";
    return tokenizer::Tokenizer::from_directory(folder);
}

TEST(RequestJson, TextInAndOut) {
    const tokenizer::Tokenizer tokenizer = words();
    RequestLimits limits = kLimits;
    limits.tokenizer = &tokenizer;
    const auto parse_text = [&](const json& body) { return parse_generate(body.dump(), limits, 0); };
    GenerateRequest request = parse_text({{"text", "a b a"}});
    EXPECT_FALSE(request.as_list);
    EXPECT_EQ(request.prompts.at(0).tokens, (std::vector<std::int32_t>{1, 2, 1}));
    request = parse_text({{"text", {"a", "b </s>"}}, {"sampling_params", {{"skip_special_tokens", false}}}});
    EXPECT_TRUE(request.as_list);
    EXPECT_EQ(request.prompts.at(1).tokens, (std::vector<std::int32_t>{2, 3}));

    GenerateResult result;
    result.samples.resize(2);
    result.samples[0].tokens = {1, 3, 2};
    result.samples[1].prompt = 1;
    result.samples[1].tokens = {1, 3};
    result.samples[1].finish = Finish::stop;
    result.samples[1].matched = 3;
    json answer = json::parse(generate_answer(request, result, &tokenizer));
    EXPECT_EQ(answer[0]["text"], "a </s> b");
    EXPECT_EQ(answer[1]["text"], "a");
    EXPECT_EQ(answer[1]["output_ids"], json({1, 3}));
    request.prompts[0].skip_special_tokens = true;
    EXPECT_EQ(json::parse(generate_answer(request, result, &tokenizer))[0]["text"], "a b");
    request.prompts[1].no_stop_trim = true;
    EXPECT_EQ(json::parse(generate_answer(request, result, &tokenizer))[1]["text"], "a </s>");
    request.prompts[1].skip_special_tokens = true;
    EXPECT_EQ(json::parse(generate_answer(request, result, &tokenizer))[1]["text"], "a");

    for (const json& body : {json{{"text", ""}}, json{{"text", 5}}, json{{"text", ""}, {"input_ids", {1}}},
                             json{{"text", json::array()}}, json{{"text", {"a", 1}}},
                             json{{"text", "a"}, {"input_ids", {1}}}, json::object()}) {
        EXPECT_THROW(parse_text(body), InvalidArgument) << body;
    }
    limits.vocab_size = 2;
    EXPECT_THROW(parse_text({{"text", "a b"}}), InvalidArgument);
}

// SGLang's detokenizer leaves what stopped a sample; nothing else that it reads of a text is dropped in silence.
TEST(RequestJson, WhatConcernsTheTextIsHeldOrRefused) {
    const auto parsed = [](const json& params) {
        return parse({{"input_ids", {1}}, {"sampling_params", params}}).prompts[0];
    };
    EXPECT_FALSE(parsed(json::object()).no_stop_trim);
    EXPECT_TRUE(parsed({{"no_stop_trim", true}}).no_stop_trim);
    EXPECT_FALSE(parsed({{"no_stop_trim", nullptr}}).no_stop_trim);
    EXPECT_THAT(refusal_of_params({{"no_stop_trim", 1}}), HasSubstr("no_stop_trim must be true or false"));
    for (const bool spaces : {true, false})
        EXPECT_EQ(refusal_of_params({{"spaces_between_special_tokens", spaces}}), "accepted");
    EXPECT_THAT(refusal_of_params({{"spaces_between_special_tokens", "no"}}), HasSubstr("spaces_between"));
    EXPECT_THAT(refusal_of_params({{"stream_interval", 0}}), HasSubstr("stream_interval"));
}

TEST(RequestJson, FieldsThatAreNotReadAreRefused) {
    const auto with = [](const std::string& key, const json& value) {
        return refusal(json{{"input_ids", {1}}, {key, value}}.dump());
    };
    for (const char* key : {"top_logprobs_num", "token_ids_logprob", "return_hidden_states", "priority",
                            "return_routed_experts", "session_params", "require_reasoning", "watermark",
                            "bootstrap_room", "sampling_param", "prompt", "max_tokens"}) {
        EXPECT_EQ(with(key, 3), std::string(key) + " is not supported by this engine");
        for (const json& nothing : {json(), json(false), json(0), json(""), json::array(), json::object()})
            EXPECT_EQ(with(key, nothing), "accepted") << key << " " << nothing;
    }
    for (const char* key : {"log_metrics", "no_logs", "custom_labels", "routing_key", "data_parallel_rank"})
        EXPECT_EQ(with(key, 1), "accepted") << key;
    EXPECT_LT(with(std::string(100'000, 'k'), 1).size(), 200u);
    EXPECT_EQ(with("logprob_start_len", json::array({-1})), "accepted");
}

TEST(RequestJson, WhatSglangAddsToAnAnswerOnDemand) {
    const tokenizer::Tokenizer tokenizer = words();
    const GenerateRequest request = parse({{"input_ids", {{1}, {2}}},
                                           {"return_logprob", {false, true}},
                                           {"return_text_in_logprobs", true},
                                           {"return_prompt_token_ids", true}});
    EXPECT_TRUE(request.return_logprob);
    GenerateResult result;
    result.samples.resize(2);
    for (std::size_t i = 0; i < 2; ++i) {
        result.samples[i].prompt = i;
        result.samples[i].tokens = {2, 3};
        result.samples[i].logprobs = {-1, -2};
    }
    const json answer = json::parse(generate_answer(request, result, &tokenizer));
    EXPECT_FALSE(answer[0]["meta_info"].contains("output_token_logprobs"));
    EXPECT_EQ(answer[1]["meta_info"]["output_token_logprobs"][0][2], "b");
    EXPECT_EQ(answer[1]["meta_info"]["output_token_logprobs"][1][2], "</s>");
    EXPECT_EQ(answer[1]["prompt_token_ids"], json({2}));
    EXPECT_THAT(refusal(R"({"input_ids": [[1], [2]], "return_logprob": [true]})"),
                HasSubstr("lists 1 values for 2 prompts"));
}

TEST(RequestJson, EveryPromptHasAnIdOfItsOwn) {
    const GenerateRequest batch = parse({{"input_ids", {{1}, {2}}}, {"rid", "me"}});
    EXPECT_TRUE(batch.named);
    EXPECT_EQ(batch.prompts[0].id, "me_0");
    EXPECT_EQ(batch.prompts[1].id, "me_1");
    EXPECT_FALSE(parse({{"input_ids", {1}}}).named);
    EXPECT_THAT(refusal(R"({"input_ids": [[1], [2]], "rid": ["a", "a"]})"), HasSubstr("\"a\" twice"));
}

TEST(RequestJson, WhatIsNoJsonSaysWhere) {
    const auto place = [](const std::string& text, const std::string& where) {
        EXPECT_THAT(refusal(text), HasSubstr("the body is not valid JSON at " + where + ": ")) << text;
    };
    place("{\"input_ids\": [1,]}", "line 1, column 18");
    place("{\n \"input_ids\": [1],\n}", "line 3, column 1");
    place("{\"\xc3\xa9\xc3\xa9\": x}", "line 1, column 8");
    place("{\"text\": \"\\ud800\"}", "line 1, column 17");
    place("{\"text\": \"a\xff\"}", "line 1, column 12");
    place("{", "line 1, column 1");
    place("\n\n", "line 3, column 1");
    place("{\"a\": 1e999}", "line 1, column 7");
    EXPECT_LT(refusal("{\"text\": \"" + std::string(100'000, 'a')).size(), 300u)
        << "what was read is not quoted";
}

// What a small body can ask for many times over.
TEST(RequestJson, ProductsOfLimitsAreRefused) {
    const auto many = [](std::size_t count, const json& one) { return json(std::vector<json>(count, one)); };
    EXPECT_THAT(refusal(json{{"input_ids", {1}}, {"rid", std::string(257, 'a')}}.dump()),
                HasSubstr("rid has 257 bytes"));
    EXPECT_THAT(refusal(json{{"input_ids", many(2, {1})}, {"rid", {"a", std::string(257, 'a')}}}.dump()),
                HasSubstr("rid has 257 bytes"));
    EXPECT_THAT(refusal_of_params({{"stop_token_ids", many(1025, 0)}}), HasSubstr("lists 1025 ids"));
    EXPECT_THAT(
        refusal(json{{"input_ids", many(1025, {1})}, {"sampling_params", {{"stop_token_ids", many(1024, 0)}}}}
                    .dump()),
        HasSubstr("stop_token_ids over all prompts"));
    std::string values = R"({"input_ids":[)";
    for (int i = 0; i < (4 << 20); ++i) values += "0,";
    EXPECT_THAT(refusal(values + "0]}"), HasSubstr("holds more than 4194304 values"));
}

}  // namespace
}  // namespace tandem::engine
