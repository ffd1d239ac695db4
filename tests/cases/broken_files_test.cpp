// Files of a model that are something else than their name says: what a clone without git lfs, a download
// behind a login, a full disk and other tools leave there.
#include <cstdint>
#include <filesystem>
#include <utility>

#include "tests/cases/run.h"

namespace tandem::test {

namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kLfsPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

class BrokenFile : public Case {
  protected:
    // Engine and trainer end with 2 and say the words; without a tokenizer an engine may go on, and say them.
    void expect_said(const testing::Matcher<std::string>& words, bool of_tokenizer = false) {
        engine::Program engine(serve());
        if (of_tokenizer)
            engine.url();
        else
            EXPECT_EQ(engine.wait(), 2);
        EXPECT_THAT(engine.output(), words);
        const Ended trained = ended(train());
        EXPECT_EQ(trained.code, 2);
        EXPECT_THAT(trained.text(), words);
    }
};

}  // namespace

TEST_F(BrokenFile, APointerIsSaidToBeOneWhateverFileItStandsFor) {
    write_tiny(path("whole"));
    for (const auto& [file, of_tokenizer] :
         {std::pair("model.safetensors", false), std::pair("config.json", false),
          std::pair("tokenizer.json", true), std::pair("tokenizer_config.json", true),
          std::pair("generation_config.json", false), std::pair("chat_template.jinja", true)}) {
        fs::remove_all(path("model"));
        fs::copy(path("whole"), path("model"));
        write_text(path("model/") + file, kLfsPointer);
        expect_said(
            HasSubstr(std::string("model/") + file + ": is a Git LFS pointer, not the file: git lfs pull"),
            of_tokenizer);
    }
    fs::remove_all(path("model"));
    fs::copy(path("whole"), path("model"));
    fs::remove(path("model/model.safetensors"));
    write_text(path("model/model.safetensors.index.json"), kLfsPointer);
    expect_said(HasSubstr("model.safetensors.index.json: is a Git LFS pointer"));
}

TEST_F(BrokenFile, PagesArchivesAndPicklesAreSaidToBeThat) {
    write_tiny(path("model"));
    const std::string file = path("model/model.safetensors");
    using std::string_literals::operator""s;
    for (const auto& [bytes, words] :
         {std::pair("<!doctype html>\n<html><body>Please log in"s, "is a page of HTML"),
          std::pair("PK\x03\x04\0\0\0\0\0\0"s, "is a zip archive"),
          std::pair("\x1f\x8b\x08\0\0\0\0\0\0"s, "is compressed by gzip"),
          std::pair("\x80\x02}q\0X\x04"s, "is a pickle"),
          std::pair("Entry not found"s, "it begins with \"Entry not found\""),
          std::pair(std::string(5000, '\0'), "begins with zeros")}) {
        write_text(file, bytes);
        engine::Program engine(serve());
        EXPECT_EQ(engine.wait(), 2);
        EXPECT_THAT(engine.output(), AllOf(HasSubstr("model/model.safetensors: "), HasSubstr(words)));
    }
    fs::rename(file, path("model/pytorch_model.bin"));
    expect_said(
        HasSubstr("has neither model.safetensors nor model.safetensors.index.json, but pytorch_model.bin, a "
                  "pickle"));
}

TEST_F(BrokenFile, EmptyAndHalfFilesAreSaidToBeThat) {
    write_tiny(path("model"));
    const std::string file = path("model/model.safetensors"), config = path("model/config.json");
    fs::resize_file(file, fs::file_size(file) / 2);
    expect_said(AllOf(HasSubstr("model.safetensors: "), HasSubstr("truncated, half copied or downloaded?")));
    fs::resize_file(file, 0);
    expect_said(HasSubstr("model.safetensors: is empty"));
    fs::resize_file(config, fs::file_size(config) / 2);
    expect_said(
        AllOf(HasSubstr("config.json: "), HasSubstr("it ends in its middle: half copied or downloaded?")));
    fs::resize_file(config, 0);
    expect_said(HasSubstr("config.json: is empty"));
}

TEST_F(BrokenFile, NamesOfAWrapperAreSaidToBeThat) {
    write_tiny(path("model"));
    std::string weights = read_file(path("model/model.safetensors"));
    const std::string header =
        weights.substr(8, static_cast<unsigned char>(weights[0]) |
                              static_cast<std::size_t>(static_cast<unsigned char>(weights[1])) << 8);
    auto names = nlohmann::json::parse(header), wrapped = nlohmann::json::object();
    for (const auto& [name, entry] : names.items())
        wrapped[name == "__metadata__" ? name : "_orig_mod." + name] = entry;
    const std::string text = wrapped.dump();
    const std::uint64_t size = text.size();
    write_text(path("model/model.safetensors"), std::string(reinterpret_cast<const char*>(&size), 8) + text +
                                                    weights.substr(8 + header.size()));
    expect_said(AllOf(HasSubstr("model.embed_tokens.weight: missing"), HasSubstr("\"_orig_mod.\""),
                      HasSubstr("torch.compile"), HasSubstr("strip it")));
}

}  // namespace tandem::test
