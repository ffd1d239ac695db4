// tandem-train. This folder is the one place that joins trainer, sync and engine_adapter.
// Exit codes: 0 ok, 1 failed, 2 bad usage.
#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "common/console.h"
#include "common/error.h"
#include "common/log.h"
#include "common/model/mapped_files.h"
#include "common/printable.h"
#include "trainer/main/commands.h"

int main(int argc, char** argv) {
    tandem::set_up_logging("train");
    tandem::model::read_zeros_of_truncated_files();
    try {
        return tandem::end_of_program("tandem-train", tandem::trainer::run_command_line(argc, argv));
    } catch (const std::exception& error) {
        const auto status = tandem::to_status(error);
        tandem::tell(stderr, fmt::format("tandem-train: {}\n", tandem::printable(status.message)));
        return tandem::exit_code(status.code);
    }
}
