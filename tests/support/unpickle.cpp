#include "tests/support/unpickle.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "common/error.h"

namespace tandem::test {
namespace {

using nlohmann::json;

class Unpickler {
  public:
    explicit Unpickler(std::string_view pickle) : rest_(pickle) {}

    json run() {
        enforce(take(2) == std::string_view("\x80\x04"), "no pickle of protocol 4");
        while (true) {
            const char opcode = take(1)[0];
            if (opcode == '.') break;
            step(static_cast<unsigned char>(opcode));
        }
        enforce(stack_.size() == 1 && marks_.empty() && rest_.empty(), "a pickle of no single value");
        return stack_.back();
    }

  private:
    std::string_view take(std::size_t bytes) {
        enforce(bytes <= rest_.size(), "a pickle that is cut off");
        const std::string_view taken = rest_.substr(0, bytes);
        rest_.remove_prefix(bytes);
        return taken;
    }
    std::uint64_t number(std::size_t bytes) {
        std::uint64_t value = 0;
        const std::string_view digits = take(bytes);
        for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(digits[i]);
        return value;
    }
    json pop() {
        enforce(!stack_.empty() && (marks_.empty() || marks_.back() < stack_.size()), "nothing to take");
        json value = std::move(stack_.back());
        stack_.pop_back();
        return value;
    }
    json pop_last(std::size_t count) {
        std::vector<json> values(count);
        for (std::size_t i = count; i-- > 0;) values[i] = pop();
        return json(values);
    }
    json pop_to_mark() {
        enforce(!marks_.empty(), "no mark");
        json values = pop_last(stack_.size() - marks_.back());
        marks_.pop_back();
        return values;
    }
    json binary(std::string_view content) {
        return json::binary(std::vector<std::uint8_t>(content.begin(), content.end()));
    }

    void step(unsigned char opcode) {
        switch (opcode) {
            case '(':
                marks_.push_back(stack_.size());
                break;
            case 'N':
                stack_.emplace_back(nullptr);
                break;
            case 0x88:
                stack_.emplace_back(true);
                break;
            case 0x89:
                stack_.emplace_back(false);
                break;
            case 'K':
                stack_.emplace_back(number(1));
                break;
            case 'J':
                stack_.emplace_back(static_cast<std::int32_t>(number(4)));
                break;
            case 0x8a:
                enforce(number(1) == 8, "an integer of another width");
                stack_.emplace_back(static_cast<std::int64_t>(number(8)));
                break;
            case 0x8c:
                stack_.emplace_back(std::string(take(number(1))));
                break;
            case 'X':
                stack_.emplace_back(std::string(take(number(4))));
                break;
            case 'C':
                stack_.push_back(binary(take(number(1))));
                break;
            case 'B':
                stack_.push_back(binary(take(number(4))));
                break;
            case ')':
                stack_.push_back(json::array());
                break;
            case 0x85:
            case 0x86:
            case 0x87:
                stack_.push_back(pop_last(opcode - 0x84u));
                break;
            case 't':
                stack_.push_back(pop_to_mark());
                break;
            case ']':
                stack_.push_back(json::array());
                break;
            case '}':
                stack_.push_back(json::object());
                break;
            case 'e':
            case 'u':
                fill(opcode == 'u', pop_to_mark());
                break;
            case 0x93: {
                const json names = pop_last(2);
                stack_.push_back(
                    {{"global", names[0].get<std::string>() + "." + names[1].get<std::string>()}});
                break;
            }
            case 'R': {
                const json arguments = pop();
                stack_.push_back({{"call", pop().at("global")}, {"arguments", arguments}});
                break;
            }
            default:
                throw Error(fmt::format("opcode {:#x}", opcode));
        }
    }
    void fill(bool dict, const json& values) {
        enforce(!stack_.empty(), "nothing to fill");
        for (std::size_t i = 0; i < values.size(); i += dict ? 2 : 1) {
            if (dict)
                stack_.back()[values[i].get<std::string>()] = values.at(i + 1);
            else
                stack_.back().push_back(values[i]);
        }
    }

    std::string_view rest_;
    std::vector<json> stack_;
    std::vector<std::size_t> marks_;
};

}  // namespace

json unpickle(std::string_view pickle) {
    return Unpickler(pickle).run();
}

std::string from_base64(std::string_view text) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    enforce(text.size() % 4 == 0, "base64 without padding");
    std::string bytes;
    for (std::size_t i = 0; i < text.size(); i += 4) {
        std::uint32_t group = 0;
        std::size_t there = 4;
        while (there > 2 && i + 4 == text.size() && text[i + there - 1] == '=') --there;
        for (std::size_t j = 0; j < there; ++j) {
            const std::size_t digit = kDigits.find(text[i + j]);
            enforce(digit != std::string_view::npos, "'{}' in base64", text[i + j]);
            group |= static_cast<std::uint32_t>(digit) << (18 - 6 * j);
        }
        for (std::size_t j = 0; j + 1 < there; ++j) bytes += static_cast<char>(group >> (16 - 8 * j));
    }
    return bytes;
}

}  // namespace tandem::test
