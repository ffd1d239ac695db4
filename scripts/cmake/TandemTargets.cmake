# tandem_library(NAME SOURCES a.cpp … DEPS …): one static library a folder, explicit source lists.
function(tandem_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# tandem_program(NAME SOURCES … DEPS …): lands in <build>/bin.
function(tandem_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

# tandem_test(NAME SOURCES … DEPS … [LABELS unit|contract|multiproc|gpu|asan|tsan] [TIMEOUT s] [PROCESSORS n])
# One GoogleTest binary, one ctest entry. The labels asan and tsan put it on the list of the sanitizer runs.
function(tandem_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;PROCESSORS" "SOURCES;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT TANDEM_TESTS)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             TANDEM_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" PROCESSORS ${ARG_PROCESSORS}
                       ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()

# tandem_bench(NAME SOURCES … DEPS …): a benchmark program; built with the tests, never run by ctest.
function(tandem_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(NOT TANDEM_TESTS)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark)
endfunction()
