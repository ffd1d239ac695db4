// Makes this program's cuda:0 an emulated one, however it is started.
#include <cstdlib>

namespace {
[[maybe_unused]] const int kEmulate = ::setenv("TANDEM_EMULATED_GPUS", "1", 1);
}  // namespace
