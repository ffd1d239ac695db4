// Which folder is the newest version that is whole, whoever writes it and however.
#include "sync/watch/version_folders.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/error.h"
#include "common/model/safetensors.h"

namespace tandem::sync {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Versions : public testing::Test {
  protected:
    Versions() {
        std::string name = (fs::temp_directory_path() / "versions.XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    ~Versions() override { fs::remove_all(folder_); }

    // As save_pretrained writes it; element 0 says which content it is.
    void write(const std::string& name, float content = 1) {
        const fs::path at = folder_ / name;
        fs::create_directories(at);
        std::ofstream(at / "config.json") << "{}";
        Tensor tensor = Tensor::empty({2, 2}, DType::float32, "test");
        for (int i = 0; i < 4; ++i) tensor.data<float>()[i] = content;
        model::write_safetensors((at / "model.safetensors").string(), {{"w", tensor}});
    }
    VersionFolders watch(WatchedFolder watched = {}) {
        watched.directory = folder_.string();
        if (watched.rest == 2000ms) watched.rest = 50ms;
        return VersionFolders(
            watched, [this](const std::string& text) { told_.push_back(text); },
            [](const std::string& path) { return std::make_shared<DirectoryWeights>(path); });
    }
    // What comes within that time; "" where nothing does.
    static std::string next(VersionFolders& folders, std::chrono::milliseconds within = 30s) {
        const auto end = std::chrono::steady_clock::now() + within;
        do {
            if (const auto version = folders.look())
                return version->name + "=" + std::to_string(version->number);
            folders.wait(5ms);
        } while (std::chrono::steady_clock::now() < end);
        return "";
    }
    static std::string nothing(VersionFolders& folders) { return next(folders, 150ms); }

    fs::path folder_;
    std::vector<std::string> told_;
};

TEST(NumberIn, IsWhatANameEndsWith) {
    EXPECT_EQ(number_in("step_120"), 120u);
    EXPECT_EQ(number_in("weight_v000012"), 12u);
    EXPECT_EQ(number_in("checkpoint-500"), 500u);
    EXPECT_EQ(number_in("7"), 7u);
    EXPECT_EQ(number_in("v2.10"), 10u);
    EXPECT_EQ(number_in("step_0"), 0u);
    EXPECT_EQ(number_in("final"), std::nullopt);
    EXPECT_EQ(number_in("step_5_old"), std::nullopt);
    EXPECT_GT(number_in("step_99999999999999999999999"), std::uint64_t{1} << 53);
}

TEST_F(Versions, TheHighestNumberGoesFirstAndTheOthersAreBehindIt) {
    for (const char* name : {"step_9", "step_10", "step_2"}) write(name);
    VersionFolders folders = watch();
    EXPECT_EQ(next(folders), "step_10=10");
    EXPECT_EQ(nothing(folders), "");
    write("step_11");
    EXPECT_EQ(next(folders), "step_11=11");
    for (const char* name : {"step_12", "step_13"}) {
        write(std::string(".") + name);
        fs::rename(folder_ / (std::string(".") + name), folder_ / name);
    }
    EXPECT_EQ(next(folders), "step_13=13") << "the newest first when it falls behind";
    EXPECT_EQ(nothing(folders), "");
    EXPECT_THAT(told_, IsEmpty());
}

// Written just before the watch began, after one that rests already.
TEST_F(Versions, TheNewestMayRestBeforeTheFirstIsChosen) {
    write("step_1");
    std::this_thread::sleep_for(60ms);
    write("step_2");
    VersionFolders folders = watch();
    EXPECT_EQ(next(folders), "step_2=2");
    EXPECT_EQ(nothing(folders), "");
}

TEST_F(Versions, HalfOnesWait) {
    write("step_1");
    VersionFolders folders = watch();
    EXPECT_EQ(next(folders), "step_1=1");
    // File by file: two of three shards, and the index at the end.
    write("step_2");
    const fs::path at = folder_ / "step_2";
    fs::rename(at / "model.safetensors", at / "model-00001-of-00002.safetensors");
    EXPECT_EQ(nothing(folders), "");
    EXPECT_THAT(folders.unfinished(), HasSubstr("step_2: "));
    std::ofstream(at / "model.safetensors.index.json")
        << R"({"weight_map": {"w": "model-00001-of-00002.safetensors", "v": "model-00002-of-00002.safetensors"}})";
    EXPECT_EQ(nothing(folders), "");
    EXPECT_THAT(folders.unfinished(), HasSubstr("model-00002-of-00002.safetensors"));
    Tensor tensor = Tensor::empty({2}, DType::float32, "test");
    const std::string second = (at / "model-00002-of-00002.safetensors").string();
    model::write_safetensors(second, {{"v", tensor}});
    const auto whole = fs::file_size(second);
    fs::resize_file(second, whole - 1);
    EXPECT_EQ(nothing(folders), "");
    fs::resize_file(second, whole);
    EXPECT_EQ(next(folders), "step_2=2");
    EXPECT_EQ(folders.unfinished(), "");
}

TEST_F(Versions, WhatIsStillWrittenDoesNotRest) {
    VersionFolders patient = watch({.rest = 1h});
    for (int i = 0; i < 4; ++i) {
        write("step_1", static_cast<float>(i));
        EXPECT_EQ(next(patient, 50ms), "");
        EXPECT_THAT(patient.unfinished(), HasSubstr("is being written"));
    }
    VersionFolders folders = watch();
    EXPECT_EQ(next(folders), "step_1=1");
}

TEST_F(Versions, ARenameAndAMarkerAreAtOnce) {
    VersionFolders renamed = watch({.rest = 1h});
    write(".step_1");
    EXPECT_EQ(nothing(renamed), "");
    fs::rename(folder_ / ".step_1", folder_ / "step_1");
    EXPECT_EQ(next(renamed), "step_1=1");
    write("step_2");
    EXPECT_EQ(nothing(renamed), "") << "it was written under its name";

    VersionFolders marked = watch({.marker = "STABLE", .rest = 1h});
    EXPECT_EQ(nothing(marked), "");
    EXPECT_THAT(marked.unfinished(), HasSubstr("step_2: there is no STABLE in it"));
    std::ofstream(folder_ / "step_1" / "STABLE");
    EXPECT_EQ(next(marked), "step_1=1");
    std::ofstream(folder_ / "step_2" / "STABLE");
    EXPECT_EQ(next(marked), "step_2=2");
}

TEST_F(Versions, OtherNamesAreNoVersions) {
    for (const char* name :
         {"tmp-checkpoint-5", ".step_6", "_step_7", "step_8.partial", "step_9.tmp", "logs_3"})
        write(name);
    fs::create_directory(folder_ / "events_50");
    std::ofstream(folder_ / "step_70") << "a file";
    write("step_4");
    fs::create_directory_symlink(folder_ / "step_4", folder_ / "step_80");
    VersionFolders folders = watch({.pattern = "step_*"});
    EXPECT_EQ(next(folders), "step_4=4");
    write("step_0");
    write("step_9007199254740993");
    EXPECT_EQ(nothing(folders), "");
    EXPECT_THAT(told_, ElementsAre(HasSubstr("step_9007199254740993 is passed over"),
                                   HasSubstr("step_0 is passed over")));
    EXPECT_THROW(VersionFolders({.directory = (folder_ / "absent").string()}, {}, {}), ConfigError);
}

TEST_F(Versions, ALowerNumberIsARollbackThatMustBeAskedFor) {
    write("step_5");
    VersionFolders folders = watch();
    EXPECT_EQ(next(folders), "step_5=5");
    write("step_3");
    EXPECT_EQ(nothing(folders), "");
    EXPECT_THAT(told_, ElementsAre(HasSubstr("step_3 is not above 5")));
    told_.clear();
    VersionFolders back = watch({.rollback = true});
    EXPECT_EQ(next(back), "step_5=5") << "at the start the highest";
    std::this_thread::sleep_for(20ms);
    write("step_2");
    EXPECT_EQ(next(back), "step_2=2");
    EXPECT_EQ(nothing(back), "");
    write("step_5", 9);
    EXPECT_EQ(next(back), "step_5=5") << "replaced";
    EXPECT_THAT(told_, IsEmpty());
}

TEST_F(Versions, AVersionThatIsReplacedUnderItsNameIsTold) {
    write("step_5", 1);
    VersionFolders folders = watch();
    EXPECT_EQ(next(folders), "step_5=5");
    std::ofstream(folder_ / "step_5" / "optimizer.pt") << "more";
    EXPECT_EQ(nothing(folders), "");
    EXPECT_THAT(told_, IsEmpty()) << "not its weights";
    write("step_5", 2);
    EXPECT_EQ(nothing(folders), "");
    EXPECT_THAT(told_, ElementsAre(HasSubstr("step_5 was replaced under its name")));
    fs::remove_all(folder_ / "step_5");
    EXPECT_EQ(nothing(folders), "");
    write("step_5", 3);
    EXPECT_EQ(nothing(folders), "");
    EXPECT_EQ(told_.size(), 2u);
    write("step_6");
    EXPECT_EQ(next(folders), "step_6=6");
}

TEST_F(Versions, NamesWithoutANumberAreCounted) {
    write("first");
    VersionFolders folders = watch();
    folders.count_from(40);
    EXPECT_EQ(next(folders), "first=41");
    write("second");
    EXPECT_EQ(next(folders), "second=42");
    write("step_50");
    EXPECT_EQ(next(folders), "step_50=50");
    write("final");
    EXPECT_EQ(next(folders), "final=51");
}

// What is not whole when a newer one is may still be the newest by its kind.
TEST_F(Versions, WhatIsUnfinishedIsNotForgotten) {
    write("step_1");
    VersionFolders folders = watch({.marker = "STABLE"});
    std::ofstream(folder_ / "step_1" / "STABLE");
    EXPECT_EQ(next(folders), "step_1=1");
    write("step_3");
    write("final");
    EXPECT_EQ(nothing(folders), "");
    write("step_2");
    std::ofstream(folder_ / "step_2" / "STABLE");
    EXPECT_EQ(next(folders), "step_2=2");
    std::ofstream(folder_ / "step_3" / "STABLE");
    EXPECT_EQ(next(folders), "step_3=3");
    std::ofstream(folder_ / "final" / "STABLE");
    EXPECT_EQ(next(folders), "final=4");
}

TEST_F(Versions, OneThatWasWrittenToWhileItWasReadIsWaitedForAgain) {
    write("step_5", 1);
    VersionFolders folders = watch();
    std::optional<Version> version;
    while (!(version = folders.look())) folders.wait(5ms);
    write("step_5", 2);
    folders.forget(*version);
    EXPECT_EQ(next(folders), "step_5=5");
    EXPECT_THAT(told_, IsEmpty());
}

// Its files can be read after its folder is gone.
TEST_F(Versions, RotationLosesNothing) {
    write("step_5", 7);
    VersionFolders folders = watch();
    std::optional<Version> version;
    while (!(version = folders.look())) folders.wait(5ms);
    fs::remove_all(folder_ / "step_5");
    EXPECT_EQ(version->weights->tensor("w").data<float>()[3], 7);
    EXPECT_EQ(version->weights->changed_file(), "");
    EXPECT_EQ(nothing(folders), "");
}

}  // namespace
}  // namespace tandem::sync
