// What may stand behind a number without changing it.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem::trainer {

// Bytes of the unit that `text`, what follows a number, begins with; 0 where there is none. A unit is '%', a
// degree or currency sign, \text{words}, or words; of at most six words in all. Words of two letters or fewer
// are units only in \text{…} or where they are known (cm, of). Number words, and what joins, bounds or
// multiplies (or, million, squared), are no unit.
std::size_t unit_length(std::string_view text);

}  // namespace tandem::trainer
