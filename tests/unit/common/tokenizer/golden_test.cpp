// Tokenizers of every kind against Hugging Face `tokenizers` (tests/golden/make_tokenizer.py).
#include <fstream>

#include "common/tokenizer/tokenizer.h"
#include "tests/unit/common/tokenizer/directory.h"

namespace tandem::tokenizer {
namespace {

const std::string kGolden = std::string(TANDEM_SOURCE_DIR) + "/tests/golden/data/tokenizer/";

class Golden : public testing::TestWithParam<const char*> {};

// A line has what follows from nothing else: ids without special tokens where they differ from those with,
// the decoded text where it differs from the text.
TEST_P(Golden, EncodesAndDecodesAsTokenizersDoes) {
    const std::string folder = kGolden + GetParam();
    const Tokenizer tokenizer = Tokenizer::from_directory(folder);
    std::ifstream in(folder + "/lines.json");
    const nlohmann::json lines = nlohmann::json::parse(in);
    ASSERT_GE(lines.size(), 50u);
    for (const nlohmann::json& line : lines) {
        const std::string text = line["text"];
        const std::vector<std::int32_t> ids = line["ids"];
        const std::string all = line.value("all", text);
        EXPECT_EQ(tokenizer.encode(text, true), ids) << text;
        EXPECT_EQ(tokenizer.encode(text, false), line.value("plain", ids)) << text;
        EXPECT_EQ(tokenizer.decode(ids, false), all) << text;
        EXPECT_EQ(tokenizer.decode(ids, true), line.value("skip", all)) << text;
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Golden,
                         testing::Values("gpt2", "gpt2_prefix", "qwen2", "llama3", "smollm", "deepseek",
                                         "llama2", "metaspace_first", "metaspace_always", "words",
                                         "whitespace"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace tandem::tokenizer
