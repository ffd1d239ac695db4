// The C ABI against a receiver of ours in this process: what it brings over, what it refuses and how it says so.
// ranks_test.cpp: several ranks.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "common/model/safetensors.h"
#include "sync/capi/dlpack.h"
#include "tests/support/vllm_stand_in.h"
#include "tests/unit/sync/capi/capi_fixture.h"
#include "tests/unit/sync/capi/in_c.h"

namespace tandem::sync {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(Capi, servesACProgram) {
    const char* wrong = use_in_c(engine_, a_.data(), b_.data());
    EXPECT_EQ(wrong, nullptr) << wrong;
    EXPECT_EQ(held(target_, 0), a_);
    EXPECT_EQ(held(target_, 1), b_);
    EXPECT_EQ(target_.version(), 8);
}

TEST_F(Capi, refusesStructsWithoutASize) {
    td_options chosen = options();
    chosen.size = 0;
    td_session* session = nullptr;
    EXPECT_EQ(td_session_open(&chosen, nullptr, &session), TD_INVALID);
    EXPECT_THAT(td_last_error(), HasSubstr("td_options.size is 0"));
    EXPECT_EQ(session, nullptr);
    td_tensor tensor = a();
    tensor.size = 1 << 20;
    EXPECT_THAT(refused({tensor}).message, HasSubstr("td_tensor.size is 1048576"));
}

// A caller that was compiled before `rollback` was there, and one that is newer than the library.
TEST_F(Capi, readsShorterAndLongerStructs) {
    td_options shorter = options();
    shorter.rollback = 77;
    shorter.size = offsetof(td_options, rollback);
    td_session* session = nullptr;
    ASSERT_EQ(td_session_open(&shorter, nullptr, &session), TD_OK) << td_last_error();
    struct {
        td_report report;
        double unknown = 4.5;
    } longer{};
    longer.report.size = sizeof longer;
    const td_tensor tensors[] = {a(), b()};
    ASSERT_EQ(td_session_publish(session, tensors, 2), TD_OK) << td_last_error();
    ASSERT_EQ(td_session_push(session, 1, &longer.report), TD_OK) << td_last_error();
    EXPECT_EQ(longer.report.version, 1);
    EXPECT_EQ(longer.report.size, sizeof longer);
    EXPECT_EQ(longer.unknown, 4.5);
    struct {
        std::size_t size = sizeof(std::size_t) + sizeof(std::int64_t);
        std::int64_t version = 0;
        double untouched = 4.5;
    } old;
    ASSERT_EQ(td_session_push(session, 2, reinterpret_cast<td_report*>(&old)), TD_OK) << td_last_error();
    EXPECT_EQ(old.version, 2);
    EXPECT_EQ(old.untouched, 4.5);
    EXPECT_EQ(td_session_close(session), TD_OK);
}

TEST_F(Capi, refusesNullsAndUnknownNumbers) {
    td_session* session = nullptr;
    EXPECT_EQ(td_session_open(nullptr, nullptr, &session), TD_INVALID);
    const td_options chosen = options();
    EXPECT_EQ(td_session_open(&chosen, nullptr, nullptr), TD_INVALID);
    EXPECT_EQ(td_session_push(nullptr, 1, nullptr), TD_INVALID);
    EXPECT_EQ(td_push_wait(nullptr, 1, nullptr), TD_INVALID);
    EXPECT_EQ(td_session_close(nullptr), TD_OK);
    EXPECT_EQ(td_push_free(nullptr), TD_OK);

    td_tensor tensor = a();
    tensor.dtype = 99;
    EXPECT_THAT(refused({tensor}).message, HasSubstr("tensor 'a': there is no dtype number 99"));
    tensor = a();
    tensor.device_type = 7;
    EXPECT_THAT(refused({tensor}).message, HasSubstr("device type 7"));
    tensor = a();
    tensor.data = nullptr;
    EXPECT_THAT(refused({tensor}).message, HasSubstr("data is NULL"));
    tensor = a();
    tensor.name = "";
    EXPECT_THAT(refused({tensor}).message, HasSubstr("without a name"));
    tensor = a();
    tensor.ndim = 3000;
    EXPECT_THAT(refused({tensor}).message, HasSubstr("3000 dims"));
    const std::int64_t huge[] = {std::int64_t{1} << 40, std::int64_t{1} << 40};
    tensor = a();
    tensor.global_shape = huge;
    EXPECT_THAT(refused({tensor}).message, HasSubstr("too large"));
    EXPECT_THAT(refused({a(), a()}).message, HasSubstr("'a' is published twice"));
}

TEST_F(Capi, namesWhatTheEngineDoesNotHold) {
    td_tensor other = b();
    other.name = "c";
    const Details details = refused({a(), b(), other});
    EXPECT_EQ(details.status, TD_SYNC_FAILED);
    EXPECT_EQ(details.rank, 0);
    EXPECT_EQ(details.bucket, -1);
    EXPECT_EQ(details.phase, "plan");
    EXPECT_THAT(details.message, HasSubstr("'c'"));
}

TEST_F(Capi, canPublishAgainAfterARefusal) {
    td_session* session = open();
    const td_tensor one[] = {a()};
    ASSERT_EQ(td_session_publish(session, one, 1), TD_SYNC_FAILED);
    const td_tensor both[] = {a(), b()};
    ASSERT_EQ(td_session_publish(session, both, 2), TD_OK) << td_last_error();
    EXPECT_EQ(td_session_push(session, 1, nullptr), TD_OK) << td_last_error();
    EXPECT_EQ(held(target_, 1), b_);
    EXPECT_EQ(td_session_close(session), TD_OK);
}

TEST_F(Capi, readsWeightsWhereTheyLieNow) {
    td_session* session = open();
    const td_tensor tensors[] = {a(), b()};
    ASSERT_EQ(td_session_publish(session, tensors, 2), TD_OK) << td_last_error();
    ASSERT_EQ(td_session_push(session, 1, nullptr), TD_OK) << td_last_error();
    std::vector<float> elsewhere = counting(5, -9);
    td_tensor moved[] = {a(), b()};
    moved[1].data = elsewhere.data();
    ASSERT_EQ(td_session_publish(session, moved, 2), TD_OK) << td_last_error();
    ASSERT_EQ(td_session_push(session, 2, nullptr), TD_OK) << td_last_error();
    EXPECT_EQ(held(target_, 1), elsewhere);
    td_tensor reshaped[] = {a(), b()};
    reshaped[1].name = "c";
    EXPECT_EQ(td_session_publish(session, reshaped, 2), TD_INVALID);
    EXPECT_THAT(td_last_error(), HasSubstr("not as it was published first"));
    EXPECT_EQ(td_session_close(session), TD_OK);
}

TEST_F(Capi, keepsErrorsApartByThread) {
    EXPECT_EQ(td_session_push(nullptr, 1, nullptr), TD_INVALID);
    const std::string mine = td_last_error();
    std::thread([] {
        EXPECT_STREQ(td_last_error(), "");
        EXPECT_EQ(td_push_wait(nullptr, 1, nullptr), TD_INVALID);
        EXPECT_THAT(td_last_error(), HasSubstr("push is NULL"));
    }).join();
    EXPECT_EQ(td_last_error(), mine);
    EXPECT_EQ(td_session_close(nullptr), TD_OK);
    EXPECT_STREQ(td_last_error(), "");
}

TEST_F(Capi, namesAnEngineThatIsNotThere) {
    receiver_.reset();
    const td_options chosen = options();
    td_session* session = nullptr;
    EXPECT_EQ(td_session_open(&chosen, nullptr, &session), TD_SYNC_FAILED);
    EXPECT_EQ(last_error().phase, "connect");
    EXPECT_EQ(session, nullptr);
}

TEST_F(Capi, namesAnEngineThatWentAwayAndCloses) {
    td_session* session = open();
    const td_tensor tensors[] = {a(), b()};
    ASSERT_EQ(td_session_publish(session, tensors, 2), TD_OK) << td_last_error();
    receiver_.reset();
    EXPECT_EQ(td_session_push(session, 1, nullptr), TD_SYNC_FAILED);
    const Details details = last_error();
    EXPECT_EQ(details.rank, 0);
    EXPECT_EQ(details.phase, "pause");
    EXPECT_THAT(details.peer, HasSubstr("engine"));
    EXPECT_EQ(td_session_close(session), TD_OK);
}

TEST_F(Capi, measuresTheSpeedOfLight) {
    td_session* session = open();
    double ms = 0;
    EXPECT_EQ(td_session_speed_of_light(session, &ms), TD_INVALID);
    const td_tensor tensors[] = {a(), b()};
    ASSERT_EQ(td_session_publish(session, tensors, 2), TD_OK) << td_last_error();
    ASSERT_EQ(td_session_speed_of_light(session, &ms), TD_OK) << td_last_error();
    EXPECT_GT(ms, 0);
    td_report report{};
    report.size = sizeof report;
    ASSERT_EQ(td_session_push(session, 1, &report), TD_OK) << td_last_error();
    EXPECT_EQ(report.speed_of_light_ms, ms);
    EXPECT_EQ(td_session_close(session), TD_OK);
}

// Regions outlive the session that made them.
TEST_F(Capi, givesMemoryByDlpack) {
    td_session* session = open();
    void* raw = nullptr;
    EXPECT_EQ(td_session_region(session, 0, 1, &raw), TD_INVALID);
    ASSERT_EQ(td_session_region(session, 4096, 1, &raw), TD_OK) << td_last_error();
    auto* versioned = static_cast<capi::dlpack::ManagedVersioned*>(raw);
    EXPECT_EQ(versioned->major, 1u);
    EXPECT_EQ(versioned->flags, 0u);
    EXPECT_EQ(versioned->tensor.device.type, 1);
    EXPECT_EQ(versioned->tensor.shape[0], 4096);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(versioned->tensor.data) % 64, 0u);
    ASSERT_EQ(td_session_region(session, 64, 0, &raw), TD_OK) << td_last_error();
    auto* plain = static_cast<capi::dlpack::Managed*>(raw);
    EXPECT_EQ(td_session_close(session), TD_OK);
    std::memset(versioned->tensor.data, 7, 4096);
    std::memset(plain->tensor.data, 7, 64);
    versioned->deleter(versioned);
    plain->deleter(plain);
}

// Weights that an engine of ours would read in place, for a server that takes directories.
TEST_F(Capi, gathersForServersThatTakeWholeVersions) {
    namespace fs = std::filesystem;
    std::string folder = (fs::temp_directory_path() / "capi_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    Tensor old = Tensor::empty({5}, kFloat, "test");
    std::memset(old.raw(), 0, old.bytes());
    model::write_safetensors(folder + "/model.safetensors", {{"b", old}});
    std::ofstream(folder + "/config.json") << "{}";
    {
        const test::VllmStandIn server({.model = folder});
        const std::string url = server.url();
        engine_ = url.c_str();
        td_session* session = open();
        ASSERT_NE(session, nullptr);
        void* raw = nullptr;
        ASSERT_EQ(td_session_region(session, 5 * sizeof(float), 1, &raw), TD_OK) << td_last_error();
        auto* region = static_cast<capi::dlpack::ManagedVersioned*>(raw);
        std::memcpy(region->tensor.data, b_.data(), 5 * sizeof(float));
        td_tensor tensor = b();
        tensor.data = region->tensor.data;
        ASSERT_EQ(td_session_publish(session, &tensor, 1), TD_OK) << td_last_error();
        td_report report{};
        report.size = sizeof report;
        ASSERT_EQ(td_session_push(session, 3, &report), TD_OK) << td_last_error();
        EXPECT_STREQ(report.mode, "gather");
        EXPECT_EQ(server.weights().at("b"),
                  std::string(reinterpret_cast<const char*>(b_.data()), 5 * sizeof(float)));
        EXPECT_EQ(server.weight_version(), "3");
        EXPECT_EQ(td_session_close(session), TD_OK);
        region->deleter(region);
    }
    fs::remove_all(folder);
}

constexpr const char* kLlama = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 32})";

// What config.json says shows in no tensor.
TEST_F(Capi, comparesTheArchitectureWhereBothSayIt) {
    const td_tensor tensors[] = {a(), b()};
    const auto publish = [&](const char* config) {
        td_session* session = open();
        EXPECT_EQ(td_session_config(session, config), TD_OK) << td_last_error();
        const int outcome = td_session_publish(session, tensors, 2);
        const Details details = last_error();
        std::int32_t compared = -1;
        EXPECT_EQ(td_session_compared(session, &compared), TD_OK);
        EXPECT_EQ(td_session_close(session), TD_OK);
        return std::tuple(outcome, compared, details.phase + ": " + details.message);
    };
    const auto other = R"({"architectures": ["GPT2LMHeadModel"]})";
    EXPECT_EQ(std::get<1>(publish(kLlama)), 0) << "the engine does not say its own";
    EXPECT_EQ(std::get<0>(publish(other)), TD_OK) << "nobody says the opposite";
    auto config = nlohmann::json::parse(kLlama);
    target_.say(model::Architecture::from_json(config, "the engine's"));
    EXPECT_EQ(std::get<1>(publish(nullptr)), 0);
    config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 10000}};
    const auto [same, compared, none] = publish(config.dump().c_str());
    EXPECT_EQ(same, TD_OK) << none;
    EXPECT_EQ(compared, 1);
    config["rope_parameters"]["rope_theta"] = 5e5;
    const auto [outcome, not_compared, message] = publish(config.dump().c_str());
    EXPECT_EQ(outcome, TD_SYNC_FAILED);
    EXPECT_EQ(not_compared, 0);
    EXPECT_THAT(message,
                AllOf(HasSubstr("plan: "), HasSubstr("rope_theta is 500000.0"), HasSubstr("10000.0")));
    EXPECT_THAT(std::get<2>(publish(other)), HasSubstr("\"GPT2LMHeadModel\" is not supported"));
    EXPECT_EQ(target_.version(), 0);
}

TEST_F(Capi, refusesAConfigThatIsNone) {
    td_session* session = open();
    EXPECT_EQ(td_session_config(session, "{"), TD_INVALID);
    EXPECT_THAT(td_last_error(), HasSubstr("malformed JSON"));
    EXPECT_EQ(td_session_config(session, "[1]"), TD_INVALID);
    const td_tensor tensors[] = {a(), b()};
    ASSERT_EQ(td_session_publish(session, tensors, 2), TD_OK) << td_last_error();
    EXPECT_EQ(td_session_config(session, kLlama), TD_INVALID);
    EXPECT_THAT(td_last_error(), HasSubstr("before the first td_session_publish"));
    EXPECT_EQ(td_session_close(session), TD_OK);
}

}  // namespace
}  // namespace tandem::sync
