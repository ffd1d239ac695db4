// Within this a local peer answers.
#pragma once

#include "common/deadline.h"

namespace tandem::engine {

inline Deadline soon() {
    return Deadline::after_ms(5000);
}

}  // namespace tandem::engine
