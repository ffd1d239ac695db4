// How long a test waits for what must come.
#pragma once

#include "common/deadline.h"

namespace tandem::test {

// Not a bound of what is tested: no load makes a peer on this host take so long, one that does hangs.
inline Deadline soon() {
    return Deadline::after_ms(60'000);
}

}  // namespace tandem::test
