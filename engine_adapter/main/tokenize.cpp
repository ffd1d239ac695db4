#include "engine_adapter/main/tokenize.h"

#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/error.h"
#include "common/json_text.h"
#include "common/printable.h"
#include "common/tokenizer/conversation.h"
#include "common/tokenizer/tokenizer.h"
#include "common/user_file.h"

namespace tandem::engine {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // of a line

class Lines {
  public:
    Lines(const TokenizeOptions& options, const tokenizer::Tokenizer& tokenizer)
        : options_(options),
          tokenizer_(tokenizer),
          place_(options.file.empty() ? "standard input" : options.file) {}

    void run(std::istream& in) {
        std::string line, out;
        while (next_line(in, line, kMostBytes)) {
            ++number_;
            if (line.size() > kMostBytes) fail(fmt::format("is longer than {} bytes", kMostBytes));
            out.clear();
            if (options_.decode) {
                const std::string text = tokenizer_.decode(ids_of(line), options_.no_special_tokens);
                out = options_.json ? text_of_json(json(text)) : text;
            } else {
                out = options_.chat ? chat(line)
                                    : written(tokenizer_.encode(text_of(line), !options_.no_special_tokens));
            }
            out += '\n';
            std::cout.write(out.data(), static_cast<std::streamsize>(out.size()));
        }
    }

  private:
    [[noreturn]] void fail(const std::string& message) const {
        throw ConfigError(place_, fmt::format("line {}", number_), message);
    }

    ordered_json parse(const std::string& line) const {
        try {
            return parse_ordered_json_text(line, any_values(line));
        } catch (const BadInput&) {
            fail("is not JSON");
        }
    }

    // [message, …], or {"messages": […], "tools": […], "add_generation_prompt": false, …}; the template's
    // special tokens are the conversation's.
    std::string chat(const std::string& line) const {
        try {
            auto conversation = tokenizer::Conversation::from_json(line);
            conversation.template_name = options_.template_name;
            const std::string text = tokenizer_.apply_chat_template(conversation);
            if (options_.text) return text_of_json(json(text));
            return written(tokenizer_.encode(text, false));
        } catch (const InvalidArgument& error) {
            fail(error.what());
        }
    }

    std::string text_of(const std::string& line) const {
        if (!options_.json) return line;
        const ordered_json value = parse(line);
        if (!value.is_string()) fail("must be a JSON string");
        return value.get<std::string>();
    }

    std::vector<std::int32_t> ids_of(const std::string& line) const {
        if (options_.json) {
            const json list = parse(line);
            try {
                return token_ids_of(list);
            } catch (const BadInput& error) {
                fail(error.what());
            }
        }
        std::vector<std::int32_t> ids;
        std::istringstream words(line);
        for (std::string word; words >> word;) {
            const char* const end = word.data() + word.size();
            std::int32_t id = -1;
            const auto read = std::from_chars(word.data(), end, id);
            if (read.ec != std::errc() || read.ptr != end || id < 0)
                fail("must be token ids with spaces between, found " + printable(word));
            ids.push_back(id);
        }
        return ids;
    }

    std::string written(const std::vector<std::int32_t>& ids) const {
        std::string out = options_.json ? "[" : "";
        for (std::size_t i = 0; i < ids.size(); ++i) {
            if (i > 0) out += options_.json ? "," : " ";
            out += std::to_string(ids[i]);
        }
        return options_.json ? out + "]" : out;
    }

    const TokenizeOptions& options_;
    const tokenizer::Tokenizer& tokenizer_;
    std::string place_;
    std::int64_t number_ = 0;
};

}  // namespace

void tokenize(const TokenizeOptions& options) {
    const auto tokenizer = tokenizer::Tokenizer::from_directory(options.model);
    if (options.chat && options.template_name.empty()) tokenizer.check_chat_template();
    std::ios::sync_with_stdio(false);
    Lines lines(options, tokenizer);
    if (options.file.empty()) {
        lines.run(std::cin);
    } else {
        auto in = open_to_read(options.file);
        lines.run(in);
    }
    std::cout.flush();
    if (!std::cout) throw Error("standard output could not be written");
}

}  // namespace tandem::engine
