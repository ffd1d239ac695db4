// Integers of 128 bits. Python's have no end; what does not fit here is an error, never another number.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem::tokenizer::jinja {

__extension__ using Integer = __int128;

enum class Whole : unsigned char { add, subtract, multiply, floor_divide, remainder, power };

// All throw Error: the result has more than 128 bits, or division by zero. power: b >= 0.
Integer compute(Whole how, Integer a, Integer b);
double divide(Integer a, Integer b);  // a / b, correctly rounded where both are below 2^53
Integer truncated(double value);      // towards zero; also for what is no number
double to_double(Integer value);      // the nearest
// The sign of a - b, exactly; nullopt where b is not a number.
std::optional<int> compare(Integer a, double b);

std::string to_text(Integer value, unsigned base = 10);
// Python's int(text, base): white space around, a sign, single underscores between digits, a prefix such as
// 0x where the base is 16 or 0. nullopt: not a number. Throws Error: more than 128 bits.
std::optional<Integer> parse_integer(std::string_view text, unsigned base = 10);
// Python's float(text): white space around, underscores between digits, inf and nan.
std::optional<double> parse_real(std::string_view text);

}  // namespace tandem::tokenizer::jinja
