// The receiving end of the C ABI: what can be taken, and what a version under way, taken or given up does to the next.
#include "sync/capi/tandem_sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "common/device/shared_arena.h"
#include "engine_adapter/connect.h"
#include "tests/support/eventually.h"
#include "tests/support/soon.h"

namespace tandem::sync {
namespace {

using test::soon;

using ::testing::HasSubstr;

class CapiReceiver : public ::testing::Test {
  protected:
    CapiReceiver() {
        const std::vector<td_tensor> tensors{described("a", memory_.data()),
                                             described("b", memory_.data() + 8)};
        EXPECT_EQ(td_receiver_open(&options_, tensors.data(), tensors.size(), &receiver_), TD_OK)
            << td_last_error();
        char address[128];
        EXPECT_EQ(td_receiver_address(receiver_, address, sizeof address), TD_OK) << td_last_error();
        address_ = address;
    }
    ~CapiReceiver() override {
        td_session_close(session_);
        EXPECT_EQ(td_receiver_close(receiver_), TD_OK);
    }

    td_tensor described(const char* name, float* data) const {
        td_tensor tensor{};
        tensor.size = sizeof tensor;
        tensor.name = name;
        tensor.data = data;
        tensor.dtype = TD_FLOAT32;
        tensor.device_type = TD_CPU;
        tensor.ndim = 1;
        tensor.global_shape = shape_;
        return tensor;
    }
    // Of a trainer whose 16 values count from `from`.
    int push(std::int64_t version, float from) {
        std::iota(published_.begin(), published_.end(), from);
        if (session_ == nullptr) {
            EXPECT_EQ(open(address_, nullptr), TD_OK) << td_last_error();
            const td_tensor tensors[] = {described("a", published_.data()),
                                         described("b", published_.data() + 8)};
            EXPECT_EQ(td_session_publish(session_, tensors, 2), TD_OK) << td_last_error();
        }
        return td_session_push(session_, version, nullptr);
    }
    int open(const std::string& address, const char* key) {
        const char* engine = address.c_str();
        td_options options{};
        options.size = sizeof options;
        options.engines = &engine;
        options.engine_count = 1;
        options.deadline_s = 20;
        options.key = key;
        return td_session_open(&options, nullptr, &session_);
    }
    std::int64_t staged() const {
        std::int64_t version = -1;
        EXPECT_EQ(td_receiver_staged(receiver_, &version), TD_OK);
        return version;
    }

    std::int64_t shape_[1] = {8};
    std::vector<float> memory_ = std::vector<float>(16, -1.0f);
    std::vector<float> published_ = std::vector<float>(16);
    td_receiver_options options_{sizeof(td_receiver_options), "server", 1, nullptr, nullptr};
    td_receiver* receiver_ = nullptr;
    td_session* session_ = nullptr;
    std::string address_;
};

TEST_F(CapiReceiver, stagesWholeVersionsThatCanBeTakenByNumber) {
    EXPECT_EQ(staged(), 0);
    EXPECT_EQ(td_receiver_take(receiver_, 1), TD_CONFLICT);
    EXPECT_THAT(td_last_error(), HasSubstr("version 1 is not staged: no whole one is"));
    ASSERT_EQ(push(3, 10), TD_OK) << td_last_error();
    EXPECT_EQ(staged(), 3);
    EXPECT_EQ(memory_, published_);
    EXPECT_EQ(td_receiver_take(receiver_, 2), TD_CONFLICT);
    EXPECT_THAT(td_last_error(), HasSubstr("version 2 is not staged: 3 is"));
    EXPECT_EQ(td_receiver_take(receiver_, 3), TD_OK) << td_last_error();
    EXPECT_EQ(td_receiver_take(receiver_, 3), TD_CONFLICT);
    EXPECT_THAT(td_last_error(), HasSubstr("taken already"));
}

TEST_F(CapiReceiver, nothingIsWrittenWhileAVersionIsTaken) {
    ASSERT_EQ(push(1, 10), TD_OK) << td_last_error();
    const std::vector<float> first = memory_;
    ASSERT_EQ(td_receiver_take(receiver_, 1), TD_OK) << td_last_error();
    EXPECT_EQ(push(2, 50), TD_SYNC_FAILED);
    EXPECT_THAT(td_last_error(), HasSubstr("version 1 is being loaded"));
    EXPECT_EQ(memory_, first);
    EXPECT_EQ(staged(), 1);
    EXPECT_EQ(td_receiver_give_back(receiver_), TD_OK);
    ASSERT_EQ(push(3, 70), TD_OK) << td_last_error();
    EXPECT_EQ(memory_, published_);
}

TEST_F(CapiReceiver, aVersionThatWasGivenUpHalfWayCannotBeTaken) {
    ASSERT_EQ(push(1, 10), TD_OK) << td_last_error();
    td_session_close(session_);
    session_ = nullptr;

    using namespace engine;
    SharedArena arena = SharedArena::create("test", 64);
    std::memset(arena.data(), 1, arena.bytes());
    const TransferPlan plan{
        {{0, 0, 0, DType::float32, 1, 8, 0, 0, 0, 0}, {1, 0, 0, DType::float32, 1, 8, 32, 0, 0, 0}},
        {0, 1, 2}};
    const ops::Checksum checksum = ops::checksum({arena.data(), 32});
    std::unique_ptr<Engine> trainer;
    EXPECT_TRUE(test::eventually([&] {
        try {
            trainer = connect(address_, soon());
        } catch (const TransportError&) {  // the session before is not gone yet
        }
        return trainer != nullptr;
    }));
    EXPECT_EQ(trainer->capabilities().engine, "server");
    trainer->attach({{arena.span(), arena.fd()}}, plan, soon());
    trainer->begin(2, soon());
    EXPECT_EQ(td_receiver_take(receiver_, 1), TD_CONFLICT);
    EXPECT_THAT(td_last_error(), HasSubstr("another is on its way"));
    trainer->buckets().load(0, std::span(&checksum, 1), soon());
    trainer->buckets().wait_loaded(0, soon());
    trainer.reset();
    EXPECT_TRUE(test::eventually([&] { return staged() == 0; }));
    EXPECT_EQ(td_receiver_take(receiver_, 1), TD_CONFLICT);
    ASSERT_EQ(push(2, 30), TD_OK) << td_last_error();
    EXPECT_EQ(td_receiver_take(receiver_, 2), TD_OK) << td_last_error();
}

TEST_F(CapiReceiver, aSessionShowsItsOwnKeyToAReceiverOfAnotherHost) {
    td_receiver_close(receiver_);
    options_.data_listen = "127.0.0.1:0";
    options_.key = "of this job";
    const std::vector<td_tensor> tensors{described("a", memory_.data()), described("b", memory_.data() + 8)};
    ASSERT_EQ(td_receiver_open(&options_, tensors.data(), tensors.size(), &receiver_), TD_OK)
        << td_last_error();
    std::int32_t port = 0;
    char host[256];
    ASSERT_EQ(td_receiver_data_plane(receiver_, &port, host, sizeof host), TD_OK);
    char here[256];
    ASSERT_EQ(td_host(here, sizeof here), TD_OK) << td_last_error();
    EXPECT_STREQ(host, here);
    EXPECT_EQ(td_host(here, 4), TD_INVALID);
    const std::string address = "tcp://127.0.0.1:" + std::to_string(port);
    EXPECT_NE(open(address, "of another job"), TD_OK);
    EXPECT_THAT(td_last_error(), HasSubstr("key"));
    ASSERT_EQ(open(address, "of this job"), TD_OK) << td_last_error();
    const td_tensor published[] = {described("a", published_.data()), described("b", published_.data() + 8)};
    ASSERT_EQ(td_session_publish(session_, published, 2), TD_OK) << td_last_error();
    ASSERT_EQ(push(1, 10), TD_OK) << td_last_error();
    EXPECT_EQ(memory_, published_);
}

TEST_F(CapiReceiver, refusesWhatItCannotReceiveInto) {
    td_receiver* other = nullptr;
    const auto refused = [&](td_tensor tensor) {
        EXPECT_EQ(td_receiver_open(&options_, &tensor, 1, &other), TD_INVALID);
        return std::string(td_last_error());
    };
    td_tensor tensor = described("a", nullptr);
    EXPECT_THAT(refused(tensor), HasSubstr("data is NULL"));
    tensor = described("a", memory_.data());
    tensor.device_type = TD_CUDA;
    EXPECT_THAT(refused(tensor), HasSubstr("not in memory of the CPU"));
    const td_mesh mesh{};
    tensor = described("a", memory_.data());
    tensor.mesh = &mesh;
    EXPECT_THAT(refused(tensor), HasSubstr("received whole"));
    EXPECT_EQ(td_receiver_open(&options_, nullptr, 0, &other), TD_INVALID);
    EXPECT_EQ(td_receiver_open(nullptr, &tensor, 1, &other), TD_INVALID);
    const td_tensor twice[] = {described("a", memory_.data()), described("a", memory_.data())};
    EXPECT_EQ(td_receiver_open(&options_, twice, 2, &other), TD_INVALID);
    EXPECT_THAT(td_last_error(), HasSubstr("twice"));
    char small[4];
    EXPECT_EQ(td_receiver_address(receiver_, small, sizeof small), TD_INVALID);
    EXPECT_EQ(td_receiver_close(nullptr), TD_OK);
}

}  // namespace
}  // namespace tandem::sync
