// Prompts from a JSONL file of the test's, a tokenizer that is pretended (a token a byte, and two special ones), a reward that
// remembers.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/text_codec.h"
#include "trainer/data/text_task.h"

namespace tandem::trainer {

inline constexpr std::int32_t kEndToken = 256, kStartToken = 257;  // "<e>", "<s>"

class ByteCodec : public TextCodec {
  public:
    bool chat = true;
    std::string end = "<e>";

    Tokens encode(const std::string& text, bool add_special_tokens) const override {
        Tokens result;
        if (add_special_tokens) result.push_back(kStartToken);
        for (std::size_t i = 0; i < text.size(); ++i) {
            const std::string_view rest = std::string_view(text).substr(i);
            const bool special = rest.starts_with("<e>") || rest.starts_with("<s>");
            result.push_back(special ? (rest[1] == 'e' ? kEndToken : kStartToken)
                                     : static_cast<std::int32_t>(static_cast<unsigned char>(text[i])));
            if (special) i += 2;
        }
        return result;
    }
    std::string decode(std::span<const std::int32_t> tokens, bool skip) const override {
        std::string result;
        for (const std::int32_t t : tokens) {
            if (t < 256) {
                result += static_cast<char>(t);
            } else if (!skip) {
                result += t == kEndToken ? "<e>" : "<s>";
            }
        }
        return result;
    }
    bool has_chat_template() const override { return chat; }
    std::string render(const std::vector<ChatTurn>& turns, bool generate) const override {
        std::string text;
        for (const ChatTurn& turn : turns) {
            if (turn.role == "tool") throw Error("no tools here");
            text += turn.role.substr(0, 1) + ":" + turn.content + end + "\n";
        }
        return text + (generate ? "a:" : "");
    }
    std::optional<std::int32_t> eos_token() const override { return eos; }
    std::optional<std::int32_t> end_of_turn() const override {
        return end == "<e>" ? std::optional(kEndToken) : std::nullopt;
    }
    std::int64_t vocab_size() const override { return 258; }

    std::optional<std::int32_t> eos;
};

struct TextFolder {
    TextFolder()
        : path(std::filesystem::temp_directory_path() / ("tandem_text_test." + std::to_string(getpid()))) {
        std::filesystem::remove_all(path);
        std::filesystem::create_directories(path);
    }
    ~TextFolder() { std::filesystem::remove_all(path); }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(path / name, std::ios::binary) << text;
        return (path / name).string();
    }
    std::filesystem::path path;
};

// Remembers what it was asked to judge.
class SpyReward final : public Reward {
  public:
    explicit SpyReward(std::vector<AnsweredPrompt>* seen) : seen_(seen) {}
    std::string complaint(const std::string& answer) const override {
        return answer == "bad" ? "is bad" : "";
    }
    std::vector<double> scores(std::span<const AnsweredPrompt> answered) const override {
        seen_->assign(answered.begin(), answered.end());
        return std::vector<double>(answered.size(), 0.5);
    }

  private:
    std::vector<AnsweredPrompt>* seen_;
};

struct TextRig {
    TextFolder folder;
    std::shared_ptr<ByteCodec> codec = std::make_shared<ByteCodec>();
    TextTaskOptions options;
    std::vector<AnsweredPrompt> seen;

    TextTask task(const std::string& lines) {
        options.prompts = folder.write("p.jsonl", lines);
        return TextTask(options, codec, {kEndToken}, std::make_unique<SpyReward>(&seen));
    }
    // What is wrong with the lines, without the folder's name.
    std::string complaint(const std::string& lines) {
        try {
            task(lines).longest_prompt();
        } catch (const ConfigError& error) {
            std::string message = error.what();
            const std::string prefix = (folder.path / "").string();
            if (const auto at = message.find(prefix); at != std::string::npos)
                message.erase(at, prefix.size());
            return message;
        }
        return "good";
    }
};

}  // namespace tandem::trainer
