// tandem-train's command line: its flags, its help, and the command that they choose.
#pragma once

namespace tandem::trainer {

// Returns the exit code. Throws what the chosen command throws.
int run_command_line(int argc, char** argv);

}  // namespace tandem::trainer
