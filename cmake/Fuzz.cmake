# Every fuzz/NAME_fuzz.cpp is a program fuzz_NAME for libFuzzer, with the address and undefined-behaviour
# sanitizers. Only clang has libFuzzer: the preset `fuzz` says so.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "PHX_FUZZ needs clang: cmake --preset fuzz")
endif()
# The readers of checkpoints, which need the core alone: Debian 12's clang is too old for what the ranks' code uses.
file(GLOB readers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/checkpoint/torch/*.cpp")
foreach(reader safetensors manifest tensor_source copy_box)
  list(APPEND readers "${PROJECT_SOURCE_DIR}/src/checkpoint/${reader}.cpp")
endforeach()
add_library(phx_checkpoint_readers STATIC EXCLUDE_FROM_ALL ${readers})
target_link_libraries(phx_checkpoint_readers PUBLIC phx_core phx::xxhash phx::zlib)

add_custom_target(fuzz_programs)  # all of them
file(GLOB programs CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/fuzz/*_fuzz.cpp")
foreach(program IN LISTS programs)
  get_filename_component(name "${program}" NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" name "${name}")
  add_executable(fuzz_${name} "${program}")
  add_dependencies(fuzz_programs fuzz_${name})
  if(name MATCHES "safetensors|manifest|pickle|torch")
    target_link_libraries(fuzz_${name} PRIVATE phx_checkpoint_readers)
  else()
    target_link_libraries(fuzz_${name} PRIVATE phx_data)
  endif()
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endforeach()
