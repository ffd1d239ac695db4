// The table of what goes with what: which mode works in which setting, and what a refusal says.
#include <gmock/gmock.h>

#include "common/error.h"
#include "sync/session/modes.h"

namespace tandem::sync {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Device kRefusalDevice{DeviceType::cuda, 0};
using About = Refusal::About;

// The modes that work in a setting.
std::string working(const Setting& setting) {
    std::string names;
    for (const Mode mode : {Mode::gather, Mode::direct, Mode::alias, Mode::delta}) {
        if (!refusal(mode, setting)) names += (names.empty() ? "" : " ") + std::string(mode_name(mode));
    }
    return names;
}

std::string sentence(Mode mode, const Setting& setting, About about = About::mode) {
    const auto refused = refusal(mode, setting);
    if (!refused) return "works";
    EXPECT_EQ(refused->about, about);
    return refused->sentence();
}

TEST(Refusal, ModesWorkWhereTheirRowsSay) {
    EXPECT_EQ(working({}), "gather direct alias delta");
    EXPECT_EQ(working({.transport = "shm"}), "gather direct alias delta");
    EXPECT_EQ(working({.transport = "nccl"}), "");
    EXPECT_EQ(working({.weights = kRefusalDevice}), "gather direct alias");
    EXPECT_EQ(working({.weights = kRefusalDevice, .transport = "cuda_ipc"}), "gather direct alias");
    EXPECT_EQ(working({.weights = kRefusalDevice, .transport = "nccl"}), "gather");
    EXPECT_EQ(working({.weights = kRefusalDevice, .transport = "shm"}), "");
    EXPECT_EQ(working({.weights = kRefusalDevice, .engine = Device{}}), "");
    EXPECT_EQ(working({.engine = kRefusalDevice}), "gather direct delta");
    EXPECT_EQ(working({.several_hosts = true}), "gather");
    EXPECT_EQ(working({.weights = kRefusalDevice, .several_hosts = true}), "");
    EXPECT_EQ(working({.quantised = true}), "gather direct alias");
    EXPECT_EQ(working({.weights = kRefusalDevice, .quantised = true}), "");
    EXPECT_EQ(working({.engine_reads_in_place = false}), "gather direct delta");
    EXPECT_EQ(working({.engine_reads_in_place = false, .engine_stages = true}), "gather");
    EXPECT_EQ(working({.shards_leave = true}), "gather direct alias delta");
    EXPECT_EQ(working({.weights = kRefusalDevice, .shards_leave = true}), "gather alias");
    EXPECT_EQ(working({.engine_drops_weights = true}), "gather direct");
}

TEST(Refusal, SaysWhatToChooseInstead) {
    EXPECT_EQ(sentence(Mode::delta, {.weights = kRefusalDevice}),
              "delta compares on the CPU, and the weights are on a GPU: use gather, direct or alias");
    EXPECT_THAT(sentence(Mode::delta, {.weights = kRefusalDevice, .transport = "nccl"}),
                AllOf(HasSubstr("which only gather fills"), HasSubstr("use gather instead of delta")));
    EXPECT_THAT(sentence(Mode::direct, {.several_hosts = true}), HasSubstr("use mode gather"));
    EXPECT_THAT(sentence(Mode::delta, {.quantised = true, .quantised_tensor = "a.weight"}),
                AllOf(HasSubstr("like 'a.weight'"), HasSubstr("use gather, direct or alias")));
    EXPECT_THAT(sentence(Mode::direct, {.weights = kRefusalDevice, .shards_leave = true}),
                HasSubstr("use gather or alias"));
    EXPECT_THAT(sentence(Mode::alias, {.engine = kRefusalDevice}, About::device),
                HasSubstr("the trainer's weights are on the CPU, the engine's on cuda:0"));
    EXPECT_THAT(sentence(Mode::gather, {.transport = "nccl"}, About::transport),
                HasSubstr("nccl does not reach memory of cpu"));
    EXPECT_THAT(sentence(Mode::gather, {.weights = kRefusalDevice, .quantised = true}, About::dtype),
                HasSubstr("quantised on the CPU"));
}

TEST(Modes, HaveNamesInTheOrderOfTheEnumeration) {
    EXPECT_EQ(mode_name(Mode::gather), "gather");
    EXPECT_EQ(mode_name(Mode::delta), "delta");
    EXPECT_EQ(mode_from_name("alias"), Mode::alias);
    EXPECT_EQ(mode_names(), "gather, direct, alias or delta");
    EXPECT_EQ(mode_names(" and ", &ModeTraits::staged), "gather and delta");
    try {
        mode_from_name("teleport");
        ADD_FAILURE() << "teleport is a mode";
    } catch (const InvalidArgument& error) {
        EXPECT_STREQ(error.what(), "no mode 'teleport'; there are gather, direct, alias, delta");
    }
}

}  // namespace
}  // namespace tandem::sync
