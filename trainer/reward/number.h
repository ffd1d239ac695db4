// The number that a worked answer ends on, read as GSM8K's graders read it.
#pragma once

#include <optional>
#include <string_view>

namespace tandem::trainer {

// If the text has a "####", the first number after the last of them (or none). Else the last number of the
// text. A number is
//
//   [sign] [currency] digits [.digits] [e[sign]digits]    digits may be grouped by thousands: 1,234,567
//   [sign] whole / whole, [sign] whole whole / whole      1/2, 1 1/2 (a mixed number); not over zero,
//                                                        not of three parts (a date)
//
// A sign is '-', '+' or U+2212, directly before the digits or the currency ($ € £ ¥), and no sign where it
// follows a digit, a letter or ')' (10-3 ends on 3). A point or comma that no digit follows belongs to the
// sentence ("5."). Whatever follows a number (%, units) is ignored. Numbers beyond a double's range are
// passed over.
std::optional<double> final_number(std::string_view text);

}  // namespace tandem::trainer
