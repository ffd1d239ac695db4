// The port of the tokenizer on a vocabulary small enough to merge by hand, and what it refuses.
#include <thread>

#include "common/error.h"
#include "common/tokenizer/merge_table.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/unit/common/tokenizer/directory.h"

namespace tandem::tokenizer {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(Bpe, MergesByRankAndAddsWhatTheTemplateAdds) {
    Directory directory;
    directory.write("tokenizer.json", small_tokenizer().dump());
    const Tokenizer tokenizer = Tokenizer::from_directory(directory.path());
    EXPECT_EQ(tokenizer.encode("hello low", true), (Ids{0, 10, 13}));
    EXPECT_EQ(tokenizer.encode("hello low", false), (Ids{10, 13}));
    EXPECT_EQ(tokenizer.encode("", true), (Ids{0}));
    EXPECT_EQ(tokenizer.encode("hello <tool> low<s>", false), (Ids{10, 14, 13, 0}));
    EXPECT_EQ(tokenizer.decode({0, 10, 14, 13}, false), "<s>hello<tool> low");
    EXPECT_EQ(tokenizer.decode({0, 10, 14, 13}, true), "hello<tool> low");
    EXPECT_EQ(tokenizer.decode({999, -1, 10}, true), "hello");
    EXPECT_EQ(tokenizer.token_id("<tool>"), 14);
    EXPECT_EQ(tokenizer.token_id("hell"), 9);
    EXPECT_EQ(tokenizer.token_id("absent"), std::nullopt);
    EXPECT_EQ(tokenizer.token(13), "Ġlow");
    EXPECT_EQ(tokenizer.vocab_size(), 15u);
}

// Long pieces merge through a heap, short ones by scanning: both against the definition.
TEST(Bpe, ShortAndLongPiecesMergeAsDefined) {
    MergeTable table;
    table.reserve(64);
    std::uint32_t seed = 7;
    const auto random = [&seed](std::uint32_t below) {
        seed = seed * 1664525 + 1013904223;
        return static_cast<std::int32_t>((seed >> 8) % below);
    };
    for (std::uint32_t rank = 0; rank < 60; ++rank) {
        const auto id = 4 + static_cast<std::int32_t>(rank);
        table.insert(random(static_cast<std::uint32_t>(id)), random(static_cast<std::uint32_t>(id)),
                     {rank, id});
    }
    std::size_t merged = 0;
    for (std::size_t length : {1u, 2u, 3u, 10u, 47u, 48u, 49u, 60u, 200u}) {
        for (int round = 0; round < 50; ++round) {
            Ids symbols(length);
            for (auto& symbol : symbols) symbol = random(4);
            Ids expected = symbols;
            for (;;) {
                std::size_t best = 0;
                std::uint32_t rank = MergeTable::kNever;
                for (std::size_t i = 0; i + 1 < expected.size(); ++i) {
                    if (const auto merge = table.find(expected[i], expected[i + 1]); merge.rank < rank) {
                        rank = merge.rank;
                        best = i;
                    }
                }
                if (rank == MergeTable::kNever) break;
                expected[best] = table.find(expected[best], expected[best + 1]).id;
                expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(best) + 1);
            }
            table.merge_all(symbols);
            ASSERT_EQ(symbols, expected) << "length " << length << ", round " << round;
            merged += length - symbols.size();
        }
    }
    EXPECT_GT(merged, 1000u);
}

TEST(Bpe, BytesThatAreNotUtf8CountAsReplacementCharacters) {
    Directory directory;
    directory.write("tokenizer.json", small_tokenizer().dump());
    const Tokenizer tokenizer = Tokenizer::from_directory(directory.path());
    EXPECT_EQ(tokenizer.encode("hello\xFF\xC3", false), tokenizer.encode("hello\uFFFD\uFFFD", false));
}

TEST(Bpe, ManyThreadsGetWhatOneGets) {
    Directory directory;
    directory.write("tokenizer.json", small_tokenizer().dump());
    const Tokenizer tokenizer = Tokenizer::from_directory(directory.path());
    const Ids expected = tokenizer.encode("hello low hell lo", true);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < 200; ++round) {
                if (tokenizer.encode("hello low hell lo", true) != expected) ++wrong;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
}

std::string refusal(const nlohmann::json& json) {
    Directory directory;
    directory.write("tokenizer.json", json.dump());
    try {
        Tokenizer::from_directory(directory.path());
    } catch (const ConfigError& error) {
        EXPECT_EQ(error.file(), directory.file("tokenizer.json"));
        return error.key() + ": " + error.what();
    }
    return "";
}

TEST(Bpe, RefusesWhatItDoesNotKnowByFileAndKey) {
    const auto with = [](const char* pointer, const nlohmann::json& value) {
        nlohmann::json json = small_tokenizer();
        json[nlohmann::json::json_pointer(pointer)] = value;
        return refusal(json);
    };
    using testing::StartsWith;
    EXPECT_THAT(with("/model/type", "Unigram"), StartsWith("model.type: "));
    EXPECT_THAT(with("/model/merges/2", "he lll"), StartsWith("model.merges[2]: "));
    EXPECT_THAT(with("/model/merges/1", "h e l"), StartsWith("model.merges[1]: "));
    EXPECT_THAT(with("/model/merges/0", 5), StartsWith("model.merges[0]: "));
    EXPECT_THAT(with("/model/vocab/he", -1), StartsWith("model.vocab: "));
    EXPECT_THAT(with("/model/unk_token", "absent"), StartsWith("model.unk_token: "));
    EXPECT_THAT(with("/model/dropout", 0.1), StartsWith("model.dropout: "));
    EXPECT_THAT(with("/pre_tokenizer/type", "Nmt"), StartsWith("pre_tokenizer.type: "));
    EXPECT_THAT(with("/normalizer", {{"type", "Precompiled"}}), StartsWith("normalizer.type: "));
    EXPECT_THAT(with("/decoder/type", "CTC"), StartsWith("decoder.type: "));
    EXPECT_THAT(with("/post_processor/single/0/SpecialToken/id", "</s>"),
                StartsWith("post_processor.single[0].SpecialToken.id: "));
    EXPECT_THAT(with("/added_tokens/1/id", 77), StartsWith("added_tokens[1].id: "));
    EXPECT_THAT(with("/added_tokens/0/content", 1), StartsWith("added_tokens[0].content: "));
    EXPECT_THAT(
        with("/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Removed"}}),
        StartsWith("pre_tokenizer.pattern.Regex: "));
    nlohmann::json json = small_tokenizer();
    json.erase("model");
    EXPECT_THAT(refusal(json), StartsWith("model: "));
    EXPECT_EQ(refusal(small_tokenizer()), "");
}

TEST(Bpe, MissingAndMalformedFilesAreNamed) {
    Directory directory;
    EXPECT_FALSE(Tokenizer::present(directory.path()));
    EXPECT_THROW(Tokenizer::from_directory(directory.path()), ConfigError);
    directory.write("tokenizer.json", "{\"model\": ");
    EXPECT_TRUE(Tokenizer::present(directory.path()));
    EXPECT_THROW(Tokenizer::from_directory(directory.path()), ConfigError);
    directory.write("tokenizer.json", small_tokenizer().dump());
    directory.write("tokenizer_config.json", R"({"eos_token": {"content": "<s>"}, "bos_token": null})");
    const Tokenizer tokenizer = Tokenizer::from_directory(directory.path());
    EXPECT_EQ(tokenizer.special_token("eos"), "<s>");
    EXPECT_EQ(tokenizer.special_token("bos"), std::nullopt);
    directory.write("tokenizer_config.json", R"({"eos_token": 3})");
    EXPECT_THROW(Tokenizer::from_directory(directory.path()), ConfigError);
}

}  // namespace
}  // namespace tandem::tokenizer
